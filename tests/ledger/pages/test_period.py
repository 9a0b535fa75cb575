"""Periods: their bars, the period before, and what a person reads. Charts: bars for every day, the
costliest names, the rest as one."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ledger.figures.figures import Figures
from ledger.pages.charts import Lines, colours_of, stack
from ledger.pages.period import Period, bar_name, last_days
from ledger.pages.period_sums import Groups
from ledger.text.period import moment
from tests.ledger.pages.conftest import NOW

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)


def period(since, until=None):
    return Period(since=since, until=until, now=NOW)


@pytest.mark.parametrize(
    ("days", "bar", "first", "last", "count"),
    [
        pytest.param(1, "hour", "2026-11-21 00", "2026-11-21 18", 19, id="a-day"),
        pytest.param(30, "day", "2026-10-23", "2026-11-21", 30, id="a-month"),
        pytest.param(365, "week", "2025-11-17", "2026-11-16", 53, id="a-year"),
        pytest.param(1000, "month", "2024-02", "2026-11", 34, id="years"),
    ],
)
def test_a_period_has_a_bar_for_every_hour_day_week_or_month(days, bar, first, last, count):
    asked = last_days(days, NOW)
    assert asked.bar == bar
    assert (asked.bars()[0], asked.bars()[-1], len(asked.bars())) == (first, last, count)


def test_the_period_before_is_as_long_and_ends_where_it_begins():
    before = period(MIDNIGHT - timedelta(days=2)).before
    assert before is not None
    assert before.until == MIDNIGHT - timedelta(days=2)
    assert before.until - before.since == NOW - (MIDNIGHT - timedelta(days=2))


def test_a_period_without_a_beginning_has_none_before_it():
    assert period(None).before is None
    assert period(None).bar == "month"
    assert period(None).bars() == []
    assert period(NOW + timedelta(days=1)).before is None


@pytest.mark.parametrize(
    ("since", "until", "text"),
    [
        (None, None, "everything up to 21 Nov 2026 UTC"),
        (MIDNIGHT, None, "21 Nov 2026 UTC"),
        (MIDNIGHT - timedelta(days=30), None, "22 Oct to 21 Nov 2026 UTC"),
        (MIDNIGHT - timedelta(days=330), MIDNIGHT, "26 Dec 2025 to 20 Nov 2026 UTC"),
        (MIDNIGHT + timedelta(hours=5), None, "21 Nov 2026 05:00 to 21 Nov 2026 18:30 UTC"),
    ],
)
def test_a_period_is_written_as_people_say_it(since, until, text):
    assert str(period(since, until)) == text


def test_a_week_is_named_by_its_monday():
    assert bar_name("2026-11-22", "week") == "2026-11-16"
    assert bar_name("2026-11-22 07", "day") == "2026-11-22"


@pytest.mark.parametrize("days", [1, 7, 30, 90])
def test_days_are_the_same_days_as_in_commands(days):
    assert last_days(days, NOW).since == moment(f"{days}d", NOW)


@pytest.mark.parametrize(
    ("day", "begin", "hours", "bars"),
    [
        pytest.param("2026-03-29", "2026-03-28T23", 23, 23, id="spring"),
        pytest.param("2026-10-25", "2026-10-24T22", 25, 24, id="autumn"),
        pytest.param("2026-11-02", "2026-11-01T23", 24, 24, id="another"),
    ],
)
def test_a_day_of_a_zone_is_as_long_as_it_is_there(day, begin, hours, bars):
    now = datetime(2026, 11, 21, tzinfo=ZoneInfo("Europe/Berlin"))
    since = moment(day, now)
    assert f"{since:%Y-%m-%dT%H}" == begin
    one = Period(since=since, until=since + timedelta(hours=hours), now=now)
    assert str(one) == f"{int(day[-2:])} {one.local(since):%b %Y} Europe/Berlin"
    # The hour that the clock shows twice is one bar of two hours.
    assert (one.bar, len(one.bars())) == ("hour", bars)
    assert {name[:10] for name in one.bars()} == {day}
    assert one.length == timedelta(days=1)
    assert one.before is not None
    assert one.before.since is not None
    assert one.before.local(one.before.since).hour == 0
    assert one.before.length == one.length


def test_a_period_shorter_than_a_day_is_compared_with_as_much_time():
    zone = ZoneInfo("Europe/Berlin")
    now = datetime(2026, 10, 25, 1, 30, tzinfo=UTC).astimezone(zone)  # 02:30 for the second time
    hour = Period(since=datetime(2026, 10, 25, 0, 40, tzinfo=UTC), until=None, now=now)
    assert hour.length == timedelta(minutes=50)
    assert hour.before is not None
    assert hour.before.since == datetime(2026, 10, 24, 23, 50, tzinfo=UTC)
    assert hour.bars() == ["2026-10-25 02"]


def test_each_hour_has_a_bar_where_the_clock_moves_by_half_of_one():
    now = datetime(2026, 10, 5, tzinfo=ZoneInfo("Australia/Lord_Howe"))
    day = Period(since=moment("2026-10-04", now), until=moment("2026-10-05", now), now=now)
    assert day.bars() == [f"2026-10-04 {hour:02}" for hour in range(24)]


PERIOD = Period(since=datetime(2026, 11, 15, tzinfo=UTC), until=None, now=NOW)
USD = 10**12


def test_a_day_without_requests_is_an_empty_bar():
    groups = {
        ("2026-11-15", "a"): Figures(
            requests=1, cost_picousd=2 * USD, input_tokens=5, output_tokens=2
        ),
        ("2026-11-20", "a"): Figures(requests=2, cost_picousd=USD, output_tokens=1),
        ("2026-11-20", None): Figures(requests=9),
    }
    made = stack("model", "Models", groups, PERIOD, {}).members()
    assert made["bars"] == tuple(f"2026-11-{day}" for day in range(15, 22))
    assert made["names"] == ("a", "(no model)")
    assert made["microusd"] == ((2_000_000, 0, 0, 0, 0, 1_000_000, 0), (0,) * 7)
    assert made["tokens"][0] == (7, 0, 0, 0, 0, 1, 0)
    assert made["requests"][1] == (0, 0, 0, 0, 0, 9, 0)
    assert not made["rest"]


def test_what_is_dated_after_now_has_a_bar_too():
    made = stack("model", "", {("2026-12-24", "a"): Figures(requests=1)}, PERIOD, {})
    assert made.bars[-2:] == ("2026-11-21", "2026-12-24")
    assert made.requests == ((0, 0, 0, 0, 0, 0, 0, 1),)


def test_what_is_left_is_one_grey():
    groups: Groups = {
        ("2026-11-15", f"m{n}"): Figures(cost_picousd=(20 - n) * USD) for n in range(12)
    }
    made = stack("model", "Models", groups, PERIOD, {"m0": "the first"})
    assert made.names == ("the first", *(f"m{n}" for n in range(1, 7)), "other (5)")
    assert made.rest
    assert sum(row[0] for row in made.microusd) == sum(20 - n for n in range(12)) * 10**6


def test_one_that_is_left_keeps_its_name():
    groups: Groups = {("2026-11-15", f"m{n}"): Figures(requests=n + 1) for n in range(8)}
    assert stack("key", "Keys", groups, PERIOD, {}).names[-1] == "m0"


def test_without_a_beginning_the_bars_are_those_that_have_something():
    everything = Period(since=None, until=None, now=NOW)
    groups: Groups = {("2026-10-15", "a"): Figures(), ("2026-08-01", "a"): Figures()}
    assert stack("model", "", groups, everything, {}).bars == ("2026-08", "2026-10")


def test_lines_go_as_they_are():
    lines = Lines(title="t", unit="ms", bars=("2026-11-15",), names=("n",), values=((None,),))
    assert lines.members()["values"] == ((None,),)


def test_a_name_keeps_its_colour_whatever_its_rank_and_no_two_share_one():
    names = ["gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro", "mistral-large", "o3", ""]
    first = dict(zip(names, colours_of(names), strict=True))
    turned = names[::-1]
    assert dict(zip(turned, colours_of(turned), strict=True)) == first
    assert len(set(first.values())) == len(names)
    assert len(colours_of([str(number) for number in range(20)])) == 20


def test_one_point_is_no_line():
    line: dict[str, Any] = {
        "title": "t",
        "unit": "ms",
        "bars": ("a", "b"),
        "names": ("median", "95 of 100"),
    }
    assert not Lines(**line, values=((3, None), (9, None))).is_drawn
    assert Lines(**line, values=((3, None), (9, 8))).is_drawn
