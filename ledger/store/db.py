"""Database. Opens a ledger: its engine, and its first use.

SQLite: WAL, so that a reporting reader never blocks the proxy; `synchronous=FULL`, so that a
commit is on disk when it returns; mode 0600. PostgreSQL: `postgresql+psycopg://…`.

`ensure` creates the schema of an empty ledger. It migrates an older SQLite ledger after it has made
a copy beside it. An older PostgreSQL ledger is shared, so only `tokentee db upgrade` migrates it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from ledger.model.errors import LedgerError, NoLedgerError
from ledger.store.engines import migration, sqlite_file, urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.engines.urls import file_of, parse_url, shown
from ledger.store.tables import meta

logger = logging.getLogger(__name__)

SERVER_CONNECT_SECONDS_MAX = 5


def ensure(url: str | URL, *, answer_seconds_max: float | None = None) -> Engine:
    """An engine on a ledger, created or migrated to this code's schema if need be; LedgerError if
    it cannot be opened. With `answer_seconds_max` the engine gives up on a PostgreSQL that does not
    answer for so long.
    """
    parsed = parse_url(url)
    path = file_of(parsed)
    engine = create(parsed, answer_seconds_max=answer_seconds_max)
    with _opening(engine):
        found = migration.revision_of(engine)
        if found is None or (found != REVISION and path):
            if (copy := migration.upgrade(engine)) is not None:
                logger.warning(
                    "tokentee: %s was migrated from the schema %s to %s; as it was before, it lies "
                    "in %s until you delete that",
                    *(shown(parsed), found, REVISION, copy),
                )
        elif found != REVISION:
            raise LedgerError(
                f"{shown(parsed)} has the schema {found}, this tokentee needs {REVISION}: "
                "run `tokentee db upgrade`, once, when every proxy can follow"
            )
    return engine


@contextmanager
def _opening(engine: Engine) -> Iterator[None]:
    """Dispose of an engine whose ledger cannot be opened; LedgerError for what its driver says."""
    try:
        yield
    except BaseException as error:
        engine.dispose()
        if isinstance(error, sa.exc.DBAPIError):
            raise LedgerError(urls.not_opened(engine.url, error)) from error
        raise


def create(url: str | URL, *, answer_seconds_max: float | None = None) -> Engine:
    """An engine on a ledger of any schema, or of none yet; a missing SQLite file is created."""
    parsed = parse_url(url)
    if path := file_of(parsed):
        sqlite_file.create(path)
    return open_engine(parsed, answer_seconds_max=answer_seconds_max)


@contextmanager
def disposing(engine: Engine) -> Iterator[Engine]:
    """The engine, for a `with` block that closes its connections at the end."""
    try:
        yield engine
    finally:
        engine.dispose()


def open_existing(url: str | URL) -> Engine:
    """An engine on an existing ledger, of this schema or an older one; it is not changed."""
    parsed = parse_url(url)
    if (path := file_of(parsed)) and not path.is_file():
        raise NoLedgerError(urls.no_ledger(path))
    engine = open_engine(parsed)
    with _opening(engine):
        if migration.revision_of(engine) is None:
            there = sa.inspect(engine)
            is_empty = not (there.get_table_names() or there.get_view_names())
            raise LedgerError((urls.empty if is_empty else urls.no_tables)(shown(parsed)))
    return engine


def open_engine(url: str | URL, *, answer_seconds_max: float | None = None) -> Engine:
    """An engine on a ledger, which need not exist or be current: see `ensure`."""
    parsed = parse_url(url)
    if path := file_of(parsed):
        engine = sa.create_engine(parsed.set(database=str(path)), hide_parameters=True)
        sa.event.listen(engine, "connect", lambda connection, _: sqlite_file.prepare(connection))

        @sa.event.listens_for(engine, "begin")
        def begin_sqlite(connection: Connection) -> None:
            options = connection.get_execution_options()
            connection.exec_driver_sql(options.get("tokentee_begin", "BEGIN"))

        return engine
    engine = sa.create_engine(
        parsed,
        # Linking relies on each statement seeing what was committed before it (`bundles.py`).
        isolation_level="READ COMMITTED",
        connect_args={
            "connect_timeout": SERVER_CONNECT_SECONDS_MAX,
            "application_name": "tokentee",
            "client_encoding": "utf8",
            # Poolers give a connection to another client between transactions, without its prepared
            # statements.
            "prepare_threshold": None,
            # Detects a server that disappeared without closing the connection.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        },
        pool_pre_ping=True,
        # Errors go into logs, so they must not hold parameter values; the secret of keys is one.
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "connect")
    def set_date_style(connection: Any, _record: Any) -> None:
        # Whatever the role or the database prefers; the driver reads no other style.
        if not str(connection.info.parameter_status("DateStyle")).startswith("ISO"):
            connection.execute("SET DateStyle = ISO")
            connection.commit()

    if answer_seconds_max is not None:
        from ledger.store.engines.answering import BoundedConnection

        idle_ms_max = max(1, int(answer_seconds_max * 1_000))

        @sa.event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            # The server ends a transaction that its client abandoned, and releases its locks. Not
            # as a startup parameter, which poolers refuse.
            connection.exec_driver_sql(
                f"SET LOCAL idle_in_transaction_session_timeout = {idle_ms_max}"
            )

        @sa.event.listens_for(engine, "do_connect")
        def connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
            connected = BoundedConnection.connect(*arguments, **options)
            connected.answer_seconds_max = answer_seconds_max
            return connected

    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that will write.

    On SQLite it takes the write lock at the start: SQLite refuses a transaction that reads first
    and then writes, at once and without the busy timeout, if another process wrote in between.
    """
    with engine.connect() as connection:
        connection.execution_options(tokentee_begin="BEGIN IMMEDIATE")
        with connection.begin():
            yield connection


def note(connection: Connection, key: str, value: str | None) -> None:
    """Keep a value of the ledger's own state under this key; None deletes it."""
    connection.execute(sa.delete(meta).where(meta.c.key == key))
    if value is not None:
        connection.execute(sa.insert(meta).values(key=key, value=value))


def noted(connection: Connection, key: str) -> str | None:
    """The value that is kept under this key."""
    return connection.scalar(sa.select(meta.c.value).where(meta.c.key == key))
