"""Database. One exchange with all that the ledger holds of it: every reading, every charge."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.errors import LedgerError
from ledger.reports.explain import Facts, Found
from ledger.store.scope import snapshot
from ledger.store.tables import charges, exchanges, readings

PREFIX_LENGTH_MIN = 4
"""Shorter ones say little, and are more likely a slip."""
MATCHES_MAX = 20
"""Candidates named in an error."""


def find(engine: Engine, word: str) -> Found:
    """The exchange with this id, response id, or unambiguous beginning of either.

    LedgerError if there is none, or if several differ.
    """
    with snapshot(engine) as connection:
        return _found(connection, _one(connection, word))


def _one(connection: Connection, word: str) -> Facts:
    e = exchanges.c
    for condition in (e.id == word, e.response_id == word):
        if rows := _rows(connection, condition):
            return _pick(rows, word)
    if len(word) >= PREFIX_LENGTH_MIN:
        begins = e.id.startswith(word, autoescape=True)
        begins |= e.response_id.startswith(word, autoescape=True)
        # SQLite's LIKE does not tell cases apart.
        rows = [
            row
            for row in _rows(connection, begins)
            if row["id"].startswith(word) or (row["response_id"] or "").startswith(word)
        ]
        if rows:
            return _pick(rows, word)
    raise LedgerError(f"no exchange has the id or response id {word[:80]!r}, or one beginning so")


def _rows(connection: Connection, condition: sa.ColumnElement[bool]) -> list[Facts]:
    query = (
        sa.select(exchanges)
        .where(condition)
        .order_by(exchanges.c.opened_at, exchanges.c.id)
        .limit(MATCHES_MAX + 1)
    )
    return [dict(row._mapping) for row in connection.execute(query)]


def _pick(rows: list[Facts], word: str) -> Facts:
    """The one that counts; what was seen again is not another one."""
    originals = [row for row in rows if row["duplicate_of"] is None]
    if len(originals) == 1 and all(
        row["duplicate_of"] in (None, originals[0]["id"]) for row in rows
    ):
        return originals[0]
    if len(rows) == 1:
        return rows[0]
    ids = ", ".join(row["id"] for row in rows[:MATCHES_MAX])
    more = ", …" if len(rows) > MATCHES_MAX else ""
    raise LedgerError(f"several exchanges are called {word[:80]!r}, name one: {ids}{more}")


def _found(connection: Connection, exchange: Facts) -> Found:
    here = {"opened_at": exchange["opened_at"], "exchange_id": exchange["id"]}
    read = _of(connection, readings, here)
    # As in the view `requests`: the highest revision, of equal ones the earliest.
    read.sort(key=lambda row: (-row["revision"], row["read_at"], row["id"]))
    lines = _of(connection, charges, here)
    lines.sort(key=lambda row: (row["ordinal"], -row["revision"], row["id"]))
    current: list[Facts] = []
    past: list[Facts] = []
    seen: set[int] = set()
    for line in lines:
        is_current = line["reading_id"] == read[0]["id"] and line["ordinal"] not in seen
        (current if is_current else past).append(line)
        if is_current:
            seen.add(line["ordinal"])
    again = connection.execute(
        sa.select(exchanges.c.id)
        .where(
            exchanges.c.response_id == exchange["response_id"],
            exchanges.c.duplicate_of == exchange["id"],
        )
        .order_by(exchanges.c.opened_at)
    )
    return Found(
        exchange=exchange,
        readings=tuple(read),
        charges=tuple(current),
        past_charges=tuple(past),
        duplicates=tuple(again.scalars()),
    )


def _of(connection: Connection, table: sa.Table, here: Mapping[str, Any]) -> list[dict[str, Any]]:
    query = sa.select(table).where(*(table.c[name] == value for name, value in here.items()))
    return [dict(row._mapping) for row in connection.execute(query)]
