"""Database. Whether a response that is fetched has been booked, by whatever process."""

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.model.exchange import Exchange, State
from ledger.store.tables import exchanges, readings


def is_booked(engine: Engine, exchange: Exchange) -> bool:
    """Whether another row with usage has the same origin, response id and key.

    The request that ordered a response and the one that fetches it differ in everything else.
    """
    if exchange.response_id is None:
        return False
    e = exchanges.c
    found = (
        sa.select(e.id)
        .join(readings, readings.c.exchange_id == e.id)
        .where(
            e.response_id == exchange.response_id,
            e.origin == exchange.origin,
            e.key_fingerprint.is_not_distinct_from(exchange.key_fingerprint),
            e.state == State.SETTLED,
            e.id != exchange.id,
            readings.c.usage_json.is_not(None),
        )
        .limit(1)
    )
    with engine.connect() as connection:
        return connection.execute(found).first() is not None
