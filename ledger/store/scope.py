"""Database. The scope of a query, as conditions on the view `requests`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.settings.names import NO_NAMES, Names
from ledger.store.dimensions import condition, effective
from ledger.store.requests_view import requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which requests a query selects."""

    since: datetime | None = None
    until: datetime | None = None
    only: tuple[tuple[str, str], ...] = ()
    """(dimension, value): a request must have one of the values of each dimension. `*` and `?`
    stand for any characters."""
    names: Names = NO_NAMES
    """The names of teams, people, cost centres and keys."""
    zone: ZoneInfo | None = None
    """Of the days that requests are grouped by; None: UTC."""

    def wanted(self) -> dict[str, list[str]]:
        """Dimension -> the values of which a request must have one."""
        found: dict[str, list[str]] = {}
        for word, value in self.only:
            found.setdefault(effective(word, self.names), []).append(value)
        return found


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection whose queries all see the same snapshot."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            # SQLite's readers have a snapshot in WAL mode anyway.
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def conditions(
    scope: Scope, dialect: str, of: sa.FromClause = requests
) -> list[sa.ColumnElement[bool]]:
    """The conditions for a request to be in a scope; `of` has the columns of `requests`."""
    return [*within(scope, of.c.opened_at), *limits(scope, dialect, of)]


def limits(scope: Scope, dialect: str, of: sa.FromClause) -> list[sa.ColumnElement[bool]]:
    """The conditions of a scope beside its period."""
    return [
        condition(word, values, dialect, scope.names, of, zone=scope.zone)
        for word, values in scope.wanted().items()
    ]


def within(scope: Scope, opened_at: sa.ColumnElement[datetime]) -> list[sa.ColumnElement[bool]]:
    """The conditions of a scope's period on a column of moments."""
    where = []
    if scope.since is not None:
        where.append(opened_at >= scope.since)
    if scope.until is not None:
        where.append(opened_at < scope.until)
    return where
