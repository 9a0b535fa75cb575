"""Database. Sums up the days that are over, so that reports over years stay quick.

`usage_daily` and `completeness` read the stored sums of a day that is over, and add up every other
day from its exchanges (migration 0004). So sums change how long they take and never what they show.
Summing may run at any time, twice at once, or not at all:

1. The boundary `rolled_until` moves to the begin of today, and every day before it that has rows
   becomes stale. From then on each write to such a day is counted in `stale_days`. No transaction
   may still write under the old boundary: SQLite has one writer at a time, on PostgreSQL a lock
   waits for the others.
2. The sums of each stale day are read, and stored if the count of writes has not changed
   meanwhile. If it has, the day stays stale until the next run.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.maintenance import sums_of_day
from ledger.store import db
from ledger.store.processes.supervision import Log
from ledger.store.schema.columns import Instant
from ledger.store.schema.instants import instant_text
from ledger.store.tables import (
    SUMS_BY_DAY,
    daily,
    daily_by,
    exchanges,
    hourly,
    hourly_usage,
    meta,
    stale_days,
    unpriced_lines,
)
from ledger.sync.merging import reason_of

LOCK_MS_MAX = 3_000
"""How long it waits for writers; new writers wait behind it."""

CLOSED_DAYS_MAX = 400
"""Days that one transaction closes, while writers wait: some 20 ms."""

_ROLLED_UNTIL = "rolled_until"
_TRIGGERS = (
    "exchanges_added_late",
    "exchanges_changed_late",
    "exchanges_dropped",
    "readings_added_late",
    "charges_added_late",
)


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
        log("warning", f"a day cannot be summed up, and is added up at each question: {failed}")
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
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_MS_MAX}")
            connection.exec_driver_sql(
                "LOCK TABLE exchanges, readings, charges IN SHARE ROW EXCLUSIVE MODE"
            )
        days = _days_with_rows(connection, _end_of_what_is_over(connection), _begin(today))
        if end is None and not days:
            return True
        is_done = len(days) < CLOSED_DAYS_MAX
        end = _begin(today if is_done else days[-1] + timedelta(1))
        connection.execute(sa.delete(meta).where(meta.c.key == _ROLLED_UNTIL))
        connection.execute(sa.insert(meta).values(key=_ROLLED_UNTIL, value=instant_text(end)))
        if days:
            connection.execute(
                sa.text(
                    "INSERT INTO stale_days (day, starts_at, ends_at, writes) "
                    "VALUES (:day, :starts_at, :ends_at, 0) ON CONFLICT (day) DO NOTHING"
                ).bindparams(
                    sa.bindparam("day", type_=sa.Date()),
                    sa.bindparam("starts_at", type_=Instant()),
                    sa.bindparam("ends_at", type_=Instant()),
                ),
                [
                    {"day": day, "starts_at": _begin(day), "ends_at": _begin(day + timedelta(1))}
                    for day in days
                ],
            )
    return is_done


def _days_with_rows(connection: Connection, start: datetime | None, end: datetime) -> list[date]:
    """The first days of a span on which an exchange was opened; one index lookup for each."""
    opened_at = exchanges.c.opened_at
    days: list[date] = []
    while len(days) < CLOSED_DAYS_MAX:
        where = [opened_at < end] if start is None else [opened_at < end, opened_at >= start]
        found = connection.scalar(sa.select(sa.func.min(opened_at, type_=Instant())).where(*where))
        if found is None:
            break
        days.append(found.date())
        start = _begin(found.date() + timedelta(1))
    return days


def _sum_up(engine: Engine, day: date) -> bool:
    """Store the sums of a stale day, unless the day is written meanwhile; whether it was done."""
    of_day = stale_days.c.day == day
    begin, end = _begin(day), _begin(day + timedelta(1))
    with engine.connect() as connection:
        writes = connection.scalar(sa.select(stale_days.c.writes).where(of_day))
        sums = sums_of_day.read(connection, day)
    with db.writing(engine) as connection:
        unchanged = sa.and_(of_day, stale_days.c.writes == writes)
        if connection.execute(sa.delete(stale_days).where(unchanged)).rowcount == 0:
            return False
        hour = hourly_usage.c.hour
        connection.execute(sa.delete(hourly_usage).where(hour >= begin, hour < end))
        for table in SUMS_BY_DAY:
            connection.execute(sa.delete(table).where(table.c.day == day))
        for table, rows in (
            (hourly_usage, sums.by_hour),
            (daily, sums.by_day),
            (daily_by, sums.by_one),
            (hourly, sums.states),
            (unpriced_lines, sums.unpriced),
        ):
            if rows:
                connection.execute(sa.insert(table), rows)
    return True


def _end_of_what_is_over(connection: Connection) -> datetime | None:
    kept = connection.scalar(sa.select(meta.c.value).where(meta.c.key == _ROLLED_UNTIL))
    return datetime.fromisoformat(kept) if kept else None


def _begin(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
