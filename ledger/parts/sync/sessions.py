"""Database. Sessions of hosted agents in a ledger that others are merged into: each ledger booked
what it had not booked itself, so what overlaps takes further readings (`running_totals`)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.model.charge import Charge
from ledger.model.exchange import SESSION_OPERATIONS, Exchange, Reading
from ledger.parts.sync.bundles import LINK_LOCK, Bundle
from ledger.store.keys import Key, chosen, exchange_of, parameters, reading_of
from ledger.store.tables import exchanges, readings
from ledger.store.writing import batch_insert, running_totals
from ledger.store.writing.running_totals import Price, Row


def are_in(bundle: Bundle) -> bool:
    """Whether a bundle may have rows of such sessions."""
    return any(
        f'"{operation}"' in rows
        for table, _, rows in bundle
        if table is exchanges
        for operation in SESSION_OPERATIONS
    )


def settle(connection: Connection, keys: Sequence[Key], price: Price | None) -> None:
    """Book the sessions of these exchanges anew, each row as far as it counts beside the others.
    Of two writers on PostgreSQL, the later one sees both. `price`: None for the own price book."""
    which = sa.text(
        "SELECT DISTINCT e.session_id, e.origin, e.dialect FROM exchanges e "
        f"WHERE (e.opened_at, e.id) IN ({chosen(connection.dialect.name)}) "
        f"AND e.operation IN {SESSION_OPERATIONS} AND e.session_id IS NOT NULL"
    )
    sessions = connection.execute(which, parameters(keys)).mappings().all()
    if sessions and connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LINK_LOCK)))

    def whole(row: Row) -> tuple[Exchange, Reading]:
        e, r = exchanges.c, readings.c
        exchange = sa.select(exchanges).where(e.opened_at == row.opened_at, e.id == row.id)
        reading = sa.select(readings).where(
            r.opened_at == row.opened_at, r.exchange_id == row.id, r.id == row.reading_id
        )
        return (
            exchange_of(connection.execute(exchange).one()._asdict()),
            reading_of(connection.execute(reading).one()._asdict()),
        )

    for session in sessions:
        found = connection.execute(sa.text(running_totals.READINGS), dict(session))
        rows = running_totals.rows_of(found.all())
        further = running_totals.further(rows, whole, price or priced, datetime.now(UTC))
        made = [batch_insert.reading_row(reading, lines) for _, reading, lines in further]
        if made:
            connection.execute(sa.insert(readings), made)


def priced(exchange: Exchange, reading: Reading) -> tuple[Charge, ...]:
    """The charges by the own price book."""
    return _own_prices()(exchange, reading)


@cache
def _own_prices() -> Price:
    from ledger.pricing.prices import PriceBook

    return PriceBook.load(None).price
