"""Database. What a killed process left open becomes `lost`, with what is known.

Its row stays and counts as a request without usage. Should its end become known after all (a
spool that comes back, a saved flow that is replayed), the settled row takes the lost one's place:
the reading that stands in here has revision 0, below any real one.
"""

from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger import nodes
from ledger.records import Outcome, State, UsageSource
from ledger.tables import exchanges, outbox, readings


def give_up_lost(
    engine: Engine, ledger: Path, own_node: str, *, now: datetime, spooling: bool = False
) -> int:
    """Record as lost what dead processes left open in a SQLite ledger; how many those were."""
    is_open = exchanges.c.state == State.OPEN
    with engine.begin() as connection:
        found = connection.scalars(sa.select(exchanges.c.node).where(is_open).distinct()).all()
        dead = [
            node
            for node in found
            if node != own_node and (node is None or not nodes.is_alive(ledger, node))
        ]
        if not dead:
            return 0
        # Rows that were opened by no recording process belong to nobody.
        whose = sa.or_(exchanges.c.node.in_(dead), exchanges.c.node.is_(None))
        return lose(connection, sa.and_(is_open, whose), now=now, spooling=spooling)


def lose(
    connection: Connection, which: sa.ColumnElement[bool], *, now: datetime, spooling: bool = False
) -> int:
    """Record these open exchanges as lost."""
    keys = sa.select(exchanges.c.id, exchanges.c.opened_at).where(which)
    connection.execute(
        sa.insert(readings).from_select(
            [
                "id",
                "exchange_id",
                "opened_at",
                "revision",
                "meter_version",
                "usage_source",
                "tool_units",
                "further",
                "remarks",
                "read_at",
                "reason",
            ],
            sa.select(
                sa.literal("lost.") + exchanges.c.id,
                exchanges.c.id,
                exchanges.c.opened_at,
                sa.literal(0),
                sa.literal("none"),
                sa.literal(UsageSource.NONE.value),
                sa.literal("{}", readings.c.tool_units.type),
                sa.literal("[]", readings.c.further.type),
                sa.literal("[]", readings.c.remarks.type),
                sa.literal(now, readings.c.read_at.type),
                sa.literal("the recording process ended first"),
            ).where(which),
        )
    )
    if spooling:
        connection.execute(sa.insert(outbox).from_select(["exchange_id", "opened_at"], keys))
    lost = connection.execute(
        sa.update(exchanges)
        .where(which)
        .values(state=State.LOST.value, outcome=Outcome.LOST.value, settled_at=now)
    )
    return lost.rowcount
