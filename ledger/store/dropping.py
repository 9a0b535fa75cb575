"""Database. Drops whole exchanges: nothing else removes settled facts from a ledger. The guards of
the tables (migration 0002) allow only this.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.store import db
from ledger.store.keys import Key, chosen, parameters
from ledger.store.schema.instants import instant_text
from ledger.store.tables import OF_EXCHANGES, exchanges, meta

DROPPED_UNTIL = "dropped_until"
"""The key in `meta` of the moment of the newest dropped exchange: a `duplicate_of` may point at a
row older than that which no longer exists."""
DROP_EXCHANGES_MAX = 500
"""Exchanges of one transaction. The commits of a proxy wait for it, some 20 ms."""


def drop(engine: Engine, which: sa.ColumnElement[bool]) -> int:
    """Drop some of these exchanges, the oldest first; how many, 0 if there are none left."""
    with db.writing(engine) as connection:
        rows = connection.execute(
            sa.select(exchanges.c.opened_at, exchanges.c.id)
            .where(which)
            .order_by(exchanges.c.opened_at, exchanges.c.id)
            .limit(DROP_EXCHANGES_MAX)
        ).all()
        if rows:
            allow(connection, allowed=True)
            _delete(connection, [(instant_text(row.opened_at), row.id) for row in rows])
            allow(connection, allowed=False)
            note_dropped_until(connection, rows[-1].opened_at)
    return len(rows)


def note_dropped_until(connection: Connection, until: datetime) -> None:
    """Record the moment of the newest dropped exchange."""
    connection.execute(
        sa.text(
            "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) "
            "DO UPDATE SET value = excluded.value WHERE meta.value < excluded.value"
        ),
        {"key": DROPPED_UNTIL, "value": instant_text(until)},
    )


def allow(connection: Connection, *, allowed: bool) -> None:
    """Set the permission that the guards of the tables check (migration 0002); it ends with the
    transaction."""
    if connection.dialect.name == "postgresql":
        value = "on" if allowed else "off"
        connection.exec_driver_sql(f"SET LOCAL tokentee.retention = '{value}'")
    elif allowed:
        connection.execute(sa.insert(meta).values(key="retention", value="under way"))
    else:
        connection.execute(sa.delete(meta).where(meta.c.key == "retention"))


def _delete(connection: Connection, keys: list[Key]) -> None:
    which = chosen(connection.dialect.name)
    existing = set(sa.inspect(connection).get_table_names())
    for table in OF_EXCHANGES:
        if table.name not in existing:
            continue
        key = "id" if table is exchanges else "exchange_id"
        connection.execute(
            sa.text(f"DELETE FROM {table.name} WHERE (opened_at, {key}) IN ({which})"),
            parameters(keys),
        )
