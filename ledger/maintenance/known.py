"""Database. Which exchanges a ledger has already, so that recordings of them need not be read.

A SQLite file is read with the driver alone: a reading that finds every exchange known would need
SQLAlchemy for nothing else, and half its CPU time went into that import (measured).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.model.errors import LedgerError
from ledger.model.exchange import State
from ledger.store.engines import advice, sqlite_file, urls

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_SETTLED = (
    f"SELECT id, path FROM exchanges WHERE id IN ({{ids}}) AND state = '{State.SETTLED.value}'"
)
_IN_FILE = _SETTLED.format(ids="SELECT value FROM json_each(:ids)")
_IN_POSTGRESQL = _SETTLED.format(ids="SELECT json_array_elements_text(CAST(:ids AS json))")
"""The ids are one parameter: SQLAlchemy takes 10 µs for each bound one (measured)."""

type _Lookup = Callable[[Sequence[str]], dict[str, str]]


class KnownExchanges:
    """Looks up exchanges in a ledger; of a shared one in this machine's spool first, from which an
    exchange goes only when the shared ledger has it. LedgerError if there is no ledger."""

    def __init__(self, ledger_url: str) -> None:
        self._url = ledger_url
        self._close: list[Callable[[], None]] = []
        self._lookups: list[_Lookup] = []
        path = urls.sqlite_path(ledger_url)
        if path is not None:
            connection = _connected(path, urls.shown(ledger_url))
            self._close.append(connection.close)
            self._lookups.append(partial(_settled_in_file, connection))
        else:
            self._lookups += [partial(_settled, engine) for engine in self.engines]

    @cached_property
    def engines(self) -> list[Engine]:
        """On every place where an exchange of this ledger may be."""
        from ledger.store import db
        from ledger.sync import spool

        target = urls.parse_url(self._url)
        if urls.file_of(target) is not None:
            found = [db.open_existing(self._url)]
        else:
            found = [db.open_existing(f"sqlite:///{spool.path_for(target)}")]
            # While it is down, exchanges wait in the spool and are merged by their id.
            with suppress(LedgerError):
                found.append(db.open_existing(self._url))
        self._close += [engine.dispose for engine in found]
        return found

    def settled(self, ids: Sequence[str]) -> dict[str, str]:
        """The paths of the exchanges that have ended, by id. Lost ones are left out: a recording
        may tell how they ended."""
        found: dict[str, str] = {}
        for lookup in self._lookups:
            if left := [one for one in ids if one not in found]:
                found |= lookup(left)
        return found

    def close(self) -> None:
        """Close the connections."""
        for close in self._close:
            close()


def _connected(path: Path, shown: str) -> sqlite3.Connection:
    if not path.is_file():
        raise LedgerError(advice.no_ledger(path))
    connection, found = sqlite_file.opened(path, shown)
    if found is None:
        connection.close()
        raise LedgerError(advice.no_tables(shown))
    return connection


def _settled_in_file(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, str]:
    return dict(connection.execute(_IN_FILE, {"ids": json.dumps(ids)}).fetchall())


def _settled(engine: Engine, ids: Sequence[str]) -> dict[str, str]:
    import sqlalchemy as sa

    statement = _IN_FILE if engine.dialect.name == "sqlite" else _IN_POSTGRESQL
    with engine.connect() as connection:
        rows = connection.execute(sa.text(statement), {"ids": json.dumps(ids)})
        return {row.id: row.path for row in rows}
