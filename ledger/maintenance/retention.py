"""Database. Dropping whole exchanges that are older than somebody wants to keep.

The only way on which settled facts leave a ledger. What is open stays. On PostgreSQL whole months
go with their partitions, without touching a row; the rest, and SQLite, goes in small transactions.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.store import db, partitions
from ledger.store.tables import (
    charges,
    daily,
    exchanges,
    hourly,
    instant_text,
    meta,
    readings,
    stale_days,
)
from ledger.sync.bundles import Key

DROPPED_UNTIL = "dropped_until"
"""The key in `meta` of how recent the newest exchange is that was dropped: what points at one that
is not there any more (`duplicate_of`) is then no fault."""
DROP_EXCHANGES_MAX = 500
"""In one transaction, which a proxy's commits wait behind: some 20 ms."""


def drop_before(
    engine: Engine, before: datetime, *, on_progress: Callable[[int], None] = lambda _: None
) -> int:
    """Drop what was opened before a moment, and has ended; how many exchanges that were."""
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


def drop(engine: Engine, which: sa.ColumnElement[bool]) -> int:
    """Drop some of these exchanges, the oldest first; 0 when there are none left."""
    with db.writing(engine) as connection:
        rows = connection.execute(
            sa.select(exchanges.c.opened_at, exchanges.c.id)
            .where(which)
            .order_by(exchanges.c.opened_at, exchanges.c.id)
            .limit(DROP_EXCHANGES_MAX)
        ).all()
        if rows:
            _allow(connection, allowed=True)
            _delete(connection, [(instant_text(row.opened_at), row.id) for row in rows])
            _allow(connection, allowed=False)
            _note(connection, rows[-1].opened_at)
    return len(rows)


def _ended_before(moment: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(exchanges.c.opened_at < moment, exchanges.c.state != "open")


def _allow(connection: Connection, *, allowed: bool) -> None:
    """What the guards of the tables look for (migration 0002); it ends with the transaction."""
    if connection.dialect.name == "postgresql":
        value = "on" if allowed else "off"
        connection.exec_driver_sql(f"SET LOCAL tokentee.retention = '{value}'")
    elif allowed:
        connection.execute(sa.insert(meta).values(key="retention", value="under way"))
    else:
        connection.execute(sa.delete(meta).where(meta.c.key == "retention"))


def _delete(connection: Connection, keys: list[Key]) -> None:
    if connection.dialect.name == "postgresql":
        chosen = (
            "SELECT (k ->> 0)::timestamptz, k ->> 1 "
            "FROM jsonb_array_elements(CAST(:keys AS jsonb)) k"
        )
    else:
        chosen = "SELECT value ->> 0, value ->> 1 FROM json_each(:keys)"
    for table in (charges, readings, exchanges):
        key = "id" if table is exchanges else "exchange_id"
        connection.execute(
            sa.text(f"DELETE FROM {table.name} WHERE (opened_at, {key}) IN ({chosen})"),
            {"keys": orjson.dumps(keys).decode()},
        )


def _drop_months(engine: Engine, before: datetime) -> int:
    dropped = 0
    with db.writing(engine) as connection:
        for month in _months(connection):
            if partitions.after(month) > before.date():
                continue
            *_, held = partitions.names(month)
            if connection.scalar(
                sa.text(f"SELECT EXISTS (SELECT 1 FROM {held} WHERE state = 'open')")
            ):
                continue
            dropped += connection.scalar(sa.text(f"SELECT count(*) FROM {held}")) or 0
            end = partitions.after(month)
            for sums in (daily, hourly, stale_days):
                connection.execute(sa.delete(sums).where(sums.c.day >= month, sums.c.day < end))
            for name in partitions.names(month):
                table = name.partition("_p")[0]
                connection.exec_driver_sql(f"ALTER TABLE {table} DETACH PARTITION {name}")
                connection.exec_driver_sql(f"DROP TABLE {name}")
            _note(connection, datetime(end.year, end.month, end.day, tzinfo=UTC))
    return dropped


def _note(connection: Connection, until: datetime) -> None:
    connection.execute(
        sa.text(
            "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) "
            "DO UPDATE SET value = excluded.value WHERE meta.value < excluded.value"
        ),
        {"key": DROPPED_UNTIL, "value": instant_text(until)},
    )


def _months(connection: Connection) -> list[date]:
    names = connection.scalars(
        sa.text(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
            "WHERE i.inhparent = 'exchanges'::regclass AND c.relname ~ '_p[0-9]{4}_[0-9]{2}$'"
        )
    )
    return sorted(date(int(name[-7:-3]), int(name[-2:]), 1) for name in names)
