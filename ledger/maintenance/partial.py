"""Database. Merges the ledgers of parts of an archive into the target ledger.

A part is a SQLite ledger that another process, maybe on another machine, filled from recordings. It
is merged as `sync` merges ledgers, so a part that comes twice adds nothing. Two rules are added to
`sync`: an exchange that the target has settled is left out, even if the recording gives it another
start; and one that the target has as open or lost gets the start that it has there, because the
start is part of the key.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.maintenance.rollup import roll
from ledger.model.errors import LedgerError
from ledger.model.exchange import Outcome, State
from ledger.store import db
from ledger.store.engines import urls
from ledger.store.keys import instant_text
from ledger.store.processes.supervision import Log
from ledger.store.tables import OF_EXCHANGES, exchanges
from ledger.sync import spool
from ledger.sync.merging import (
    ANSWER_SECONDS_MAX,
    BUNDLE_EXCHANGES_MAX,
    RefusedExchange,
    deliver,
    reason_of,
)

IDS_MAX = 500
"""Ids of one query: each is a bound parameter, and SQLite accepts 32 766."""

type _Rows = Sequence[Any]
"""opened_at, id, dialect and outcome of exchanges."""


@dataclass(slots=True)
class PartMerged:
    """What a part added."""

    new: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    """By dialect and outcome."""
    known: int = 0
    refused: list[RefusedExchange] = field(default_factory=list)


class PartsMerger:
    """Merges parts into one ledger. LedgerError where that cannot be written."""

    def __init__(self, target_url: str) -> None:
        parsed = urls.parse_url(target_url)
        self._target = db.ensure(parsed, answer_seconds_max=ANSWER_SECONDS_MAX)
        self._places = [self._target]
        """Where an exchange of the target may be: of a shared one also this machine's spool."""
        if urls.file_of(parsed) is None and (path := spool.path_for(parsed)).is_file():
            self._places.append(db.open_existing(f"sqlite:///{path}"))
        self._months: set[date] = set()

    def merge(self, part: Path) -> PartMerged:
        """Add what the target does not have of a part."""
        merged = PartMerged()
        source = db.open_existing(f"sqlite:///{part}")
        try:
            with source.connect() as reader:
                e = exchanges.c
                query = sa.select(e.opened_at, e.id, e.dialect, e.outcome)
                rows = reader.execute(query.order_by(e.opened_at, e.id)).all()
            new, moved = self._sorted_out(rows)
            merged.known = len(rows) - len(new)
            _move(source, moved)
            with source.connect() as reader:
                for at in range(0, len(new), BUNDLE_EXCHANGES_MAX):
                    self._deliver(reader, new[at : at + BUNDLE_EXCHANGES_MAX], moved, merged)
        except sa.exc.DBAPIError as error:
            raise LedgerError(
                f"interrupted: {reason_of(error)}; run it again, what is done is not done twice"
            ) from error
        finally:
            source.dispose()
        return merged

    def close(self, *, log: Log) -> None:
        """Sum up the days of a SQLite ledger, and close it."""
        try:
            if urls.file_of(self._target.url) is not None:
                roll(self._target, now=datetime.now(UTC), log=log)
        finally:
            for engine in self._places:
                engine.dispose()

    def _sorted_out(self, rows: _Rows) -> tuple[_Rows, dict[str, datetime]]:
        """The rows that the target has not settled, and the starts that it has of some of them."""
        settled: set[str] = set()
        moved: dict[str, datetime] = {}
        for engine in self._places:
            with engine.connect() as connection:
                for at in range(0, len(rows), IDS_MAX):
                    some = {row.id: row for row in rows[at : at + IDS_MAX]}
                    for found in connection.execute(
                        sa.select(exchanges.c.id, exchanges.c.opened_at, exchanges.c.state).where(
                            exchanges.c.id.in_(list(some))
                        )
                    ):
                        if found.state == State.SETTLED.value:
                            settled.add(found.id)
                        elif found.opened_at != some[found.id].opened_at:
                            moved[found.id] = found.opened_at
        new = [row for row in rows if row.id not in settled]
        return new, {one: at for one, at in moved.items() if one not in settled}

    def _deliver(
        self,
        reader: Connection,
        rows: _Rows,
        moved: dict[str, datetime],
        merged: PartMerged,
    ) -> None:
        keys = [(instant_text(moved.get(row.id, row.opened_at)), row.id) for row in rows]
        refused = deliver(reader, self._target, keys, self._months)
        merged.refused += refused
        not_taken = {one.key[1] for one in refused}
        merged.new.update(
            (row.dialect, Outcome(row.outcome))
            for row in rows
            if row.outcome is not None and row.id not in not_taken
        )


def _move(source: Engine, moved: dict[str, datetime]) -> None:
    """Change the start of exchanges in the ledger of a part."""
    if not moved:
        return
    there = {each.name for each in OF_EXCHANGES} & {*sa.inspect(source).get_table_names()}
    pooled = source.raw_connection()
    try:
        connection = pooled.driver_connection
        assert connection is not None
        connection.execute("PRAGMA foreign_keys = OFF")
        # They refuse changes of settled facts.
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in triggers.fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        for table in there:
            column = "id" if table == exchanges.name else "exchange_id"
            connection.executemany(
                f"UPDATE {table} SET opened_at = ? WHERE {column} = ?",
                [(instant_text(at), one) for one, at in moved.items()],
            )
        connection.commit()
    finally:
        pooled.close()
