"""Database. The sums of a period's requests, by any dimension of a report.

Days that are over have stored sums, except those written to since (`stale_days`). Stale days, days
that are not over and the cut ends of a period are added up from requests. One statement reads the
adjacent spans of a period and adds them up, so their sum is exact. Stored sums change how long a
query takes, never its result.
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
from ledger.store.adding_up import added_up, charged_requests, joined, rows_of
from ledger.store.keys import midnight
from ledger.store.schema.dimensions import COLUMN_OF, SUMMED, TIME_CHARACTERS
from ledger.store.schema.sums import BY_DAY, BY_HOUR, COUNT_TERMS, HISTOGRAMS
from ledger.store.scope import FACT_COLUMNS, NO_VALUE, Scope, conditions, has_whole_hours, within
from ledger.store.tables import exchanges, stale_days, sums
from ledger.text.period import DAY, HOUR

STALE_SPANS_MAX = 20
"""Each is a subquery of one statement. With more, the closest ones are merged into one span, with
the days between them."""
FINGERPRINT = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SumSpan:
    """A span of time. None: unbounded on that side."""

    since: datetime | None
    until: datetime | None
    has_sums: bool


def spans(
    connection: Connection, since: datetime | None, until: datetime | None, *, step: timedelta
) -> list[SumSpan]:
    """The spans of a period, in order. `step`: the sums are per hour or per day."""
    whole = [SumSpan(since=since, until=until, has_sums=False)]
    rolled_until = db.noted(connection, "rolled_until")
    if rolled_until is None:
        return whole
    first = None if since is None else _up(since, step)
    last = datetime.fromisoformat(rolled_until).astimezone(UTC)
    if until is not None:
        last = min(last, _down(until, step))
    if first is not None and first >= last:
        return whole
    found: list[SumSpan] = []
    at = since
    for begin, end in ((since, first), *_stale(connection, first, last), (last, until)):
        if at != begin:
            found.append(SumSpan(since=at, until=begin, has_sums=True))
        if begin != end:
            is_adjacent = bool(found) and not found[-1].has_sums
            start = found.pop().since if is_adjacent else begin
            found.append(SumSpan(since=start, until=end, has_sums=False))
        at = end
    return found


def stale_count(connection: Connection) -> int:
    """Days that are over and have no stored sums."""
    return connection.execute(sa.select(sa.func.count()).select_from(stale_days)).scalar_one()


def extent(connection: Connection, scope: Scope) -> tuple[datetime | None, datetime | None]:
    """The first and the last exchange of the period: two lookups at the ends of the primary key."""
    at = exchanges.c.opened_at
    first, last = (
        connection.scalar(sa.select(at).where(*within(scope, at)).order_by(order).limit(1))
        for order in (at, at.desc())
    )
    return first, last


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SumQuery:
    """A query for sums."""

    by: Callable[[sa.FromClause], list[sa.ColumnElement[Any]]]
    """The columns to group by, from any table with the columns of `requests`."""
    words: Sequence[str]
    """The dimensions of reports that `by` needs."""
    figures: Sequence[str]
    """Of `schema.sums.FIGURES`."""
    scope: Scope
    is_exact: bool = False
    """Add up requests, and ignore stored sums."""

    def grouping(self) -> str | None:
        """The smallest grouping of table `sums` that can answer; None: the requests alone can."""
        scope = self.scope
        conditions_on = scope.wanted()
        words = {*self.words, *conditions_on}
        of_names = tuple(words & {*WORDS})
        times = words & {*TIME_CHARACTERS}
        columns = {FACT_COLUMNS[fact] for fact in scope.names.facts_of(of_names)}
        for word in words - times - {*of_names}:
            columns.add("tags" if word.startswith("tag:") else COLUMN_OF.get(word, word))
        if self.is_exact or not columns <= {*SUMMED, "key_hint"}:
            return None
        is_of_zone = scope.zone is not None and times
        if is_of_zone and not has_whole_hours(scope.zone):
            return None
        # Sums of days have whole keys: one may have been seen with and without its last characters.
        is_of_days = (
            not is_of_zone
            and "hour" not in words
            and "key_hint" not in columns
            and all(
                value == NO_VALUE or FINGERPRINT.fullmatch(value)
                for value in conditions_on.get("key", ())
            )
            and all(
                moment is None or moment.astimezone(UTC).time() == time()
                for moment in (scope.since, scope.until)
            )
        )
        if not is_of_days:
            return BY_HOUR
        return next((name for name, of in BY_DAY.items() if columns <= {*of}), BY_HOUR)


def grouped(connection: Connection, query: SumQuery) -> Sequence[Row[Any]]:
    """A row for each group: the columns of `by` as by_0, by_1 …, then the figures."""
    dialect, scope = connection.dialect.name, query.scope
    grouping = query.grouping()
    covered = [SumSpan(since=scope.since, until=scope.until, has_sums=False)]
    if grouping is not None:
        step = HOUR if grouping == BY_HOUR else DAY
        covered = spans(connection, scope.since, scope.until, step=step)
    selects: list[sa.Select[Any]] = []
    for span in covered:
        within_span = replace(scope, since=span.since, until=span.until)
        of = sums if span.has_sums else charged_requests(within_span, dialect, query.figures)
        labels = [column.label(f"by_{place}") for place, column in enumerate(query.by(of))]
        if span.has_sums:
            stored = sa.select(*labels, *(sums.c[name] for name in query.figures))
            of_span = conditions(within_span, dialect, sums)
            selects.append(stored.where(sums.c.summed_by == grouping, *of_span))
            continue
        if dialect == "sqlite":
            # In a form that no index matches. Otherwise SQLite would read the whole ledger in the
            # order of an index on keys, instead of sorting the groups of a period.
            plus: Any = sa.sql.operators.custom_op("+")
            labels = [
                sa.UnaryExpression(each.element, operator=plus, type_=each.type).label(each.name)
                for each in labels
            ]
        live = sa.select(*labels, *added_up(query.figures, dialect)).select_from(of)
        selects.append(live.group_by(*(each.element for each in labels)))
    parts = sa.union_all(*selects).subquery("parts")
    by = [column for column in parts.c if column.name.startswith("by_")]
    figures: list[sa.ColumnElement[Any]] = []
    for name in query.figures:
        column = parts.c[name]
        if name in HISTOGRAMS:
            figures.append(joined(column, dialect).label(name))
        else:
            added = sa.func.sum(column)
            figures.append(
                (sa.func.coalesce(added, 0) if name in COUNT_TERMS else added).label(name)
            )
    return rows_of(connection, sa.select(*by, *figures).group_by(*by))
