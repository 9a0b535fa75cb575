"""Database. Which requests a question is about, as conditions on the view `requests`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.errors import LedgerError
from ledger.store.requests_view import requests

COLUMNS = {
    "model": "model",
    "provider": "provider",
    "origin": "origin",
    "dialect": "dialect",
    "operation": "operation",
    "tier": "service_tier",
    "outcome": "outcome",
    "key": "key_fingerprint",
    "session": "session_id",
    "end_user": "end_user",
    "user_agent": "user_agent",
    "source": "source",
    "tag": "tags",
}
"""What a report can be by -> its column; beside these the times, and `tag:NAME`."""
TIMES = {"month": 7, "day": 10, "hour": 13}
"""Characters of `YYYY-MM-DD HH`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which requests are asked for."""

    since: datetime | None = None
    until: datetime | None = None
    only: tuple[tuple[str, str], ...] = ()
    """(a word that a report can be by, its value)."""


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection whose questions all see the same ledger."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            # SQLite's readers have a snapshot in WAL mode anyway.
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def dimension(word: str, dialect: str) -> sa.ColumnElement[Any]:
    """The expression that a report is by."""
    if word in COLUMNS:
        column = requests.c[COLUMNS[word]]
        # PostgreSQL has no order of JSON.
        return sa.cast(column, sa.Text) if word == "tag" else column
    if word in TIMES:
        text: sa.ColumnElement[str] = sa.cast(requests.c.opened_at, sa.Text)
        if dialect == "postgresql":
            at = sa.func.timezone("UTC", requests.c.opened_at)
            text = sa.func.to_char(at, "YYYY-MM-DD HH24")
        return sa.func.substr(text, 1, TIMES[word])
    name = word.removeprefix("tag:")
    if name != word and name and '"' not in name:
        path = name if dialect == "postgresql" else f'$."{name}"'
        return requests.c.tags.op("->>")(sa.literal(path, sa.Text))
    known = ", ".join((*COLUMNS, "tag:NAME", *TIMES))
    raise LedgerError(f"nothing is by {word[:60]!r}; by one of {known}")


def conditions(scope: Scope, dialect: str) -> list[sa.ColumnElement[bool]]:
    """What a request must meet to be in a scope."""
    return within(scope, requests.c.opened_at) + [
        dimension(word, dialect) == value for word, value in scope.only
    ]


def within(scope: Scope, opened_at: sa.ColumnElement[datetime]) -> list[sa.ColumnElement[bool]]:
    """The conditions of a scope's period on a column of moments."""
    where = []
    if scope.since is not None:
        where.append(opened_at >= scope.since)
    if scope.until is not None:
        where.append(opened_at < scope.until)
    return where
