"""Database. Marks the open rows of a killed process as `lost`, with the facts that are known.

A lost row stays and counts as a request without usage. If the end becomes known later (a spool that
comes back, a saved flow that is replayed), the settled row replaces the lost one: the placeholder
reading that is written here has revision 0, below any real one.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.exchange import State
from ledger.store import db
from ledger.store.processes import nodes
from ledger.store.schema.columns import instant_text
from ledger.store.tables import exchanges

SILENT_HOURS = 1
"""A node sends a heartbeat every minute while its shipper reaches the shared ledger. A node that
was only cut off settles its lost rows when it comes back."""


def mark_lost_of_dead_nodes(
    engine: Engine, ledger: Path, own_node: str, *, now: datetime, spooling: bool = False
) -> int:
    """Mark the open rows of dead processes in a SQLite ledger as lost; how many."""
    with db.writing(engine) as connection:
        dead = [
            node
            for node in connection.scalars(
                sa.select(exchanges.c.node).where(exchanges.c.state == State.OPEN).distinct()
            ).all()
            if node != own_node and (node is None or not nodes.is_alive(ledger, node))
        ]
        # No recording process opened the rows without a node.
        return sum(
            _mark_lost(
                connection,
                "state = 'open' AND node IS :node",
                {"node": node},
                now=now,
                spooling=spooling,
            )
            for node in dead
        )


def mark_lost_of_silent_nodes(connection: Connection) -> int:
    """Mark the open rows of nodes without a recent heartbeat in a shared ledger as lost."""
    return _mark_lost(
        connection,
        "state = 'open' AND opened_at < now() - CAST(:silence AS interval) AND NOT EXISTS ("
        "SELECT 1 FROM nodes WHERE nodes.node = exchanges.node "
        "AND nodes.seen_at > now() - CAST(:silence AS interval))",
        {"silence": f"{SILENT_HOURS} hours"},
        now=datetime.now(UTC),
    )


def record_heartbeats(connection: Connection, live: Iterable[str]) -> None:
    """Record a heartbeat of these nodes in a shared ledger."""
    for node in sorted(live):
        connection.execute(
            sa.text(
                "INSERT INTO nodes (node, seen_at) VALUES (:node, now()) "
                "ON CONFLICT (node) DO UPDATE SET seen_at = excluded.seen_at"
            ),
            {"node": node},
        )


def live_nodes(connection: Connection, ledger: Path) -> set[str]:
    """The live nodes that have open rows in a SQLite ledger."""
    found = connection.scalars(
        sa.select(exchanges.c.node).where(exchanges.c.state == State.OPEN).distinct()
    )
    return {node for node in found if node is not None and nodes.is_alive(ledger, node)}


def _mark_lost(
    connection: Connection,
    which: str,
    parameters: dict[str, Any],
    *,
    now: datetime,
    spooling: bool = False,
) -> int:
    parameters |= {"now": instant_text(now)}
    document = "json" if connection.dialect.name == "postgresql" else "text"
    instant = "timestamptz" if connection.dialect.name == "postgresql" else "text"
    connection.execute(
        sa.text(f"""
        INSERT INTO readings (id, exchange_id, opened_at, revision, meter_version, usage_source,
          tool_units, further, remarks, read_at, reason)
        SELECT 'lost.' || id, id, opened_at, 0, 'none', 'none', CAST('{{}}' AS {document}),
          CAST('[]' AS {document}), CAST('[]' AS {document}), CAST(:now AS {instant}),
          'the recording process ended first'
        FROM exchanges WHERE {which} ON CONFLICT DO NOTHING"""),
        parameters,
    )
    if spooling:
        connection.execute(
            sa.text(
                "INSERT INTO outbox (exchange_id, opened_at) "
                f"SELECT id, opened_at FROM exchanges WHERE {which}"
            ),
            parameters,
        )
    return connection.execute(
        sa.text(
            "UPDATE exchanges SET state = 'lost', outcome = 'lost', "
            f"settled_at = CAST(:now AS {instant}) WHERE {which}"
        ),
        parameters,
    ).rowcount
