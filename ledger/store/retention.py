"""Database. Drops whole exchanges, and on request the texts of errors: nothing else removes settled
facts from a ledger. The guards of the tables (migration 0002) allow only this.

Open exchanges stay. On PostgreSQL whole months go with their partitions, without touching a row;
the rest, and SQLite, goes in small transactions.

A month has a partition on PostgreSQL, made before its rows come, which keeps its indices small. A
row without a partition goes to the default partition, where queries find it too; such a month can
no longer get a partition without moving its rows.
"""

from collections.abc import Callable, Iterable
from datetime import date, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.store import db
from ledger.store.keys import chosen, instant_text, midnight, parameters
from ledger.store.schema.sums import GROUPINGS
from ledger.store.tables import (
    OF_EXCHANGES,
    PARTITIONED,
    exchanges,
    segments,
    stale_days,
    sums,
    unpriced_lines,
)

DROPPED_UNTIL = "dropped_until"
"""The key in `meta` of the moment of the newest dropped exchange: a `duplicate_of` may point at a
row older than that which no longer exists."""
DROP_EXCHANGES_MAX = 500
"""Exchanges of one transaction. The commits of a proxy wait for it, some 20 ms."""
DROP_SEGMENTS_MAX = 1_000
"""Requests of one transaction."""
FORGET_EXCHANGES_MAX = 5_000
"""Exchanges of one transaction that blanks the texts of errors."""
TOKEN_CHARACTERS_MAX = 64
MONTHS_AHEAD = 2
"""Months made in advance: operators have that long to notice that a proxy cannot create
partitions."""
YEARS_MAX = 10
"""How far back an import makes partitions: a wrong clock must not create thousands."""
LOCK_MS_MAX = 3_000
"""How long it waits for the lock on the tables, which it holds only briefly."""


def drop_before(
    engine: Engine, before: datetime, *, on_progress: Callable[[int], None] = lambda _: None
) -> int:
    """Drop the exchanges that were opened before a moment and have ended; how many."""
    dropped = _drop_months(engine, before) if engine.dialect.name == "postgresql" else 0
    while count := drop(engine, _ended_before(before)):
        dropped += count
        on_progress(dropped)
    return dropped


def count_before(engine: Engine, before: datetime) -> int:
    """How many exchanges `drop_before` would drop."""
    with engine.connect() as connection:
        return connection.execute(
            sa.select(sa.func.count()).select_from(exchanges).where(_ended_before(before))
        ).scalar_one()


def forget_error_texts(engine: Engine) -> int:
    """Blank what was kept of errors beside tokens, as versions before 0.3 did and `tee_error_text`
    does: every message, and types and codes that are no tokens. How many exchanges had one.

    The guard of settled exchanges is taken off and put back in each transaction.
    """
    is_sqlite = engine.dialect.name == "sqlite"
    guard = (
        "SELECT sql FROM sqlite_master WHERE name = 'exchanges_settled'"
        if is_sqlite
        else "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'exchanges_settled' "
        "AND tgrelid = 'exchanges'::regclass"
    )
    free = {
        name: sa.and_(
            column.is_not(None),
            sa.or_(
                sa.func.length(column) > TOKEN_CHARACTERS_MAX,
                column.op("GLOB" if is_sqlite else "~")(
                    "*[^A-Za-z0-9._:/-]*" if is_sqlite else "[^A-Za-z0-9._:/-]"
                ),
            ),
        )
        for name, column in (
            ("error_type", exchanges.c.error_type),
            ("error_code", exchanges.c.error_code),
        )
    }
    keys = sa.tuple_(exchanges.c.opened_at, exchanges.c.id)
    those = (
        sa.select(exchanges.c.opened_at, exchanges.c.id)
        .where(sa.or_(exchanges.c.error_message.is_not(None), *free.values()))
        .order_by(exchanges.c.opened_at, exchanges.c.id)
        .limit(FORGET_EXCHANGES_MAX)
    )
    values = {
        name: sa.case((is_free, None), else_=exchanges.c[name]) for name, is_free in free.items()
    }
    forgotten, chosen = 0, those
    while True:
        with db.writing(engine) as connection:
            rows = connection.execute(chosen).all()
            if rows:
                if is_sqlite:
                    connection.exec_driver_sql("PRAGMA secure_delete = ON")
                trigger = connection.exec_driver_sql(guard).scalar_one()
                on_table = "" if is_sqlite else " ON exchanges"
                connection.exec_driver_sql(f"DROP TRIGGER exchanges_settled{on_table}")
                # Without the span, SQLite searches the whole table for the rows.
                span = exchanges.c.opened_at.between(rows[0].opened_at, rows[-1].opened_at)
                update = sa.update(exchanges).where(span, keys.in_([tuple(row) for row in rows]))
                connection.execute(update.values(error_message=None, **values))
                connection.exec_driver_sql(trigger)
        forgotten += len(rows)
        if len(rows) < FORGET_EXCHANGES_MAX:
            break
        at, name = rows[-1]
        is_later = keys > sa.tuple_(sa.literal(at, exchanges.c.opened_at.type), sa.literal(name))
        chosen = those.where(exchanges.c.opened_at >= at, is_later)
    if is_sqlite:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return forgotten


def drop_segments_before(engine: Engine, before: datetime) -> int:
    """Drop the segments of requests that were opened before a moment; how many requests."""
    if not sa.inspect(engine).has_table(segments.name):  # a copy of an older schema
        return 0
    old = sa.select(segments.c.opened_at, segments.c.exchange_id).where(
        segments.c.opened_at < before
    )
    key = sa.tuple_(segments.c.opened_at, segments.c.exchange_id)
    dropped = 0
    while True:
        with db.writing(engine) as connection:
            count = connection.execute(
                sa.delete(segments).where(key.in_(old.limit(DROP_SEGMENTS_MAX)))
            ).rowcount
        dropped += count
        if count < DROP_SEGMENTS_MAX:
            return dropped


def drop_sums(connection: Connection, begin: date, end: date) -> None:
    """Drop the stored sums of these days, up to `end`."""
    first, last = midnight(begin), midnight(end)
    for table in (sums, unpriced_lines):
        at = table.c.opened_at
        delete = sa.delete(table).where(at >= first, at < last)
        if table is sums:  # the index begins with it
            delete = delete.where(sums.c.summed_by.in_(GROUPINGS))
        connection.execute(delete)


def _ended_before(moment: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(exchanges.c.opened_at < moment, exchanges.c.state != "open")


def _drop_months(engine: Engine, before: datetime) -> int:
    dropped = 0
    with db.writing(engine) as connection:
        _allow(connection, allowed=True)
        names = connection.scalars(
            sa.text(
                "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
                "WHERE i.inhparent = 'exchanges'::regclass AND c.relname ~ '_p[0-9]{4}_[0-9]{2}$'"
            )
        )
        for month in sorted(date(int(name[-7:-3]), int(name[-2:]), 1) for name in names):
            if next_month(month) > before.date():
                continue
            *_, held = partitions_of(month)
            if connection.scalar(
                sa.text(f"SELECT EXISTS (SELECT 1 FROM {held} WHERE state = 'open')")
            ):
                continue
            dropped += connection.scalar(sa.text(f"SELECT count(*) FROM {held}")) or 0
            end = next_month(month)
            drop_sums(connection, month, end)
            day = stale_days.c.day
            connection.execute(sa.delete(stale_days).where(day >= month, day < end))
            for held_in in OF_EXCHANGES:
                at = held_in.c.opened_at
                if held_in.name not in PARTITIONED:
                    connection.execute(
                        sa.delete(held_in).where(at >= midnight(month), at < midnight(end))
                    )
            for name in partitions_of(month):
                table = name.partition("_p")[0]
                connection.exec_driver_sql(f"ALTER TABLE {table} DETACH PARTITION {name}")
                connection.exec_driver_sql(f"DROP TABLE {name}")
            _note_dropped_until(connection, midnight(end))
    return dropped


def drop(engine: Engine, those: sa.ColumnElement[bool]) -> int:
    """Drop some of these exchanges, the oldest first; how many, 0 if there are none left."""
    with db.writing(engine) as connection:
        rows = connection.execute(
            sa.select(exchanges.c.opened_at, exchanges.c.id)
            .where(those)
            .order_by(exchanges.c.opened_at, exchanges.c.id)
            .limit(DROP_EXCHANGES_MAX)
        ).all()
        if rows:
            _allow(connection, allowed=True)
            keys = [(instant_text(row.opened_at), row.id) for row in rows]
            existing = set(sa.inspect(connection).get_table_names())
            # Until schema 0018, `charges` is a table.
            for table in ("charges", *(each.name for each in OF_EXCHANGES)):
                if table in existing:
                    key = "id" if table == exchanges.name else "exchange_id"
                    which = f"(opened_at, {key}) IN ({chosen(connection.dialect.name)})"
                    statement = sa.text(f"DELETE FROM {table} WHERE {which}")
                    connection.execute(statement, parameters(keys))
            _allow(connection, allowed=False)
            _note_dropped_until(connection, rows[-1].opened_at)
    return len(rows)


def _note_dropped_until(connection: Connection, until: datetime) -> None:
    """Record the moment of the newest dropped exchange."""
    connection.execute(
        sa.text(
            "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) "
            "DO UPDATE SET value = excluded.value WHERE meta.value < excluded.value"
        ),
        {"key": DROPPED_UNTIL, "value": instant_text(until)},
    )


def _allow(connection: Connection, *, allowed: bool) -> None:
    """Set the permission that the guards of the tables check (migration 0002); it ends with the
    transaction."""
    if connection.dialect.name == "postgresql":
        value = "on" if allowed else "off"
        connection.exec_driver_sql(f"SET LOCAL tokentee.retention = '{value}'")
    else:
        db.note(connection, "retention", "under way" if allowed else None)


def month_of(opened_at: str) -> date:
    """The month of an `opened_at` as text."""
    year, month, *_ = opened_at.split("-")
    return date(int(year), int(month), 1)


def coming_months(today: date) -> list[date]:
    """This month and the next `MONTHS_AHEAD`."""
    months = [today.replace(day=1)]
    for _ in range(MONTHS_AHEAD):
        months.append(next_month(months[-1]))
    return months


def make_partitions(engine: Engine, months: Iterable[date], today: date) -> dict[date, str | None]:
    """Create the partitions of these months; per month the reason why it has none, or None."""
    latest = coming_months(today)[-1]
    outcome: dict[date, str | None] = {}
    for month in sorted(set(months)):
        if not today.year - YEARS_MAX <= month.year or month > latest:
            outcome[month] = "too far from today"
            continue
        try:
            with engine.begin() as connection:
                there = [
                    connection.scalar(sa.select(sa.func.to_regclass(name)))
                    for name in partitions_of(month)
                ]
                if None in there:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_MS_MAX}")
                    begin, end = f"{month:%Y-%m-%d} 00:00Z", f"{next_month(month):%Y-%m-%d} 00:00Z"
                    for table in PARTITIONED:
                        connection.exec_driver_sql(
                            f"CREATE TABLE IF NOT EXISTS {table}_p{month:%Y_%m} "
                            f"PARTITION OF {table} FOR VALUES FROM ('{begin}') TO ('{end}')"
                        )
        except (sa.exc.ProgrammingError, sa.exc.IntegrityError) as error:
            # No right to make tables, or rows of that month in the default partition. Any other
            # error is temporary, and the rows wait for it: rows in the default partition stay
            # there.
            outcome[month] = str(error.orig).splitlines()[0]
        else:
            outcome[month] = None
    return outcome


def next_month(month: date) -> date:
    """The next month."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def partitions_of(month: date) -> list[str]:
    """The partitions of a month; referring tables come before the tables that they refer to."""
    return [f"{table}_p{month:%Y_%m}" for table in reversed(PARTITIONED)]
