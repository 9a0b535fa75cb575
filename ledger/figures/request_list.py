"""Database. Single requests of a scope, the latest first, page by page.

A page begins behind the last request of the page before it, so the thousandth costs what the first
does: the query scans backwards from there, by the primary key. What is rare is looked for in longer
and longer spans, for about `LOOK_SECONDS_MAX`; then the page says how far back it looked, and the
next one goes on from there.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.figures.request_filter import NO_FILTER, ErrorKind, Filter
from ledger.figures.sum_query import extent
from ledger.model.errors import WrongCallError
from ledger.model.exchange import COVERED
from ledger.store.schema.sums import COUNT_CONDITIONS
from ledger.store.scope import Scope, conditions, requests
from ledger.store.tables import current_charges
from ledger.text.period import INSTANT

LISTED_MAX = 200
"""Requests of one page: more than a person reads, and few enough for one lookup each."""
LOOK_SECONDS_MAX = 0.5
"""No further span is begun after this long; a span that took a tenth of it is followed by one of
`LONGER` times its length."""
SPAN = timedelta(hours=6)
LONGER = 8
NEVER = datetime.min.replace(tzinfo=UTC)
KIND_CONDITIONS = {**COUNT_CONDITIONS, "degraded": "e.degraded IS NOT NULL"}
"""Name of a kind -> its requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeLine:
    """Quantity x unit price = amount."""

    line: str
    model: str | None
    quantity: int
    unit_picousd: int | None
    amount_picousd: int | None
    source: str
    """The source of the price, or the reason why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRequest:
    """One line of a list of requests."""

    opened_at: datetime
    """In the zone of the scope."""
    id: str
    provider: str
    model: str | None
    outcome: str | None
    http_status: int | None
    error_type: str | None
    degraded: str | None
    finish_reason: str | None
    usage_source: str | None
    input_tokens: int | None
    cache_read_tokens: int | None
    output_tokens: int | None
    estimated_input_tokens: int | None
    estimated_output_tokens: int | None
    cost_picousd: int | None
    cost_state: str | None
    billing: str
    list_value_picousd: int | None
    estimated_cost_picousd: int | None
    first_token_ms: int | None
    duration_ms: int | None
    key_fingerprint: str | None
    key_hint: str | None
    session_id: str | None
    charges: tuple[ChargeLine, ...] = ()

    @property
    def is_covered(self) -> bool:
        """Whether nothing of it is billed by tokens."""
        return self.billing in COVERED

    @property
    def has_no_usage(self) -> bool:
        """Whether it was answered, and nobody said with how many tokens."""
        return self.outcome == "complete" and self.usage_source == "none"

    @property
    def place(self) -> str:
        """Where the next page begins, if this request is the last one of a page."""
        return f"{self.opened_at.astimezone(UTC).isoformat()},{self.id}"


LISTED_COLUMNS = tuple(each.name for each in fields(ListedRequest) if each.name != "charges")
"""Of the view `requests`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Requests, the latest first."""

    requests: tuple[ListedRequest, ...]
    older: str | None
    """Where the next page begins, as `Filter.before`; None: there are no older ones."""
    looked_to: datetime | None = None
    """If the page is not full and the period is not over: older ones were not looked at."""


def latest(connection: Connection, scope: Scope, chosen: Filter = NO_FILTER, *, limit: int) -> Page:
    """The latest requests of a scope. WrongCallError for a place that is none."""
    assert 0 < limit <= LISTED_MAX
    e = requests.alias("e")
    where = [*conditions(scope, connection.dialect.name, e), *_narrowed(chosen, e)]
    query = sa.select(*(e.c[name] for name in LISTED_COLUMNS), e.c.reading_id).where(*where)
    query = query.order_by(e.c.opened_at.desc(), e.c.id.desc())
    if chosen.before is not None:
        behind = _place_of(chosen.before)[0] + INSTANT
        scope = replace(scope, until=min(behind, scope.until or behind))
    first, last = extent(connection, scope)
    begin, until = first or NEVER, last + INSTANT if last else NEVER
    rows: list[Any] = []
    length, started = SPAN, time.monotonic()
    while begin < until and len(rows) < limit and time.monotonic() - started < LOOK_SECONDS_MAX:
        asked = time.monotonic()
        since = max(begin, until - length)
        part = query.where(e.c.opened_at >= since, e.c.opened_at < until)
        rows += connection.execute(part.limit(limit - len(rows)))
        until = since
        if time.monotonic() - asked < LOOK_SECONDS_MAX / 10:
            length *= LONGER
    lines = _lines_of(connection, rows)
    found = tuple(
        ListedRequest(
            **dict(zip(LISTED_COLUMNS, row, strict=False))
            | {"opened_at": row.opened_at.astimezone(scope.zone or UTC)},
            charges=tuple(lines[row.id, row.reading_id]),
        )
        for row in rows
    )
    if len(found) == limit:
        return Page(requests=found, older=found[-1].place)
    if until <= begin:
        return Page(requests=found, older=None)
    looked_to = until.astimezone(scope.zone or UTC)
    return Page(requests=found, older=f"{until.isoformat()},", looked_to=looked_to)


def error_kinds(connection: Connection, scope: Scope) -> list[ErrorKind]:
    """How the requests of a scope that ended in an error did so, the most frequent first."""
    e = requests.alias("e")
    by, count = (e.c.http_status, e.c.error_type), sa.func.count()
    rows = connection.execute(
        sa.select(*by, count.label("requests"))
        .where(*conditions(scope, connection.dialect.name, e))
        .where(*_narrowed(Filter(kinds=("errors",)), e))
        .group_by(*by)
        .order_by(count.desc(), *by)
        .limit(LISTED_MAX)
    )
    return [ErrorKind(**row._mapping) for row in rows]


def _narrowed(chosen: Filter, e: sa.FromClause) -> Iterator[sa.ColumnElement[bool]]:
    for kind in chosen.kinds:
        yield sa.literal_column(f"({KIND_CONDITIONS[kind]})", sa.Boolean)
    if chosen.cost_min_picousd is not None:
        cost = sa.func.coalesce(
            e.c.cost_picousd, e.c.list_value_picousd, e.c.estimated_cost_picousd
        )
        yield cost >= chosen.cost_min_picousd
    if chosen.duration_min_ms is not None:
        yield e.c.duration_ms >= chosen.duration_min_ms
    if chosen.before is not None:
        at, name = _place_of(chosen.before)
        yield e.c.opened_at <= at
        yield sa.or_(e.c.opened_at < at, e.c.id < name)


def _place_of(text: str) -> tuple[datetime, str]:
    at, _, name = text.partition(",")
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise WrongCallError(
            f"not a place in the list of requests: {text[:60]!r}; --before takes what the page "
            "before printed"
        )
    return moment, name


def _lines_of(
    connection: Connection, rows: Sequence[Any]
) -> dict[tuple[str, str], list[ChargeLine]]:
    """The current charges of some requests, by exchange and reading."""
    found: dict[tuple[str, str], list[ChargeLine]] = defaultdict(list)
    keys = [(row.opened_at, row.id) for row in rows if row.reading_id is not None]
    if not keys:
        return found
    c = current_charges.c
    query = (
        sa.select(current_charges)
        .where(
            # One condition per key: SQLite does not use the index for a list of pairs.
            sa.or_(*((c.opened_at == at) & (c.exchange_id == name) for at, name in keys))
        )
        .order_by(c.exchange_id, c.reading_id, c.ordinal)
    )
    for row in connection.execute(query):
        found[row.exchange_id, row.reading_id].append(
            ChargeLine(
                line=row.line,
                model=row.model,
                quantity=row.quantity,
                unit_picousd=row.unit_picousd,
                amount_picousd=row.amount_picousd,
                source=row.price_source if row.unit_picousd is not None else row.reason or "",
            )
        )
    return found
