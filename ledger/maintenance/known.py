"""Database. Which exchanges a ledger has already, so that recordings of them need not be read, and
which requests may be the answers in an agent's log.

A SQLite file is read with the driver alone: a reading that finds every exchange known would need
SQLAlchemy for nothing else, and half its CPU time went into that import (measured).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from itertools import batched
from typing import TYPE_CHECKING, Any

from ledger.model.errors import LedgerError, NoLedgerError
from ledger.model.exchange import Outcome, Source, State
from ledger.store.engines import sqlite_file, urls

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.engine import Connection, Engine

_ENDED_PATHS = (
    f"SELECT id, path FROM exchanges WHERE id IN ({{ids}}) AND state = '{State.SETTLED.value}'"
)
_IN_FILE = _ENDED_PATHS.format(ids="SELECT value FROM json_each(:ids)")
_IN_POSTGRESQL = _ENDED_PATHS.format(ids="SELECT json_array_elements_text(CAST(:ids AS json))")
"""The ids are one parameter: SQLAlchemy takes 10 µs for each bound one (measured)."""

QUESTION_MAX = 500
"""Ids of one question about a log: each is a bound parameter."""

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
            if not path.is_file():
                raise NoLedgerError(urls.no_ledger(path))
            shown = urls.shown(ledger_url)
            connection, revision = sqlite_file.opened(path, shown)
            if revision is None:
                connection.close()
                raise LedgerError(urls.empty(shown))
            self._close.append(connection.close)
            self._lookups.append(
                lambda ids: dict(connection.execute(_IN_FILE, {"ids": json.dumps(ids)}).fetchall())
            )
        else:
            self._lookups += [partial(_settled, engine) for engine in self.engines]

    @cached_property
    def engines(self) -> list[Engine]:
        """On every place where an exchange of this ledger may be."""
        from ledger.store import db, spool

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

    def noted(self, key: str) -> list[str | None]:
        """The value under a key of the ledger's own state, on each place: the file or this
        machine's spool first, then the shared ledger if it can be reached."""
        from ledger.store import db

        found = []
        for engine in self.engines:
            with engine.connect() as connection:
                found.append(db.noted(connection, key))
        return found

    def note(self, key: str, value: str, *, shared: tuple[str, str]) -> None:
        """Keep a value in the file or the spool, and another key and value in a shared ledger,
        there first."""
        from ledger.store import db

        own, *others = self.engines
        for engine, (name, kept) in [*((each, shared) for each in others), (own, (key, value))]:
            with db.writing(engine) as connection:
                db.note(connection, name, kept)

    def close(self) -> None:
        """Close the connections."""
        for close in self._close:
            close()


def _settled(engine: Engine, ids: Sequence[str]) -> dict[str, str]:
    import sqlalchemy as sa

    statement = _IN_FILE if engine.dialect.name == "sqlite" else _IN_POSTGRESQL
    with engine.connect() as connection:
        rows = connection.execute(sa.text(statement), {"ids": json.dumps(ids)})
        return {row.id: row.path for row in rows}


@dataclass(slots=True)
class BookedAnswer:
    """A request of the ledger, as far as a logged answer can be recognised as it."""

    id: str
    is_import: bool
    agent: str | None
    response_id: str | None
    session_id: str | None
    opened_at: datetime
    settled_at: datetime
    usage_source: str | None
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    model: str | None = None
    usage_json: str | None = None
    parent_session_id: str | None = None


def booked_answers(
    engine: Engine,
    *,
    ids: Iterable[str] = (),
    response_ids: Iterable[str] = (),
    sessions: Iterable[str] = (),
    with_subagents: bool = False,
    times: Iterable[datetime] = (),
    agents: Iterable[str] = (),
    spans: Iterable[tuple[datetime, datetime]] = (),
    whole_agents: Iterable[str] = (),
    models: Iterable[str] = (),
    inputs: Iterable[int] = (),
    copied_inputs: Iterable[int] = (),
) -> list[BookedAnswer]:
    """The requests that have ended with one of these ids, response ids, sessions or times of
    opening, in the order of their times, and those of sessions that such a one started
    (`with_subagents`); and those of these agents that were recorded within `spans` of time without
    a session, or without both and with one of these `inputs` or `models`; and with one of the
    `copied_inputs`, of whatever session; and all that were recorded of `whole_agents`."""

    from ledger.store.scope import requests

    r = requests.c
    query = _answers()
    found: dict[str, BookedAnswer] = {}
    wanted: tuple[tuple[Any, Iterable[Any]], ...] = (
        (r.id, ids),
        (r.response_id, response_ids),
        (r.session_id, sessions := list(sessions)),
        (r.parent_session_id, sessions if with_subagents else ()),
        (r.opened_at, times),
    )
    questions = [
        query.where(column.in_(some))
        for column, values in wanted
        for some in batched(sorted(set(values)), QUESTION_MAX)
    ]
    if named := sorted(set(whole_agents)):
        questions.append(query.where(r.source != Source.IMPORT, r.agent.in_(named)))
    for span in spans:
        without_session = query.where(r.session_id.is_(None), r.source != Source.IMPORT)
        without_session = without_session.where(r.opened_at.between(*span))
        questions.append(without_session.where(r.agent.in_(sorted(set(agents)))))
        questions += [
            without_session.where(r.agent.is_(None), r.input_tokens.in_(some))
            for some in batched(sorted(set(inputs)), QUESTION_MAX)
        ]
        recorded = query.where(r.source != Source.IMPORT, r.opened_at.between(*span))
        questions += [
            recorded.where(r.agent.in_(sorted(set(agents))), r.input_tokens.in_(some))
            for some in batched(sorted(set(copied_inputs)), QUESTION_MAX)
        ]
        if some_models := sorted(set(models)):
            questions.append(without_session.where(r.agent.is_(None), r.model.in_(some_models)))
    with engine.connect() as connection:
        for question in questions:
            found |= {each.id: each for each in _read(connection, question)}
    return sorted(found.values(), key=lambda answer: (answer.opened_at, answer.id))


def answers_of(connection: Connection, condition: ColumnElement[bool]) -> list[BookedAnswer]:
    """The requests of a condition on the view `requests` that have ended, but for errors."""
    return _read(connection, _answers().where(condition))


def _answers() -> Select[Any]:
    import sqlalchemy as sa

    from ledger.store.scope import requests

    r = requests.c
    names = [each for each in BookedAnswer.__dataclass_fields__ if each != "is_import"]
    columns = [
        # PostgreSQL's JSON as text, too.
        sa.cast(r[name], sa.Text).label(name) if name == "usage_json" else r[name]
        for name in names
    ]
    return sa.select(*columns, r.source).where(
        r.outcome.not_in((Outcome.HTTP_ERROR, Outcome.REFUSED))
    )


def _read(connection: Connection, question: Select[Any]) -> list[BookedAnswer]:
    found = []
    for row in connection.execute(question):
        facts = row._asdict()
        is_import = facts.pop("source") == Source.IMPORT
        found.append(BookedAnswer(**facts, is_import=is_import))
    return found
