"""Database. Sums up the days that are over, so that reports over years stay quick.

`usage_daily` and `completeness` read the stored sums of a day that is over, and add up every other
day from its exchanges (migration 0004). So sums change how long they take and never what they show.
Summing may run at any time, twice at once, or not at all:

1. The boundary `rolled_until` moves to the begin of today, and every day before it that has rows
   becomes stale. From then on each write to such a day is counted in `stale_days`. No transaction
   may still write under the old boundary: SQLite has one writer at a time, on PostgreSQL a lock
   waits for the others.
2. The count of writes of each stale day is set to a random number. The sums of the day are read,
   and stored if the number has not changed meanwhile. If it has, the day stays stale until the
   next run. A count that begins at 1 again after each sum may be what it was before another
   process summed the day, and a write came. The groups of an hour are read from the database; those
   of the day are added up from them here, so one pass over the requests makes all. A day with a sum
   beyond 64 bits stays stale, too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from secrets import randbits
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.store import db, retention
from ledger.store.adding_up import added_up, charged_requests, histogram, histogram_text, rows_of
from ledger.store.engines.refusals import reason_of
from ledger.store.keys import instant_text, midnight
from ledger.store.processes.supervision import Log
from ledger.store.schema.columns import Instant
from ledger.store.schema.dimensions import SUMMED
from ledger.store.schema.sums import (
    BY_DAY,
    BY_EXCHANGES,
    BY_HOUR,
    COUNT_TERMS,
    HISTOGRAMS,
    SUM_TERMS,
    SUMS_COLUMNS,
)
from ledger.store.schema.views import HOURLY
from ledger.store.scope import Scope
from ledger.store.tables import exchanges, stale_days, sums, unpriced_lines

ROLL_LOCK_MS_MAX = 3_000
"""How long it waits for writers; new writers wait behind it."""

CLOSED_DAYS_MAX = 400
"""Days that one transaction closes, while writers wait: some 20 ms."""

_ROLLED_UNTIL = "rolled_until"
_TRIGGERS = (
    "exchanges_added_late",
    "exchanges_changed_late",
    "exchanges_dropped",
    "readings_added_late",
    "pricings_added_late",
)

type Values = Mapping[str, Any]


def roll(
    engine: Engine,
    *,
    now: datetime,
    log: Log = lambda *_: None,
    is_stopping: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Sum up the days that are over and stale; how many were summed up.

    Each day is a step of its own: one that cannot be summed up stays stale and is logged, and the
    others go on. `is_stopping` is asked before each; `on_progress` gets after each the number
    done and the total.
    """
    today = now.astimezone(UTC).date()
    if not _notes_writes(engine):
        return 0
    while not _close_days(engine, today):
        pass
    with engine.connect() as connection:
        days = connection.scalars(sa.select(stale_days.c.day).order_by(stale_days.c.day)).all()
    summed, failed = 0, ""
    for number, day in enumerate(days, 1):
        if is_stopping():
            break
        try:
            summed += _sum_up(engine, day)
        except (sa.exc.DBAPIError, ArithmeticError, ValueError, TypeError) as error:
            if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
                raise
            failed = f"{day}: {reason_of(error)}"
        on_progress(number, len(days))
    if failed:
        log(
            "warning",
            f"the sums of a day cannot be stored, so each report adds up its requests: {failed}",
        )
    return summed


def _notes_writes(engine: Engine) -> bool:
    """Whether the triggers are there that sums rest on; a distributed database has none."""
    catalogue, name = (
        ("pg_trigger", "tgname")
        if engine.dialect.name == "postgresql"
        else ("sqlite_master", "name")
    )
    found = sa.table(catalogue, sa.column(name, sa.Text))
    with engine.connect() as connection:
        count = connection.scalar(sa.select(sa.func.count()).where(found.c[name].in_(_TRIGGERS)))
    return count == len(_TRIGGERS)


def _close_days(engine: Engine, today: date) -> bool:
    """Move the boundary towards the begin of today; whether it is there.

    One transaction takes `CLOSED_DAYS_MAX` days that have rows, however far they lie apart.
    """
    with engine.connect() as connection:
        end = _end_of_what_is_over(connection)
    if end is not None and end.date() >= today:
        return True
    with db.writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {ROLL_LOCK_MS_MAX}")
            connection.exec_driver_sql(
                "LOCK TABLE exchanges, readings, pricings IN SHARE ROW EXCLUSIVE MODE"
            )
        # The first days that have rows: one index lookup for each.
        opened_at = exchanges.c.opened_at
        days: list[date] = []
        start = _end_of_what_is_over(connection)
        while len(days) < CLOSED_DAYS_MAX:
            where = [opened_at < midnight(today)]
            where += [] if start is None else [opened_at >= start]
            first = sa.select(sa.func.min(opened_at, type_=Instant())).where(*where)
            if (found := connection.scalar(first)) is None:
                break
            days.append(found.date())
            start = midnight(found.date() + timedelta(1))
        if end is None and not days:
            return True
        is_done = len(days) < CLOSED_DAYS_MAX
        end = midnight(today if is_done else days[-1] + timedelta(1))
        db.note(connection, _ROLLED_UNTIL, instant_text(end))
        day = stale_days.c.day
        known = {*connection.scalars(sa.select(day).where(day.in_(days)))}
        rows = [
            {
                "day": each,
                "starts_at": midnight(each),
                "ends_at": midnight(each + timedelta(1)),
                "writes": 0,
            }
            for each in days
            if each not in known
        ]
        if rows:
            connection.execute(sa.insert(stale_days), rows)
    return is_done


def _sum_up(engine: Engine, day: date) -> bool:
    """Store the sums of a stale day, unless the day is written meanwhile; whether it was done."""
    of_day = stale_days.c.day == day
    writes = randbits(62)
    with db.writing(engine) as connection:
        connection.execute(sa.update(stale_days).where(of_day).values(writes=writes))
    with engine.connect() as connection:
        parts = _sums_of(connection, day)
    with db.writing(engine) as connection:
        unchanged = sa.and_(of_day, stale_days.c.writes == writes)
        if connection.execute(sa.delete(stale_days).where(unchanged)).rowcount == 0:
            return False
        retention.drop_sums(connection, day, day + timedelta(1))
        for table, rows in parts:
            if rows:
                connection.execute(sa.insert(table), rows)
    return True


def _end_of_what_is_over(connection: Connection) -> datetime | None:
    kept = db.noted(connection, _ROLLED_UNTIL)
    return datetime.fromisoformat(kept) if kept else None


def _sums_of(connection: Connection, day: date) -> list[tuple[sa.Table, list[Values]]]:
    """The rows of a day's sums, those of one grouping together."""
    # The groups of each hour by everything; sums are whole numbers of any size.
    dialect = connection.dialect.name
    scope = Scope(since=midnight(day), until=midnight(day + timedelta(1)))
    e = charged_requests(scope, dialect, SUMS_COLUMNS)
    # PostgreSQL has no order of JSON.
    tags = sa.cast(e.c.tags, sa.Text).label("tags")
    kept = [e.c[name] for name in (*SUMMED, "key_hint") if name != "tags"]
    hour: sa.ColumnElement[Any]
    if dialect == "postgresql":
        hour = sa.func.date_trunc("hour", e.c.opened_at, "UTC", type_=Instant())
    else:
        begin = sa.func.substr(sa.cast(e.c.opened_at, sa.Text), 1, 13)
        hour = sa.type_coerce(begin.op("||")(sa.literal_column("':00:00.000000Z'")), Instant())
    by_everything = (
        sa.select(hour.label("opened_at"), *kept, tags, *added_up(SUMS_COLUMNS, dialect))
        .select_from(e)
        .group_by(hour, *kept, tags.element)
        .order_by(hour)
    )
    groups: list[Values] = []
    for row in rows_of(connection, by_everything):
        group: dict[str, Any] = {"summed_by": BY_HOUR, **row._mapping}
        for name in (*COUNT_TERMS, *SUM_TERMS):
            group[name] = None if group[name] is None else int(group[name])
        for name in HISTOGRAMS:
            group[name] = histogram_text(histogram(group[name]))
        groups.append(group)
    parts: list[tuple[sa.Table, list[Values]]] = [(sums, groups)]
    for grouping, dimensions in BY_DAY.items():
        of_day = {"summed_by": grouping, "opened_at": midnight(day)}
        parts.append((sums, [of_day | group for group in _merged(groups, dimensions)]))
    for view, table, names, about in (
        ("live_hourly", sums, ("opened_at", *HOURLY), {"summed_by": BY_EXCHANGES}),
        ("live_unpriced", unpriced_lines, unpriced_lines.c.keys(), {}),
    ):
        columns = [sa.column(name, table.c[name].type) for name in names]
        live = sa.table(view, sa.column("stale_day", sa.Date), *columns)
        query = sa.select(*(live.c[name] for name in names)).where(live.c.stale_day == day)
        parts.append((table, [about | row._asdict() for row in connection.execute(query)]))
    return parts


def _merged(groups: Sequence[Values], dimensions: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The groups by these dimensions alone, added up column by column."""
    columns = {name: [group[name] for group in groups] for name in (*SUMS_COLUMNS, "key_hint")}
    places: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        places[tuple(group[name] for name in dimensions)].append(place)
    for key, here in places.items():
        row = dict(zip(dimensions, key, strict=True))
        for name, column in columns.items():
            known = [value for at in here if (value := column[at]) is not None]
            if name in HISTOGRAMS:
                row[name] = histogram_text(histogram(" ".join(known)))
            elif name == "key_hint":
                row[name] = max(known, default=None) if "key_fingerprint" in dimensions else None
            else:
                row[name] = sum(known) if known or name in COUNT_TERMS else None
        yield row
