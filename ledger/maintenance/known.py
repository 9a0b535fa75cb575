"""Database. Which exchanges a ledger has already, so that recordings of them need not be read."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.model.errors import LedgerError
from ledger.model.exchange import State
from ledger.store import db
from ledger.store.engines import urls
from ledger.store.tables import exchanges
from ledger.sync import spool

IDS_MAX = 500
"""Of one question: each is a bound parameter, and SQLite takes 32 766."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A settled exchange that a ledger has."""

    id: str
    path: str


class KnownExchanges:
    """Looks up exchanges in a ledger; of a shared one in this machine's spool first, from which an
    exchange goes only when the shared ledger has it. LedgerError if there is no ledger."""

    def __init__(self, ledger_url: str) -> None:
        target = urls.parse_url(ledger_url)
        if urls.file_of(target) is not None:
            self.engines = [db.open_existing(ledger_url)]
            """On every place where an exchange of this ledger may be."""
            return
        self.engines = [db.open_existing(f"sqlite:///{spool.path_for(target)}")]
        # While it is down, exchanges wait in the spool and are merged by their id.
        with suppress(LedgerError):
            self.engines.append(db.open_existing(ledger_url))

    def settled(self, ids: Sequence[str]) -> dict[str, Known]:
        """Those of the exchanges that have ended, by id. Lost ones are left out: a recording may
        tell how they ended."""
        found: dict[str, Known] = {}
        for engine in self.engines:
            found |= _settled(engine, [one for one in ids if one not in found])
        return found

    def close(self) -> None:
        """Close the connections."""
        for engine in self.engines:
            engine.dispose()


def _settled(engine: Engine, ids: Sequence[str]) -> dict[str, Known]:
    found: dict[str, Known] = {}
    with engine.connect() as connection:
        for at in range(0, len(ids), IDS_MAX):
            rows = connection.execute(
                sa.select(exchanges.c.id, exchanges.c.path).where(
                    exchanges.c.id.in_(ids[at : at + IDS_MAX]),
                    exchanges.c.state == State.SETTLED.value,
                )
            )
            found.update((row.id, Known(id=row.id, path=row.path)) for row in rows)
    return found
