"""Pure. Days whose cost differs from the same weekday of the weeks before, and new names.

Each day that is over is compared with the same weekday of up to 8 weeks before it, of which at
least 4 must lie in the ledger. Its robust z-score is the distance from their median, divided by
1.4826 x their median absolute deviation (Iglewicz and Hoaglin, 1993: beyond 3.5 is an outlier). If
all weeks were equal, any change would be an outlier, so the divisor is at least 5 % of the median.
And a day is reported only if it also differs by a quarter of the median and by 5% of an ordinary
day's total.

All arithmetic is on whole pico-USD.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

WEEKS = 8
WEEKS_MIN = 4
Z_MIN = Decimal("3.5")
UNUSUAL_MAX = 8
"""Lines on the page: the largest deviations first."""
NEW_AFTER = timedelta(days=14)
"""A name is new if the ledger is older than this and never had the name."""

UNUSUAL_METHOD = (
    f"Each finished day is compared with the same weekday of the {WEEKS} weeks before it (at least "
    f"{WEEKS_MIN} of them). It is unusual if its robust z-score (by median and median absolute "
    f"deviation) is at least {Z_MIN} and it differs by a quarter of the median and by 5% of an "
    "ordinary day's total. Only costs are compared, and only what has a price."
)

type Costs = Mapping[tuple[date, str | None], int]
"""(day, name) -> pico-USD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusual:
    """One day with a cost far above or below the usual one."""

    day: date
    word: str
    """total, model or key."""
    name: str | None
    cost_picousd: int
    usual_picousd: int
    z: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """A model or key without a request before the period."""

    word: str
    name: str | None
    since: date
    cost_picousd: int


def unusual_days(
    costs: Mapping[str, Costs], *, first_day: date, judged_from: date, judged_until: date
) -> list[Unusual]:
    """The unusual days from `judged_from` up to, not including, `judged_until`.

    `costs`: by word; `first_day`: the ledger's first day.
    """
    total: dict[date, int] = {}
    for (day, _), cost in next(iter(costs.values()), {}).items():
        total[day] = total.get(day, 0) + cost
    found: list[Unusual] = []
    series: list[tuple[str, str | None, Mapping[date, int]]] = [("total", None, total)]
    for word, table in costs.items():
        names: dict[str | None, dict[date, int]] = {}
        for (day, name), cost in table.items():
            names.setdefault(name, {})[day] = cost
        series += [(word, name, days) for name, days in names.items()]
    day = judged_from
    while day < judged_until:
        # Without an ordinary day of this weekday any request would be unusual.
        ordinary = _median(_earlier(total, day, first_day) or [0])
        for word, name, days in series if ordinary else ():
            earlier = _earlier(days, day, first_day)
            if len(earlier) < WEEKS_MIN:
                continue
            usual = _median(earlier)
            spread = _median([abs(cost - usual) for cost in earlier]) * 14826 // 10000
            cost = days.get(day, 0)
            distance = cost - usual
            if abs(distance) <= max(usual // 4, ordinary // 20) or not distance:
                continue
            z = Decimal(distance) / max(spread, usual // 20, 1)
            if abs(z) >= Z_MIN:
                found.append(
                    Unusual(
                        day=day, word=word, name=name, cost_picousd=cost, usual_picousd=usual, z=z
                    )
                )
        day += timedelta(days=1)
    found.sort(key=lambda each: -abs(each.cost_picousd - each.usual_picousd))
    return found[:UNUSUAL_MAX]


def new_names(costs: Mapping[str, Costs], *, first_day: date, begin: date) -> list[New]:
    """Models and keys whose first request lies in the period, the costliest first."""
    if begin - first_day < NEW_AFTER:
        return []
    found = []
    for word, table in costs.items():
        since: dict[str | None, date] = {}
        spent: dict[str | None, int] = {}
        for (day, name), cost in table.items():
            since[name] = min(day, since.get(name, day))
            spent[name] = spent.get(name, 0) + cost
        found += [
            New(word=word, name=name, since=day, cost_picousd=spent[name])
            for name, day in since.items()
            if day >= begin and name is not None
        ]
    found.sort(key=lambda each: (-each.cost_picousd, each.word, each.name or ""))
    return found[:UNUSUAL_MAX]


def _earlier(days: Mapping[date, int], day: date, first_day: date) -> list[int]:
    """The cost of the same weekday in the weeks before; 0 if nothing was recorded."""
    before = (day - timedelta(weeks=weeks) for weeks in range(1, WEEKS + 1))
    return [days.get(each, 0) for each in before if each >= first_day]


def _median(values: list[int]) -> int:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) // 2
