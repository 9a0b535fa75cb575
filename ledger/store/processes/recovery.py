"""Database. Marks the open rows of a killed process as `lost`, with the facts that are known.

A lost row stays and counts as a request without usage. If the end becomes known later (a spool that
comes back, a saved flow that is replayed), the settled row replaces the lost one: the placeholder
reading that is written here has revision 0, below any real one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.model.exchange import NO_METER
from ledger.store.engines import sqlite_file
from ledger.store.keys import instant_text
from ledger.store.processes import nodes

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

SILENT_HOURS = 1
"""A node sends a heartbeat every minute while its shipper reaches the shared ledger. A node that
was only cut off settles its lost rows when it comes back."""

_OPEN_NODES = "SELECT DISTINCT node FROM exchanges WHERE state = 'open'"


def mark_lost_of_dead_nodes(
    connection: sqlite3.Connection,
    ledger: Path,
    own_node: str,
    *,
    now: datetime,
    spooling: bool = False,
) -> int:
    """Mark the open rows of dead processes in a SQLite ledger as lost; how many."""
    lost = 0
    with sqlite_file.writing(connection):
        for (node,) in connection.execute(_OPEN_NODES).fetchall():
            # No recording process opened the rows without a node.
            if node == own_node or (node is not None and nodes.is_alive(ledger, node)):
                continue
            parameters = {"node": node, "now": instant_text(now)}
            which = "state = 'open' AND node IS :node"
            for statement in _marking(which, "sqlite", spooling=spooling):
                marked = connection.execute(statement, parameters).rowcount
            lost += marked
    return lost


def mark_lost_of_silent_nodes(connection: Connection) -> int:
    """Mark the open rows of nodes without a recent heartbeat in a shared ledger as lost."""
    import sqlalchemy as sa

    which = (
        "state = 'open' AND opened_at < now() - CAST(:silence AS interval) AND NOT EXISTS ("
        "SELECT 1 FROM nodes WHERE nodes.node = exchanges.node "
        "AND nodes.seen_at > now() - CAST(:silence AS interval))"
    )
    parameters = {"silence": f"{SILENT_HOURS} hours", "now": instant_text(datetime.now(UTC))}
    for statement in _marking(which, "postgresql"):
        marked = connection.execute(sa.text(statement), parameters).rowcount
    return marked


def record_heartbeats(connection: Connection, live: Iterable[str]) -> None:
    """Record a heartbeat of these nodes in a shared ledger."""
    import sqlalchemy as sa

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
    found = connection.exec_driver_sql(_OPEN_NODES).scalars()
    return {node for node in found if node is not None and nodes.is_alive(ledger, node)}


def _marking(which: str, dialect: str, *, spooling: bool = False) -> Iterator[str]:
    """The statements that mark the exchanges of a condition as lost; the last one counts them."""
    document = "json" if dialect == "postgresql" else "text"
    instant = "timestamptz" if dialect == "postgresql" else "text"
    yield f"""
        INSERT INTO readings (id, exchange_id, opened_at, revision, meter_version, usage_source,
          tool_units, further, remarks, read_at, reason)
        SELECT 'lost.' || id, id, opened_at, 0, '{NO_METER}', 'none', CAST('{{}}' AS {document}),
          CAST('[]' AS {document}), CAST('[]' AS {document}), CAST(:now AS {instant}),
          'the recording process ended first'
        FROM exchanges WHERE {which} ON CONFLICT DO NOTHING"""
    if spooling:
        yield (
            "INSERT INTO outbox (exchange_id, opened_at) "
            f"SELECT id, opened_at FROM exchanges WHERE {which}"
        )
    yield (
        "UPDATE exchanges SET state = 'lost', outcome = 'lost', "
        f"settled_at = CAST(:now AS {instant}) WHERE {which}"
    )
