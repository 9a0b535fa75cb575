"""Database. A ledger's SQLite file, with the driver alone: made, opened, copied.

A recording proxy writes through these connections, and engines connect in the same way. SQLAlchemy
and the tables would hold 12 MB of each proxy's memory and cost its start 0.2 s (measured).
"""

import contextlib
import errno
import glob
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ledger.model.errors import LedgerError
from ledger.store.engines import urls
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
_IS_FOREIGN = (
    "SELECT count(*) > 0 AND (sum(type = 'table' AND name IN "
    "('alembic_version', 'exchanges', 'readings', 'meta')) < 4 "
    "OR sum(type = 'view' AND name IN ('pricings', 'quotas', 'segments')) > 0 "
    "OR (SELECT count(*) FROM sqlite_master AS one, pragma_table_xinfo(one.name) "
    "WHERE one.type = 'table' AND hidden = 2) > 0) FROM sqlite_master"
)
"""Other programs have migrations by Alembic, or exchanges (of currencies), too. A view in place of
a table may have rows without end, and a column that is generated (2) texts without end."""
MIGRATIONS = Path(__file__).parents[3] / "migrations"
"""The migrations lie beside this package, in a checkout and in a wheel."""
REVISION = max(file.name[:4] for file in (MIGRATIONS / "versions").glob("[0-9]*.py"))
"""The schema that this code needs: that of the newest migration."""


def create(path: Path) -> None:
    """An empty file that only its owner can read; SQLite gives the WAL beside it the same mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _make_private(path)
    except OSError as error:
        raise LedgerError(
            f"cannot create the ledger {path}: {error.strerror}; "
            "name a folder you can write to (ledger_url, TOKENTEE_LEDGER)"
        ) from error
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        raise LedgerError(
            f"cannot write the ledger {path}: permission denied; "
            "name a file you can write to (ledger_url, TOKENTEE_LEDGER)"
        )


def _make_private(path: Path) -> None:
    """Remove the rights of other users on a ledger's files, if we own them. OSError for what is no
    file, LedgerError for another program's database: their modes are not ours to change."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file")
    files = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]
    if not any(file.exists() and file.stat().st_mode & 0o077 for file in files):
        return
    with contextlib.suppress(sqlite3.Error):  # no database: what opens it says so
        connect(path).close()
        for file in files:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                file.chmod(0o600)


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


def opened(
    path: Path, shown: str, *, creating: bool = False
) -> tuple[sqlite3.Connection, str | None]:
    """A connection to a ledger, and its schema; `creating` gives an empty file this code's.
    LedgerError, which names the ledger as `shown`, if it cannot be opened or is newer."""
    try:
        connection = connect(path)
        try:
            found = revision_of(connection)
            if found is None and creating:
                with writing(connection):
                    # Another process may have created it meanwhile.
                    found = revision_of(connection)
                    if found is None:
                        create_schema(connection)
                        found = REVISION
            refuse_newer(found, shown)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise LedgerError(urls.file_not_opened(shown, error)) from error
    return connection, found


def prepare(connection: sqlite3.Connection) -> None:
    """Set up a new connection: durable, patient, checking references. LedgerError, before anything
    is changed, for a database of another program."""
    # The driver begins its transactions late and not before DDL, so we begin them ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS_MAX}")
    (is_foreign,) = cursor.execute(_IS_FOREIGN).fetchone()
    if is_foreign:
        raise LedgerError(urls.no_tables(cursor.execute("PRAGMA database_list").fetchone()[2]))
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def is_locked(error: Exception) -> bool:
    """Whether another process has the file just now."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextlib.contextmanager
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


def refuse_newer(found: str | None, shown: str) -> None:
    """LedgerError if a ledger has a newer schema; `shown` names the ledger."""
    if found is not None and str(found) > REVISION:
        raise LedgerError(
            f"{shown} was written by a newer tokentee "
            f"(schema {found}, this is {REVISION}): upgrade tokentee"
        )


def create_schema(connection: sqlite3.Connection) -> None:
    """Create, in a transaction, the schema that all migrations together give. Alembic and what it
    imports would cost the first start 0.35 s and the proxy 13 MB for good (measured)."""
    statements = (MIGRATIONS / EMPTY_LEDGER).read_text().split(STATEMENT_END)[:-1]
    for statement in (*statements, *views.statements("sqlite"), *guards.statements("sqlite")):
        connection.execute(statement)


def copies_of(path: Path) -> list[Path]:
    """The copies that migrations have made beside a ledger."""
    return sorted(
        file
        for file in path.parent.glob(f"{glob.escape(path.name)}.before-*")
        if not file.name.endswith(("-wal", "-shm", ".part"))
    )


def copy_before(path: Path, revision: str, *, new_revision: str) -> Path:
    """Copy a ledger to a file beside it. Each migration step has one file name: a retry replaces
    the copy of the last attempt."""
    name = path.with_name(f"{path.name}.before-{new_revision}-from-{revision}")
    part = name.with_name(f"{name.name}.part")
    part.unlink(missing_ok=True)
    copy(path, part)
    part.replace(name)
    return name


def copy(path: Path, to: Path) -> None:
    """Copy a ledger to a new file. LedgerError if there is no place."""
    try:
        create(to)
        with (
            contextlib.closing(sqlite3.connect(path)) as source,
            contextlib.closing(sqlite3.connect(to)) as target,
        ):
            source.backup(target)
    except (OSError, sqlite3.Error) as error:
        to.unlink(missing_ok=True)
        raise LedgerError(
            f"cannot copy the ledger {path} before its migration: {error}; it is as it was: "
            f"free some disk space for a copy in {to.parent}"
        ) from error
