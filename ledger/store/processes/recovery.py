"""Database. What a killed process left open becomes `lost`, with what is known.

Its row stays and counts as a request without usage. Should its end become known after all (a
spool that comes back, a saved flow that is replayed), the settled row takes the lost one's place:
the reading that stands in here has revision 0, below any real one.
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
"""A node speaks up every minute while its shipper reaches the shared ledger. One that was only cut
off for so long comes back and settles what was given up."""


def give_up_lost(
    engine: Engine, ledger: Path, own_node: str, *, now: datetime, spooling: bool = False
) -> int:
    """Record as lost what dead processes left open in a SQLite ledger; how many those were."""
    with db.writing(engine) as connection:
        dead = [
            node
            for node in connection.scalars(
                sa.select(exchanges.c.node).where(exchanges.c.state == State.OPEN).distinct()
            ).all()
            if node != own_node and (node is None or not nodes.is_alive(ledger, node))
        ]
        # Rows without a node were opened by no recording process, and belong to nobody.
        return sum(
            _lose(
                connection,
                "state = 'open' AND node IS :node",
                {"node": node},
                now=now,
                spooling=spooling,
            )
            for node in dead
        )


def lose_silent(connection: Connection) -> int:
    """Record as lost, in a shared ledger, what nodes left open that were not heard of for long."""
    return _lose(
        connection,
        "state = 'open' AND opened_at < now() - CAST(:silence AS interval) AND NOT EXISTS ("
        "SELECT 1 FROM nodes WHERE nodes.node = exchanges.node "
        "AND nodes.seen_at > now() - CAST(:silence AS interval))",
        {"silence": f"{SILENT_HOURS} hours"},
        now=datetime.now(UTC),
    )


def hear(connection: Connection, heard: Iterable[str]) -> None:
    """Note, in a shared ledger, that these nodes are alive."""
    for node in sorted(heard):
        connection.execute(
            sa.text(
                "INSERT INTO nodes (node, seen_at) VALUES (:node, now()) "
                "ON CONFLICT (node) DO UPDATE SET seen_at = excluded.seen_at"
            ),
            {"node": node},
        )


def living(connection: Connection, ledger: Path) -> set[str]:
    """The nodes that have open rows in a SQLite ledger, and live."""
    found = connection.scalars(
        sa.select(exchanges.c.node).where(exchanges.c.state == State.OPEN).distinct()
    )
    return {node for node in found if node is not None and nodes.is_alive(ledger, node)}


def _lose(
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
