"""Pure. Days that cost far more than the days before them.

A day is unusual if it cost more than three times the median of the last 14 days with spend before
it, and at least a dollar more: anyone can check that with a pencil. Today is never judged, since it
is not over. A ledger that does not go back a week before a day says nothing about it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import median_low

from ledger.model.money import PICOUSD_PER_USD

TIMES = 3
DAYS = 14
HISTORY = timedelta(days=60)
"""How far back days with spend are looked for."""
KNOWN_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusualDay:
    """A day that cost far more than usual."""

    day: date
    cost_picousd: int
    usual_picousd: int
    """The median of the days before."""


def unusual_days(
    cost_picousd: Mapping[date, int], *, first_day: date, judged_from: date, today: date
) -> list[UnusualDay]:
    """The unusual days from `judged_from` up to the day before `today`, the latest first.

    `cost_picousd`: of each day with requests; `first_day`: the first one of the ledger.
    """
    found = []
    spent = sorted(day for day, cost in cost_picousd.items() if cost > 0)
    for place, day in enumerate(spent):
        before = [cost_picousd[earlier] for earlier in spent[max(0, place - DAYS) : place]]
        if not before or not judged_from <= day < today or day - first_day < KNOWN_FOR:
            continue
        cost, usual = cost_picousd[day], median_low(before)
        if cost > TIMES * usual and cost - usual >= PICOUSD_PER_USD:
            found.append(UnusualDay(day=day, cost_picousd=cost, usual_picousd=usual))
    return found[::-1]
