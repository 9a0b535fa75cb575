"""Database. Which exchanges a ledger has already, so that recordings of them need not be read, and
which answers in an agent's log were recorded on the wire, too.

A SQLite file is read with the driver alone: a reading that finds every exchange known would need
SQLAlchemy for nothing else, and half its CPU time went into that import (measured).

A log that names the response is matched by its id. One that does not is matched by session, input
and output tokens and time: each recorded row matches at most one logged answer.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import batched
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.model.errors import LedgerError
from ledger.model.exchange import Source, State
from ledger.store.engines import sqlite_file, urls

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_SETTLED = (
    f"SELECT id, path FROM exchanges WHERE id IN ({{ids}}) AND state = '{State.SETTLED.value}'"
)
_IN_FILE = _SETTLED.format(ids="SELECT value FROM json_each(:ids)")
_IN_POSTGRESQL = _SETTLED.format(ids="SELECT json_array_elements_text(CAST(:ids AS json))")
"""The ids are one parameter: SQLAlchemy takes 10 µs for each bound one (measured)."""

QUESTION_MAX = 500
"""Ids of one question about a log: each is a bound parameter."""
APART_MAX = timedelta(minutes=10)
"""How far the log's time may be from the recorded one: an agent writes its log when an answer is
complete, and its clock is another than the proxy's if it runs on another machine."""

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
            self._lookups.append(
                lambda ids: dict(connection.execute(_IN_FILE, {"ids": json.dumps(ids)}).fetchall())
            )
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
        raise LedgerError(urls.no_ledger(path))
    connection, found = sqlite_file.opened(path, shown)
    if found is None:
        connection.close()
        raise LedgerError(urls.no_tables(shown))
    return connection


def _settled(engine: Engine, ids: Sequence[str]) -> dict[str, str]:
    import sqlalchemy as sa

    statement = _IN_FILE if engine.dialect.name == "sqlite" else _IN_POSTGRESQL
    with engine.connect() as connection:
        rows = connection.execute(sa.text(statement), {"ids": json.dumps(ids)})
        return {row.id: row.path for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One answer in a log, as far as it can be matched."""

    at: datetime
    response_id: str | None
    session_id: str
    input_tokens: int | None
    output_tokens: int | None


def recorded(engine: Engine, answers: Sequence[Logged]) -> list[bool]:
    """For each answer, in order, whether the ledger has it from the wire."""
    import sqlalchemy as sa

    from ledger.store.scope import requests

    r = requests.c
    ids = {one.response_id for one in answers if one.response_id is not None}
    sessions = {one.session_id for one in answers if one.response_id is None}
    by_id: set[str] = set()
    by_session: dict[str, list[Any]] = defaultdict(list)
    columns = (r.response_id, r.session_id, r.opened_at, r.settled_at)
    query = (
        sa.select(*columns, r.input_tokens, r.output_tokens)
        .where(r.source != Source.IMPORT)
        .order_by(r.opened_at, r.id)
    )
    with engine.connect() as connection:
        for some in batched(sorted(ids), QUESTION_MAX):
            found = connection.execute(query.where(r.response_id.in_(some)))
            by_id.update(row.response_id for row in found)
        for some in batched(sorted(sessions), QUESTION_MAX):
            for row in connection.execute(query.where(r.session_id.in_(some))):
                by_session[row.session_id].append(row)
    return [
        one.response_id in by_id
        if one.response_id is not None
        else _take(by_session[one.session_id], one)
        for one in answers
    ]


def _take(rows: list[Any], one: Logged) -> bool:
    """Whether a row matches; it is removed, so that it matches no other answer."""
    for row in rows:
        is_same = (row.input_tokens, row.output_tokens) == (one.input_tokens, one.output_tokens)
        if is_same and row.opened_at - APART_MAX <= one.at <= row.settled_at + APART_MAX:
            rows.remove(row)
            return True
    return False
