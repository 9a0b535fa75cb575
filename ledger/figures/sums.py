"""Database. The sums of a period's requests, by any dimension of a report.

    daily_by       days that are over, by one dimension alone: the fewest rows, for years
    daily          the same by provider, model and key: few rows, for years
    hourly_usage   the same by hour and everything else: some rows per session, for months
    requests       spans without stored sums

One statement reads all parts of a period and adds them up. The choice of tables changes how long a
query takes, never its result.

Days that are over have stored sums, except those written to since (`stale_days`). Stale days, days
that are not over and the cut ends of a period are added up from requests. The spans of an answer
are adjacent and cover the period once, so their sum is exact.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from ledger.settings.names import WORDS
from ledger.store import db
from ledger.store.adding_up import added_up, charged_requests, halves, is_overflow, joined
from ledger.store.keys import midnight
from ledger.store.schema.columns import Instant
from ledger.store.schema.sums import (
    COUNTS,
    DAILY_DIMENSIONS,
    DIMENSIONS,
    EVERYTHING,
    TIMES,
)
from ledger.store.scope import COLUMNS, FACT_COLUMNS, NONE, Scope, has_whole_hours, limits, within
from ledger.store.scope import TIMES as TIMES_OF_DAY
from ledger.store.tables import daily, daily_by, exchanges, hourly_usage, stale_days
from ledger.text.period import DAY, HOUR

STALE_SPANS_MAX = 20
"""Each is a subquery of one statement. With more, the closest ones are merged into one span, with
the days between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of time. None: unbounded on that side."""

    since: datetime | None
    until: datetime | None
    has_sums: bool


def spans(
    connection: Connection, since: datetime | None, until: datetime | None, *, step: timedelta
) -> list[Span]:
    """The spans of a period, in order. `step`: the sums are per hour or per day."""
    whole = [Span(since=since, until=until, has_sums=False)]
    kept = db.noted(connection, "rolled_until")
    if kept is None:
        return whole
    rolled = datetime.fromisoformat(kept).astimezone(UTC)
    first = None if since is None else _up(since, step)
    last = rolled if until is None else min(rolled, _down(until, step))
    if first is not None and first >= last:
        return whole
    found: list[Span] = []

    def add(start: datetime | None, end: datetime | None, *, has_sums: bool) -> None:
        if start is not None and end is not None and start >= end:
            return
        if found and not has_sums and not found[-1].has_sums:
            start = found.pop().since
        found.append(Span(since=start, until=end, has_sums=has_sums))

    if since is not None and first is not None:
        add(since, first, has_sums=False)
    at = first
    for begin, end in _stale(connection, first, last):
        add(at, begin, has_sums=True)
        add(begin, end, has_sums=False)
        at = end
    add(at, last, has_sums=True)
    add(last, until, has_sums=False)
    return found


def stale_count(connection: Connection) -> int:
    """Days that are over and have no stored sums."""
    return connection.execute(sa.select(sa.func.count()).select_from(stale_days)).scalar_one()


def extent(connection: Connection, scope: Scope) -> tuple[datetime | None, datetime | None]:
    """The first and the last exchange of the period: two lookups at the ends of the primary key."""
    at = exchanges.c.opened_at
    found: list[datetime | None] = [
        connection.scalar(sa.select(at).where(*within(scope, at)).order_by(order).limit(1))
        for order in (at, at.desc())
    ]
    return found[0], found[1]


def _stale(
    connection: Connection, first: datetime | None, last: datetime
) -> list[tuple[datetime, datetime]]:
    """The spans of stale days within the bounds of the sums, consecutive days as one. At most
    `STALE_SPANS_MAX` spans: the closest ones are merged."""
    where = [stale_days.c.day < _up(last, DAY).date()]
    if first is not None:
        where.append(stale_days.c.day >= first.date())
    days = connection.scalars(
        sa.select(stale_days.c.day).where(*where).order_by(stale_days.c.day)
    ).all()
    by_gap = sorted(range(1, len(days)), key=lambda at: days[at] - days[at - 1])
    begins = {0, *(at for at in by_gap[1 - STALE_SPANS_MAX :] if days[at] - days[at - 1] > DAY)}
    found: list[tuple[datetime, datetime]] = []
    for at, day in enumerate(days):
        begin = midnight(day) if at in begins else found.pop()[0]
        found.append((begin, midnight(day + DAY)))
    return [(begin if first is None else max(begin, first), min(end, last)) for begin, end in found]


def _down(moment: datetime, step: timedelta) -> datetime:
    """The hour or day that a moment lies in."""
    moment = moment.astimezone(UTC)
    hour = 0 if step == DAY else moment.hour
    return moment.replace(hour=hour, minute=0, second=0, microsecond=0)


def _up(moment: datetime, step: timedelta) -> datetime:
    begin = _down(moment, step)
    return begin if begin == moment else begin + step


DAILY_WORDS = frozenset(("provider", "model", "key", "day", "week", "month"))
"""The dimensions of `daily`."""
DAYS_WORDS = frozenset(("day", "week", "month"))
FINGERPRINT = re.compile("[0-9a-f]{32}")

type By = Callable[[sa.FromClause], list[sa.ColumnElement[Any]]]
"""The columns to group by, from any table with the columns of `requests`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A query for sums."""

    by: By
    words: frozenset[str]
    """The dimensions of reports that `by` needs."""
    figures: tuple[str, ...]
    """Of `schema.sums.FIGURES`."""
    scope: Scope
    is_exact: bool = False
    """Add up requests, and ignore stored sums."""


def grouped(connection: Connection, wanted: Wanted) -> Sequence[Row[Any]]:
    """A row for each group: the columns of `by` as by_0, by_1 …, then the figures."""
    dialect = connection.dialect.name

    def question(parts: sa.Subquery, *, is_split: bool) -> sa.Select[Any]:
        by = [column for column in parts.c if column.name.startswith("by_")]
        return sa.select(
            *by, *figures_of(parts, wanted.figures, dialect, is_split=is_split)
        ).group_by(*by)

    return asked(connection, wanted, question)


def asked(
    connection: Connection, wanted: Wanted, question: Callable[..., sa.Select[Any] | Any]
) -> Sequence[Row[Any]]:
    """The rows of a query over the parts of a period.

    SQLite refuses a sum beyond 64 bits; then the query runs again with two columns per sum.
    """
    dialect = connection.dialect.name
    covered = _covered(connection, wanted)
    try:
        parts = _parts(wanted, covered, dialect, is_split=False)
        return connection.execute(question(parts, is_split=False)).all()
    except sa.exc.DBAPIError as error:
        if not is_overflow(error):
            raise
    parts = _parts(wanted, covered, dialect, is_split=True)
    return connection.execute(question(parts, is_split=True)).all()


def figures_of(
    parts: sa.FromClause, names: Sequence[str], dialect: str, *, is_split: bool
) -> list[sa.ColumnElement[Any]]:
    """The figures of several parts, added up."""
    found: list[sa.ColumnElement[Any]] = []
    for name in names:
        if name in TIMES:
            found.append(joined(parts.c[name], dialect).label(name))
        elif is_split and name not in COUNTS:
            found += [
                sa.func.sum(parts.c[each]).label(each) for each in (f"{name}_high", f"{name}_low")
            ]
        else:
            added = sa.func.sum(parts.c[name])
            found.append((sa.func.coalesce(added, 0) if name in COUNTS else added).label(name))
    return found


def is_split(row: Row[Any]) -> bool:
    """Whether the sums of a row have two columns each."""
    return any(name.endswith("_high") for name in row._fields)


def only_dimension(wanted: Wanted) -> str | None:
    """The dimension, or `EVERYTHING`, of the sums by one dimension; None: the query needs other
    sums."""
    words, facts = _asked_for(wanted)
    columns = {
        "tags" if word.startswith("tag:") else COLUMNS.get(word) for word in words - DAYS_WORDS
    }
    columns |= {FACT_COLUMNS[fact] for fact in facts}
    # No sums by one dimension hold the last characters of a key: it may have been seen with and
    # without them.
    if len(columns) > 1 or columns & {None, "key_hint"} or not _is_of_days(wanted):
        return None
    return columns.pop() if columns else EVERYTHING


def _asked_for(wanted: Wanted) -> tuple[set[str], frozenset[str]]:
    """The words of a query that the names file does not define, and the facts that decide the
    others."""
    words = {*wanted.words, *wanted.scope.wanted()}
    names = words & {*WORDS}
    return words - names, wanted.scope.names.facts_of(tuple(names))


def _is_of_zone(wanted: Wanted) -> bool:
    """Whether the query asks for times of another zone than UTC."""
    return wanted.scope.zone is not None and bool(_asked_for(wanted)[0] & {*TIMES_OF_DAY})


def _is_of_days(wanted: Wanted) -> bool:
    """Whether the query asks for whole days of UTC and whole keys."""
    scope = wanted.scope
    return (
        not _is_of_zone(wanted)
        and all(
            value == NONE or FINGERPRINT.fullmatch(value) for value in scope.wanted().get("key", ())
        )
        and all(
            moment is None or moment.astimezone(UTC).time() == time()
            for moment in (scope.since, scope.until)
        )
    )


def _covered(connection: Connection, wanted: Wanted) -> list[Span]:
    """Sums are stored of some dimensions, whose hours are of UTC."""
    scope = wanted.scope
    of_sums = {COLUMNS.get(word) for word in _asked_for(wanted)[0]} <= {*DIMENSIONS, None}
    if _is_of_zone(wanted) and not has_whole_hours(scope.zone):
        of_sums = False
    if wanted.is_exact or not of_sums:
        return [Span(since=scope.since, until=scope.until, has_sums=False)]
    step = HOUR if table_of(wanted) is hourly_usage else DAY
    return spans(connection, scope.since, scope.until, step=step)


def table_of(wanted: Wanted) -> sa.Table:
    """The smallest table of sums that can answer the query."""
    if only_dimension(wanted) is not None:
        return daily_by
    words, facts = _asked_for(wanted)
    is_daily = words <= DAILY_WORDS and facts <= {"key"} and _is_of_days(wanted)
    return daily if is_daily else hourly_usage


def _parts(wanted: Wanted, covered: Sequence[Span], dialect: str, *, is_split: bool) -> sa.Subquery:
    table = table_of(wanted)
    return sa.union_all(
        *(
            _kept(wanted, table, span, dialect, is_split=is_split)
            if span.has_sums
            else _from_requests(wanted, span, dialect, is_split=is_split)
            for span in covered
        )
    ).subquery("parts")


def _kept(
    wanted: Wanted, table: sa.Table, span: Span, dialect: str, *, is_split: bool
) -> sa.Select[Any]:
    """Rows of the stored sums."""
    is_hourly = table is hourly_usage
    at = table.c.hour if is_hourly else table.c.day
    period: list[sa.ColumnElement[bool]] = []
    if span.since is not None:
        period.append(at >= (span.since if is_hourly else span.since.date()))
    if span.until is not None:
        period.append(at < (span.until if is_hourly else span.until.date()))
    only = only_dimension(wanted)
    if only is not None:
        period.append(table.c.dimension == only)
    rows = (
        sa.select(
            (at if is_hourly else _begin_of(at, dialect)).label("opened_at"),
            *_dimensions(table, only),
            *(table.c[name] for name in wanted.figures),
        )
        .where(*period)
        .subquery("kept")
    )
    figures: list[sa.ColumnElement[Any]] = []
    for name in wanted.figures:
        value = rows.c[name]
        if is_split and name not in COUNTS and name not in TIMES:
            figures += [part.label(half) for half, part in halves(value, name)]
        else:
            figures.append(value)
    return sa.select(*_labelled(wanted, rows), *figures).where(*limits(wanted.scope, dialect, rows))


def _dimensions(table: sa.Table, only: str | None) -> list[sa.ColumnElement[Any]]:
    """The dimensions of a table of sums."""
    if only is None:
        names = DIMENSIONS if table is hourly_usage else (*DAILY_DIMENSIONS, "key_hint")
        return [table.c[name] for name in names]
    if only == EVERYTHING:
        return []
    value = sa.cast(table.c.value, hourly_usage.c[only].type)
    return [value.label(only), table.c.key_hint]


def _from_requests(wanted: Wanted, span: Span, dialect: str, *, is_split: bool) -> sa.Select[Any]:
    """Sums of requests, by group."""
    scope = replace(wanted.scope, since=span.since, until=span.until)
    e = charged_requests(scope, dialect)
    by = _labelled(wanted, e)
    if dialect == "sqlite":
        # In a form that no index matches. Otherwise SQLite would read the whole ledger in the order
        # of an index on keys, instead of sorting the groups of a period.
        plus: Any = sa.sql.operators.custom_op("+")
        by = [sa.UnaryExpression(c.element, operator=plus, type_=c.type).label(c.name) for c in by]
    figures = added_up(wanted.figures, dialect, is_split=is_split)
    return sa.select(*by, *figures).select_from(e).group_by(*(column.element for column in by))


def _labelled(wanted: Wanted, of: sa.FromClause) -> list[sa.Label[Any]]:
    return [column.label(f"by_{place}") for place, column in enumerate(wanted.by(of))]


def _begin_of(day: sa.ColumnElement[Any], dialect: str) -> sa.ColumnElement[Any]:
    """The moment at which a day begins."""
    if dialect == "postgresql":
        return sa.func.timezone("UTC", sa.cast(day, sa.DateTime), type_=Instant())
    return sa.type_coerce(
        sa.cast(day, sa.Text).op("||")(sa.literal_column("' 00:00:00.000000Z'")), Instant()
    )
