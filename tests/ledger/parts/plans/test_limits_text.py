"""The one line of limits: what is nearest to its end comes first."""

import itertools
from datetime import UTC, datetime, timedelta

from ledger.parts.plans.limits import Limit
from ledger.parts.plans.limits_text import lines, one_line
from tests.named import for_each

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


def limit(window, used_ppm, *, kind="plan", resets=None, full=None, shares=None):
    return Limit(
        provider="anthropic",
        holder="a",
        key="f" * 20,
        key_hint="1a2b",
        window=window,
        window_minutes=None,
        kind=kind,
        used_ppm=used_ppm,
        limit=None,
        remaining=None,
        resets_at=None if resets is None else NOW + timedelta(hours=resets),
        status="allowed",
        observed_at=NOW,
        full_at=None if full is None else NOW + timedelta(hours=full),
        shares_ppm=shares or {},
    )


LIMITS = [
    limit("7d", 810_000, resets=90, full=9),
    limit("5h", 420_000, resets=2),
    limit("30d", 35_000),
    limit("1h", 30_000),
    limit("tokens", 990_000, kind="rate"),
    limit("day", None),
]


@for_each("order", [*itertools.permutations(range(4))])
def test_the_three_fullest_plan_windows_the_fullest_first(order):
    stated = [*(LIMITS[at] for at in order), *LIMITS[4:]]
    assert (
        one_line(stated, NOW)
        == "7d 81% (full in 9 h 00 min) · 5h 42% (resets in 2 h 00 min) · 30d 3.5%"
    )


def test_no_plan_is_known():
    assert one_line(LIMITS[4:], NOW) == "no limits known"
    (text,) = lines([], NOW, 80)
    assert text == (
        "no answer of the last 1 h 00 min stated a limit, and none of the last 31 d 0 h stated that of "
        "a plan"
    )


@for_each("count, ending", [(3, "s2 "), (4, "1 more")])
def test_the_sessions_that_used_most_are_named(count, ending):
    shares = {f"s{number}": 90_000 - number for number in range(count)}
    (row,) = lines([limit("5h", 420_000, shares=shares)], NOW, 200)[2:]
    assert "s0 9%, s1 9" in row
    assert ending in row
    assert ("more" in row) is (count > 3)


def test_a_key_is_spelled_as_in_reports():
    assert any("…1a2b (ffffff)" in line for line in lines(LIMITS, NOW, 200))
