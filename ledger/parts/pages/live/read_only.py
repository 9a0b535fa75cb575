"""Database. A read-only connection to a ledger: no query can change it.

SQLite is opened with `mode=ro`, on PostgreSQL every transaction is READ ONLY. Each query has a
deadline, so that no page keeps a database busy for longer than a user waits for it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.errors import LedgerError
from ledger.store import db
from ledger.store.engines import migration, sqlite_file, urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.text.figures import seconds_text

QUESTION_SECONDS_MAX = 30
"""Users do not wait longer for a part of a page; the error suggests a shorter period."""
INSTRUCTIONS_BETWEEN_CHECKS = 100_000
"""SQLite calls our clock check after this many instructions: about a millisecond."""


class TooLongError(LedgerError):
    """A query took longer than `QUESTION_SECONDS_MAX`."""


def open_read_only(url: str) -> Engine:
    """An engine that can only read. LedgerError if there is no ledger of this version."""
    existing = db.open_existing(url)
    parsed = existing.url
    try:
        found = migration.revision_of(existing)
    finally:
        existing.dispose()
    if found != REVISION:
        raise LedgerError(
            f"{urls.shown(parsed)} has the schema {found}, this tokentee needs {REVISION}: "
            "run `tokentee db upgrade`"
        )
    if path := urls.file_of(parsed):
        uri = path.resolve().as_uri().replace("file://", "file:", 1)
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=uri, query={"mode": "ro", "uri": "true"}),
            hide_parameters=True,
        )
        sa.event.listen(engine, "connect", _on_sqlite_connect)
        sa.event.listen(engine, "checkout", _on_sqlite_checkout)
        return engine
    engine = db.open_engine(parsed)
    sa.event.listen(engine, "begin", _on_postgresql_begin)
    return engine


@contextmanager
def deadline() -> Iterator[None]:
    """Turns the error of an interrupted query into one line."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        text = str(error.orig)
        if "interrupted" in text or "statement timeout" in text:
            raise TooLongError(
                f"this takes longer than {seconds_text(QUESTION_SECONDS_MAX)}: "
                "choose a shorter period"
            ) from error
        raise LedgerError(f"the ledger cannot be read: {' '.join(text.split())[:200]}") from error


def version_of(engine: Engine) -> str:
    """A text that changes after every write to the ledger."""
    if engine.dialect.name == "sqlite":
        # The file's change counter stays the same in WAL mode; the size and time of the file and of
        # its WAL change.
        with engine.connect() as connection:
            name = connection.exec_driver_sql("PRAGMA database_list").one()[2]
        stamps = []
        for suffix in ("", "-wal"):
            try:
                stat = Path(f"{name}{suffix}").stat()
                stamps.append(f"{stat.st_size}.{stat.st_mtime_ns}")
            except OSError:
                stamps.append("-")
        return "/".join(stamps)
    with engine.connect() as connection:
        return str(
            connection.exec_driver_sql(
                "SELECT SUM(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
            ).scalar()
        )


def _on_sqlite_connect(connection: Any, _entry: Any) -> None:
    connection.execute(f"PRAGMA busy_timeout = {sqlite_file.BUSY_MS_MAX}")
    connection.execute("PRAGMA query_only = ON")


def _on_sqlite_checkout(connection: Any, _record: Any, _proxy: Any) -> None:
    """Start the deadline for all queries of this checkout of the connection."""
    until = time.monotonic() + QUESTION_SECONDS_MAX
    connection.set_progress_handler(lambda: time.monotonic() > until, INSTRUCTIONS_BETWEEN_CHECKS)


def _on_postgresql_begin(connection: Connection) -> None:
    """Set for each transaction, because a pooler may run each in another session."""
    connection.exec_driver_sql("SET TRANSACTION READ ONLY")
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {QUESTION_SECONDS_MAX * 1000}")
