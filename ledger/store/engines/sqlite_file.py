"""Database. A ledger's SQLite file, with the driver alone.

A recording proxy writes through these connections, and engines connect in the same way. SQLAlchemy
and the tables would hold 12 MB of each proxy's memory and cost its start 0.2 s (measured).
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.store.schema import guards, views

BUSY_MS_MAX = 4_000
"""How long a statement waits for another process's write: far longer than a batch takes, and
shorter than the end of an answer waits for its commit (5 s)."""
EMPTY_LEDGER = "empty_sqlite.sql"
"""The schema that all migrations together make in an empty SQLite file. A test compares it with
them, and `python -m tests.ledger.store.engines.empty_ledger` rewrites it when a migration is
added."""
STATEMENT_END = ";\n--\n"
"""Triggers contain semicolons, so a semicolon alone does not end a statement."""
MIGRATIONS = Path(__file__).parents[3] / "migrations"
"""The migrations lie beside this package, in a checkout and in a wheel."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection for any thread, one at a time; a missing file is not created. Transactions are
    begun explicitly."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    try:
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection) -> None:
    """Set up a new connection: durable, patient, checking references."""
    # The driver begins its transactions late and not before DDL, so we begin them ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS_MAX}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that takes the write lock at the start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def revision_of(connection: sqlite3.Connection) -> str | None:
    """The schema of a ledger; None if it has none yet."""
    table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
    if connection.execute(table).fetchone() is None:
        return None
    found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if found is None else str(found[0])


def create_schema(connection: sqlite3.Connection) -> None:
    """Create, in a transaction, the schema that all migrations together give. Alembic and what it
    imports would cost the first start 0.35 s and the proxy 13 MB for good (measured)."""
    statements = (MIGRATIONS / EMPTY_LEDGER).read_text().split(STATEMENT_END)[:-1]
    for statement in (*statements, *views.statements("sqlite"), *guards.statements("sqlite")):
        connection.execute(statement)
