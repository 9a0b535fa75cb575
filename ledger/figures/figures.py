"""Pure. The figures of a set of requests, the report made from them, and histograms of times."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import accumulate
from operator import attrgetter
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

type Key = tuple[str | None, ...]
"""The values that the requests of one row share; None for a missing value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a set of requests. None: not reported by any of them."""

    requests: int = 0
    refused: int = 0
    """By a cap; in no other figure."""
    errors: int = 0
    without_usage: int = 0
    """Neither reported nor estimated; of an error none is expected."""
    complete_without_usage: int = 0
    """Of these, completed: the provider probably bills them, and no total here includes them."""
    estimated: int = 0
    """Requests whose tokens are our estimate; estimates are kept apart from reported tokens."""
    input_tokens: int | None = None
    uncached_input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    extra_input_tokens: int | None = None
    """Of further iterations, billed in addition to the figures above."""
    extra_output_tokens: int | None = None
    estimated_input_tokens: int | None = None
    estimated_output_tokens: int | None = None
    cacheable_input_tokens: int | None = None
    """Input of the requests that reported cache reads: the base of the hit rate."""
    cost_picousd: int | None = None
    """Of reported usage; no total includes an estimate."""
    estimated_cost_picousd: int | None = None
    """Of estimated tokens; never part of `cost_picousd`."""
    list_value_picousd: int | None = None
    """What the reported tokens cost at list prices, whoever pays them; never added to a cost."""
    covered_value_picousd: int | None = None
    """Of this, what plans cover and what is free."""
    saved_picousd: int | None = None
    """The additional cost of the cached tokens if they had been uncached input."""
    reported_cost_picousd: int | None = None
    """The costs that providers report, if they report them."""
    difference_picousd: int | None = None
    """Our cost less the provider's, over the requests that have both."""
    priced: int = 0
    """Requests by cost state. None of the four includes requests with estimated usage."""
    partial: int = 0
    unpriced: int = 0
    reported: int = 0
    """Requests whose cost is the provider's figure alone."""
    covered: int = 0
    """Requests that a plan covers, or that are free: they have no cost, and none of the states."""
    unlisted: int = 0
    """Of these, without a list value, or with one that is a lower bound."""
    generation_ms: int | None = None
    generated_tokens: int | None = None
    """Output of the requests whose generation time is known: the base of the speed."""

    def __add__(self, other: "Figures") -> "Figures":
        sums: dict[str, Any] = {
            each.name: plus(getattr(self, each.name), getattr(other, each.name))
            for each in fields(Figures)
        }
        return Figures(**sums)

    @property
    def without_price(self) -> int:
        """Requests of which a line, or every line, has no price: the cost is a lower bound."""
        return self.unpriced + self.partial

    @property
    def cost_state(self) -> str | None:
        """priced, reported, partial or unpriced; None if there is nothing to price."""
        known = self.priced + self.reported
        if self.partial or (known and self.unpriced):
            return "partial"
        if self.unpriced:
            return "unpriced"
        if known:
            return "priced" if self.priced else "reported"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Nearest-rank percentiles in milliseconds; None: no request has the time."""

    first_token_ms_p50: int | None = None
    first_token_ms_p95: int | None = None
    duration_ms_p50: int | None = None
    duration_ms_p95: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One line of a report."""

    key: Key
    figures: Figures
    times: Times = field(default_factory=Times)
    merged: int = 0
    """Number of groups in this line: the rest after the top ones."""
    hint: str | None = None
    """The last characters of the API key, if the rows are by key."""
    name: str | None = None
    """The name of the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The rows of a report, and their total."""

    by: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    rows: tuple[ReportRow, ...]
    total: ReportRow
    open_requests: int
    """In flight, or of a dead process that is not yet detected: in no figure."""
    now: datetime
    """The time of the query."""
    first: datetime | None = None
    """The first and the last request of the ledger within the period."""
    last: datetime | None = None
    only: tuple[tuple[str, str], ...] = ()
    """As in the scope."""
    zone: ZoneInfo | None = None
    """Of the days; None: UTC."""
    other_models: Mapping[tuple[str, str], int] = MappingProxyType({})
    """Of a report by requested model and model: (asked for, answered) -> requests that another
    model answered."""
    differing: int = 0
    """Requests whose provider's own figure differs from the list value."""
    stale_days: int = 0
    """Days that are over and have no stored sums, so their requests were added up."""


_FIELDS = fields(Figures)
_VALUES_OF = attrgetter(*(each.name for each in _FIELDS))


def total_of(figures: Iterable[Figures]) -> Figures:
    """The sum of some figures."""
    columns: dict[str, Any] = {}
    # Summed by columns: a grouping by session has tens of thousands of rows.
    for each, values in zip(_FIELDS, zip(*map(_VALUES_OF, figures), strict=True), strict=False):
        known = [value for value in values if value is not None]
        columns[each.name] = sum(known) if known else each.default
    return Figures(**columns)


def plus(left: int | None, right: int | None) -> int | None:
    """The sum of the known values; None if none is known."""
    if left is None or right is None:
        return right if left is None else left
    return left + right


def order(by: tuple[str, ...], times: Iterable[str]) -> Callable[[ReportRow], tuple[Any, ...]]:
    """A report whose first dimension is a time is ordered by it; any other begins with the highest
    cost."""

    def name(row: ReportRow) -> tuple[str, ...]:
        return tuple(part or "" for part in row.key)

    if by and by[0] in times:
        return name
    return lambda row: (*by_cost(row.figures), name(row))


def top_of(rows: list[ReportRow], top: int | None) -> list[ReportRow]:
    """The rows that cost most, in their order, and the rest as one row, so that the rows still sum
    to the total."""
    if top is None or len(rows) <= top:
        return rows
    ranked = sorted(range(len(rows)), key=lambda place: (*by_cost(rows[place].figures), place))
    kept, rest = sorted(ranked[:top]), [rows[place] for place in ranked[top:]]
    return [
        *(rows[place] for place in kept),
        ReportRow(
            key=(None,) * len(rest[0].key),
            figures=total_of(row.figures for row in rest),
            merged=len(rest),
        ),
    ]


def by_cost(figures: Figures) -> tuple[int, int]:
    """A key to sort by: the highest cost first, then the most requests."""
    return -(figures.cost_picousd or 0), -figures.requests


type Percentiles = tuple[int | None, int | None]
"""p50 and p95 by nearest rank: of n values in order, those at the places ceil(n x p)."""


def percentiles(counts: Mapping[int, int]) -> Percentiles:
    """p50 and p95 of a histogram."""
    if not counts:
        return None, None
    values = sorted(counts)
    passed = list(accumulate(map(counts.__getitem__, values)))
    middle, high = (
        values[bisect_left(passed, -(-passed[-1] * percent // 100))] for percent in (50, 95)
    )
    return middle, high
