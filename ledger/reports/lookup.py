"""Database. One exchange with every reading and every charge."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.errors import LedgerError
from ledger.reports.explain import ExplainedExchange, Facts
from ledger.reports.layout import Table, TableColumn, unique_beginning
from ledger.store.schema.charged import READING_ORDER
from ledger.store.scope import requests, snapshot
from ledger.store.tables import charges, current_charges, exchanges, quotas, readings

PREFIX_LENGTH_MIN = 4
"""A shorter prefix matches too much and is probably a slip."""
MATCHES_SHOWN_MAX = 20
"""Candidates that are shown."""


class AmbiguousError(LedgerError):
    """Several exchanges match the word."""

    def __init__(self, word: str, rows: list[Facts]) -> None:
        count = (
            f"more than {MATCHES_SHOWN_MAX}" if len(rows) > MATCHES_SHOWN_MAX else str(len(rows))
        )
        super().__init__(f"{count} exchanges are called {word[:80]!r}: name one by its id")
        self.keys = tuple((row["opened_at"], row["id"]) for row in rows[:MATCHES_SHOWN_MAX])


def candidates(engine: Engine, error: AmbiguousError) -> Table:
    """The exchanges that match an ambiguous word, with facts that distinguish them; ids are
    shortened as far as they stay unique."""
    r, e = requests.c, exchanges.c
    rows = []
    with snapshot(engine) as connection:
        for opened_at, identity in error.keys:
            about = connection.execute(
                sa.select(
                    e.response_id,
                    e.outcome,
                    e.state,
                    sa.func.coalesce(e.response_model, e.meant_model, e.request_model).label(
                        "model"
                    ),
                ).where(e.opened_at == opened_at, e.id == identity)
            ).one()
            tokens = connection.execute(
                sa.select(r.input_tokens, r.output_tokens).where(
                    r.opened_at == opened_at, r.id == identity
                )
            ).one_or_none()
            rows.append(
                (
                    unique_beginning(identity, [other for _, other in error.keys]),
                    f"{opened_at:%Y-%m-%d %H:%M:%S}",
                    about.model,
                    tokens.input_tokens if tokens else None,
                    tokens.output_tokens if tokens else None,
                    about.outcome or about.state,
                    about.response_id,
                )
            )
    return Table(
        columns=(
            TableColumn(name="id", heading="Id", is_number=False),
            TableColumn(name="opened_at", heading="Opened, UTC", is_number=False),
            TableColumn(name="model", heading="Model", is_number=False),
            TableColumn(name="input_tokens", heading="Input"),
            TableColumn(name="output_tokens", heading="Output"),
            TableColumn(name="outcome", heading="Outcome", is_number=False, drop=1),
            TableColumn(name="response_id", heading="Response id", is_number=False, drop=2),
        ),
        rows=tuple(rows),
    )


def find(engine: Engine, word: str) -> ExplainedExchange:
    """The exchange with this id, response id, or unambiguous beginning of either.

    LedgerError if there is none, or if several differ.
    """
    with snapshot(engine) as connection:
        exchange = _one(connection, word)
        here = {"opened_at": exchange["opened_at"], "exchange_id": exchange["id"]}
        read = _of(connection, readings, here, sa.text(READING_ORDER.format("readings")))
        of_reading = here | {"reading_id": read[0]["id"]}
        current = _of(connection, current_charges, of_reading, current_charges.c.ordinal)
        counting = {line["id"] for line in current}
        past = [line for line in _of(connection, charges, here) if line["id"] not in counting]
        past.sort(key=lambda row: (row["ordinal"], -row["revision"], row["id"]))
        again = connection.execute(
            sa.select(exchanges.c.id)
            .where(
                exchanges.c.response_id == exchange["response_id"],
                exchanges.c.duplicate_of == exchange["id"],
            )
            .order_by(exchanges.c.opened_at)
        )
        return ExplainedExchange(
            exchange=exchange,
            readings=tuple(read),
            charges=tuple(current),
            past_charges=tuple(past),
            duplicates=tuple(again.scalars()),
            quotas=tuple(_of(connection, quotas, here)),
        )


def _one(connection: Connection, word: str) -> Facts:
    e = exchanges.c
    for condition in (e.id == word, e.response_id == word):
        if rows := _rows(connection, condition):
            return _pick(rows, word)
    if len(word) >= PREFIX_LENGTH_MIN:
        begins = e.id.startswith(word, autoescape=True)
        begins |= e.response_id.startswith(word, autoescape=True)
        # SQLite's LIKE ignores case.
        rows = [
            row
            for row in _rows(connection, begins)
            if row["id"].startswith(word) or (row["response_id"] or "").startswith(word)
        ]
        if rows:
            return _pick(rows, word)
    is_short = len(word) < PREFIX_LENGTH_MIN
    ending = f" (a beginning needs {PREFIX_LENGTH_MIN} characters)" if is_short else ""
    raise LedgerError(
        f"no exchange has an id or response id that begins with {word[:80]!r}{ending}"
    )


def _rows(connection: Connection, condition: sa.ColumnElement[bool]) -> list[Facts]:
    query = (
        sa.select(exchanges)
        .where(condition)
        .order_by(exchanges.c.opened_at, exchanges.c.id)
        .limit(MATCHES_SHOWN_MAX + 1)
    )
    return [dict(row._mapping) for row in connection.execute(query)]


def _pick(rows: list[Facts], word: str) -> Facts:
    """The exchange that counts; its duplicates are not separate matches."""
    originals = [row for row in rows if row["duplicate_of"] is None]
    if len(originals) == 1 and all(
        row["duplicate_of"] in (None, originals[0]["id"]) for row in rows
    ):
        return originals[0]
    if len(rows) == 1:
        return rows[0]
    raise AmbiguousError(word, rows)


def _of(
    connection: Connection,
    table: sa.Table,
    here: Mapping[str, Any],
    *order: sa.ColumnElement[Any] | sa.TextClause,
) -> list[dict[str, Any]]:
    query = sa.select(table).where(*(table.c[name] == value for name, value in here.items()))
    query = query.order_by(*order)
    return [dict(row._mapping) for row in connection.execute(query)]
