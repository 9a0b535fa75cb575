"""Pure. What a set of requests adds up to, and the report that is made of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import Any

type Key = tuple[str | None, ...]
"""What the requests of one row have in common; None where they name nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a set of requests adds up to. None: nothing of the kind was reported."""

    requests: int = 0
    errors: int = 0
    without_usage: int = 0
    """Neither reported nor estimated, errors included."""
    complete_without_usage: int = 0
    """Of these, answered to the end: billed by somebody, and in no total here."""
    estimated: int = 0
    """Requests whose tokens are our estimate; those stand beside the reported ones."""
    input_tokens: int | None = None
    uncached_input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    extra_input_tokens: int | None = None
    """Of further iterations, billed beside the figures above."""
    extra_output_tokens: int | None = None
    estimated_input_tokens: int | None = None
    estimated_output_tokens: int | None = None
    cacheable_input_tokens: int | None = None
    """Input of the requests for which cache reads were reported: what the hit rate is of."""
    cost_picousd: int | None = None
    """Of reported usage; an estimate is in no total."""
    estimated_cost_picousd: int | None = None
    """Of estimated tokens; beside `cost_picousd`, never inside."""
    saved_picousd: int | None = None
    """What the cached tokens would have cost more, had they been uncached input."""
    reported_cost_picousd: int | None = None
    """What providers say they charge, where they say it."""
    difference_picousd: int | None = None
    """Our cost less the provider's, over the requests that have both."""
    priced: int = 0
    """Requests by cost state. Those with estimated usage are in none of the four."""
    partial: int = 0
    unpriced: int = 0
    reported: int = 0
    """Requests whose cost is the provider's figure alone."""
    generation_ms: int | None = None
    generated_tokens: int | None = None
    """Output of the requests whose generation time is known: what the speed is of."""

    def __add__(self, other: "Figures") -> "Figures":
        sums: dict[str, Any] = {
            each.name: plus(getattr(self, each.name), getattr(other, each.name))
            for each in fields(Figures)
        }
        return Figures(**sums)

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
class Row:
    """One line of a report."""

    key: Key
    figures: Figures
    times: Times = field(default_factory=Times)
    merged: int = 0
    """So many groups in one line: the rest behind the top ones."""
    hint: str | None = None
    """The last characters of the API key, where the rows are by key."""
    name: str | None = None
    """What the key is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Rows by their figures, and what they add up to."""

    by: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    rows: tuple[Row, ...]
    total: Row
    open_requests: int
    """In flight, or of a process that died and was not yet found dead: in no figure."""
    now: datetime
    """When it was asked."""
    first: datetime | None = None
    """The first and the last request of the ledger within the period."""
    last: datetime | None = None
    only: tuple[tuple[str, str], ...] = ()
    """As in the scope."""
    stale_days: int = 0
    """Days of the ledger that are over and have no sums, so that their requests were added up."""


_FIELDS = fields(Figures)
_VALUES = attrgetter(*(each.name for each in _FIELDS))


def total_of(figures: Iterable[Figures]) -> Figures:
    """What some figures add up to."""
    columns: dict[str, Any] = {}
    # By columns: a group of sessions has tens of thousands.
    for each, values in zip(_FIELDS, zip(*map(_VALUES, figures), strict=True), strict=False):
        known = [value for value in values if value is not None]
        columns[each.name] = sum(known) if known else each.default
    return Figures(**columns)


def plus(left: int | None, right: int | None) -> int | None:
    """The sum of what is known."""
    if left is None or right is None:
        return right if left is None else left
    return left + right


def order(by: tuple[str, ...], times: Iterable[str]) -> Callable[[Row], tuple[Any, ...]]:
    """A report that begins with a time runs along it; any other begins with what costs most."""

    def name(row: Row) -> tuple[str, ...]:
        return tuple(part or "" for part in row.key)

    if by and by[0] in times:
        return name
    return lambda row: (-(row.figures.cost_picousd or 0), -row.figures.requests, name(row))


def top_of(rows: list[Row], top: int | None) -> list[Row]:
    """The first rows, and the rest as one row, so that they still add up to the total."""
    if top is None or len(rows) <= top:
        return rows
    rest = rows[top:]
    return [
        *rows[:top],
        Row(
            key=(None,) * len(rest[0].key),
            figures=total_of(row.figures for row in rest),
            merged=len(rest),
        ),
    ]
