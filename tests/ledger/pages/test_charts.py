"""Charts: bars for every day, the costliest names, the rest as one."""

from datetime import UTC, datetime
from typing import Any

from ledger.figures.figures import Figures
from ledger.pages.charts import Lines, colours_of, stack
from ledger.pages.period import Period
from ledger.pages.period_sums import Groups

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
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
