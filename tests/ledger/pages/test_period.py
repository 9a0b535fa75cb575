"""Periods: their bars, the period before, and what a person reads."""

from datetime import UTC, datetime, timedelta

import pytest

from ledger.pages.period import Period, bar_name, last_days
from ledger.text.period import moment

NOW = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)
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


def test_a_beginning_can_be_filled_in():
    assert period(None).starting(MIDNIGHT).since == MIDNIGHT
    assert period(MIDNIGHT).starting(NOW).since == MIDNIGHT


@pytest.mark.parametrize(
    ("since", "until", "text"),
    [
        (None, None, "everything up to 21 Nov 2026"),
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
