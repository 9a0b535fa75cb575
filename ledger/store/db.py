"""Database. Opening a ledger: where it lives, its engine, its first use, its migrations.

SQLite: WAL, so that a reporting reader never blocks the proxy; `synchronous=FULL`, so that a
commit is on disk when it returns; mode 0600. PostgreSQL: `postgresql+psycopg://…`.

`ensure` makes an empty ledger, and migrates an older SQLite one after a copy of it was put beside
it. An older PostgreSQL is shared, so only `tokentee db upgrade` migrates it. A newer schema is
refused. Whoever migrates holds a lock, so two processes that start at once do not collide.
"""

import contextlib
import glob
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import platformdirs
import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.pool import ConnectionPoolEntry

from ledger.model.errors import LedgerError, WrongCallError
from ledger.model.extras import needs
from ledger.store.schema import derived
from ledger.store.tables import REVISION

BUSY_MS_MAX = 5_000
"""How long a statement waits for another process's write on SQLite: far longer than a batch takes,
far shorter than anyone waits for an answer."""
CONNECT_SECONDS_MAX = 5
MIGRATION_LOCK = 0x746F6B656E746565
"""`tokentee` as a number: the advisory lock on PostgreSQL."""
LINKS_SINCE = "0005"
"""The schema since which links are as `schema/links.py` has them."""
_USERINFO = re.compile(r"(//[^/?#:@\s]*:)\S*@")
"""`//user:password@` in a text: up to the last @, which a password may hold, too."""
_MISTYPED = re.compile(r"^([\w+.-]*:?/+)?([^:@]*):.*@", re.DOTALL)
"""The same at the begin of what was meant as a URL: `postgres:/u:p w@h`, `u:p@h`."""
_PASSWORD = re.compile(r"((?:password|passwd|pwd|passfile|sslpassword)=)[^&\s'\"]*", re.IGNORECASE)
PARTITIONED = ("exchanges", "readings", "charges")


def default_url() -> str:
    """`TOKENTEE_LEDGER`, or a SQLite file in the user's data directory."""
    if url := os.environ.get("TOKENTEE_LEDGER"):
        return url
    return f"sqlite:///{data_directory() / 'ledger.sqlite3'}"


def data_directory() -> Path:
    """Where the user's ledger, spools and secret are kept."""
    return platformdirs.user_data_path("tokentee", appauthor=False)


def parse_url(url: str) -> URL:
    """The URL of a ledger, or the path of its file; LedgerError if it is neither."""
    try:
        parsed = URL.create("sqlite", database=url) if _is_path(url) else make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError(
            f"not a ledger URL: {_given(url)}; "
            "use sqlite:////path/to/ledger.sqlite3 or postgresql+psycopg://user@host/database"
        ) from None
    if "@" in (parsed.host or ""):
        # What was meant as the end of the password would be looked up, and named, as a host.
        raise LedgerError(
            f"not a ledger URL: {_given(url)}; write an @ in a user or password as %40"
        )
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if not parsed.database or parsed.database == ":memory:" or "mode=memory" in url:
            raise LedgerError(f"a ledger in memory keeps nothing: {_given(url)}; name a file")
        return parsed.set(drivername="sqlite")
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise LedgerError(needs("psycopg"))
        return _with_its_password(parsed.set(drivername="postgresql+psycopg"))
    raise WrongCallError(
        f"a ledger cannot live in {parsed.drivername!r}: {shown(parsed)}; "
        "use sqlite:///… or postgresql+psycopg://…"
    )


def shown(url: URL | str) -> str:
    """The URL without its password, for people."""
    parsed = parse_url(url) if isinstance(url, str) else url
    return without_passwords(parsed.render_as_string(hide_password=True))


def without_passwords(text: str) -> str:
    """A text that may hold a URL, without what may be a password in it."""
    text = _USERINFO.sub(r"\1***@", text)
    return _PASSWORD.sub(r"\1***", text)


def file_of(url: URL) -> Path | None:
    """The file of a SQLite ledger."""
    if url.drivername != "sqlite" or not url.database:
        return None
    return Path(url.database).expanduser()


def open_engine(url: str | URL, *, answer_seconds_max: float | None = None) -> Engine:
    """An engine on a ledger, which need not exist or be current: see `ensure`."""
    parsed = parse_url(url) if isinstance(url, str) else url
    if path := file_of(parsed):
        engine = sa.create_engine(parsed.set(database=str(path)))
        sa.event.listen(engine, "connect", _on_sqlite_connect)
        sa.event.listen(engine, "begin", _on_sqlite_begin)
        return engine
    engine = sa.create_engine(
        parsed,
        # Linking relies on each statement seeing what was committed before it (`bundles.py`).
        isolation_level="READ COMMITTED",
        connect_args={
            "connect_timeout": CONNECT_SECONDS_MAX,
            "application_name": "tokentee",
            # Poolers hand a connection on between transactions, without what was prepared on it.
            "prepare_threshold": None,
            # A server that is gone without a word is noticed.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        },
        pool_pre_ping=True,
    )
    if answer_seconds_max is not None:
        from ledger.store.answering import connector

        bounded = connector(answer_seconds_max)
        idle_ms_max = max(1, int(answer_seconds_max * 1_000))

        @sa.event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            # The server ends the transaction of a client that has given it up, with its locks. Not
            # as a startup parameter, which poolers refuse.
            connection.exec_driver_sql(
                f"SET LOCAL idle_in_transaction_session_timeout = {idle_ms_max}"
            )

        @sa.event.listens_for(engine, "do_connect")
        def connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
            return bounded.connect(*arguments, **options)

    return engine


def ensure(url: str | URL, *, answer_seconds_max: float | None = None) -> Engine:
    """An engine on a ledger whose schema is this code's; LedgerError if that cannot be had.

    With `answer_seconds_max` a PostgreSQL that does not answer for so long is given up.
    """
    parsed = parse_url(url) if isinstance(url, str) else url
    path = file_of(parsed)
    engine = create(parsed, answer_seconds_max=answer_seconds_max)
    try:
        found = revision_of(engine)
        if found is None or (found != REVISION and path):
            upgrade(engine)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise LedgerError(_why(parsed, error)) from error
    except BaseException:
        engine.dispose()
        raise
    if found not in (None, REVISION) and not path:
        engine.dispose()
        raise LedgerError(
            f"{shown(parsed)} has the schema {found}, this is tokentee for {REVISION}: "
            "run `tokentee db upgrade`, once, when every proxy can follow"
        )
    return engine


def create(url: str | URL, *, answer_seconds_max: float | None = None) -> Engine:
    """An engine on a ledger of any schema, or of none yet; a SQLite file is made if need be."""
    parsed = parse_url(url) if isinstance(url, str) else url
    if path := file_of(parsed):
        _create_file(path)
    return open_engine(parsed, answer_seconds_max=answer_seconds_max)


def open_existing(url: str) -> Engine:
    """An engine on a ledger that must be there, of this schema or an older one; it is not
    changed."""
    parsed = parse_url(url)
    if (path := file_of(parsed)) and not path.is_file():
        raise LedgerError(f"there is no ledger {path}")
    engine = open_engine(parsed)
    try:
        found = revision_of(engine)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise LedgerError(_why(parsed, error)) from error
    except LedgerError:
        engine.dispose()
        raise
    if found is None:
        engine.dispose()
        raise LedgerError(f"{shown(parsed)} is no ledger: it has no tables of one")
    return engine


def revision_of(engine: Engine) -> str | None:
    """The schema of a ledger; None if it has none yet. LedgerError if it is newer than we are."""
    with engine.connect() as connection:
        return _revision(connection)


def upgrade(engine: Engine) -> str | None:
    """Bring a ledger to this code's schema; the name of the copy made before, if one was."""
    try:
        with migrating(engine) as connection:
            found = _revision(connection)
            if found == REVISION:
                return None
            path = file_of(engine.url)
            copy = _copy(path, found) if path and found else None
            _alembic("upgrade", connection, "head")
            if found is not None and found < LINKS_SINCE:
                derived.relink_all(connection)
    except sa.exc.DBAPIError as error:
        if _is_trouble(error):
            raise LedgerError(_why(engine.url, error)) from error
        cause = _cut(" ".join(str(error.orig).split()))
        raise LedgerError(
            f"cannot migrate the ledger {shown(engine.url)} to schema {REVISION}: {cause}; "
            "it is as it was: remove what stands in the way, and run `tokentee db upgrade`"
        ) from error
    return str(copy) if copy else None


def differences(engine: Engine) -> list[str]:
    """What differs between a ledger and this code's tables, in words; empty if nothing does."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from ledger.store.tables import metadata

    with engine.connect() as connection:
        found = _revision(connection)
        if found != REVISION:
            return [f"schema {found or 'none'}, not {REVISION}"]
        context = MigrationContext.configure(connection, opts={"include_object": is_ours})
        return [str(difference) for difference in compare_metadata(context, metadata)]


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that will write.

    On SQLite it has the write lock from the start: one that reads first and then wants to write is
    refused at once if anyone wrote in between, without the wait for a busy ledger.
    """
    with engine.connect() as connection:
        connection.execution_options(tokentee_begin="BEGIN IMMEDIATE")
        with connection.begin():
            yield connection


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that nobody else migrates beside."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # Batch mode copies a table and drops the old one, which foreign keys would refuse.
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.rollback()
            connection.execution_options(tokentee_begin="BEGIN IMMEDIATE")
        with connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            yield connection
        # The connection goes back to the pool with foreign keys off: not this one.
        connection.invalidate()


def is_ours(thing: Any, name: str | None, kind: str, _reflected: bool, _other: Any) -> bool:
    """Partitions are made by the shipper as time goes by, not by the schema; and only SQLite has
    foreign keys (`tables.py`), which Alembic cannot be told."""
    if kind == "foreign_key_constraint":
        return False
    if kind == "index":
        name = thing.table.name
    return not (name or "").startswith(tuple(f"{table}_p" for table in PARTITIONED))


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    if found is not None and str(found) > REVISION:
        raise LedgerError(
            f"{shown(connection.engine.url)} was written by a newer tokentee "
            f"(schema {found}, this is {REVISION}): upgrade tokentee"
        )
    return found


def _alembic(command: str, connection: Connection, *arguments: str) -> None:
    import logging

    # mitmproxy shows every INFO record to the user, and alembic logs while it is imported.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    import alembic.command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations()))
    config.attributes["connection"] = connection
    getattr(alembic.command, command)(config, *arguments)


def _migrations() -> Path:
    """The migrations lie beside this package, in a checkout and in a wheel."""
    return Path(__file__).parents[2] / "migrations"


def _create_file(path: Path) -> None:
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
    """Take the rights of others to a ledger's files away, where it is ours."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        file = path.with_name(name)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def copies_of(path: Path) -> list[Path]:
    """The copies that migrations have put beside a ledger."""
    return sorted(
        file
        for file in path.parent.glob(f"{glob.escape(path.name)}.before-*")
        if not file.name.endswith(("-wal", "-shm", ".part"))
    )


def _copy(path: Path, revision: str) -> Path:
    """A copy of a ledger beside it. One name for one step: a migration that is tried again
    replaces the copy of the last try."""
    copy = path.with_name(f"{path.name}.before-{REVISION}-from-{revision}")
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    try:
        _create_file(part)
        with (
            contextlib.closing(sqlite3.connect(path)) as source,
            contextlib.closing(sqlite3.connect(part)) as target,
        ):
            source.backup(target)
        part.replace(copy)
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise LedgerError(
            f"cannot copy the ledger {path} before its migration: {error}; it is as it was: "
            "make room for a copy beside it"
        ) from error
    return copy


def _on_sqlite_connect(connection: Any, _entry: ConnectionPoolEntry) -> None:
    # The driver's own transactions begin late and not before DDL; ours begin where we say.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS_MAX}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _on_sqlite_begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("tokentee_begin", "BEGIN"))


def _is_trouble(error: sa.exc.DBAPIError) -> bool:
    """Whether the database cannot be reached or written, whatever is asked of it."""
    text = str(error.orig)
    return isinstance(error, sa.exc.OperationalError) and not any(
        word in text for word in ("already exists", "no such", "near ", "does not exist")
    )


def _why(url: URL, error: sa.exc.DBAPIError) -> str:
    """One line for the operator out of a driver's error."""
    text = " ".join(str(error.orig).split())
    if "not a database" in text or "malformed" in text:
        advice = "move the file away and start again, or put a copy in its place"
    elif "readonly" in text or "unable to open" in text:
        advice = "name a file you can write to (ledger_url, TOKENTEE_LEDGER)"
    elif url.drivername == "sqlite":
        advice = "see that nothing holds the file and its disk has room"
    else:
        advice = "see that the server runs and the URL is right"
    return f"cannot open the ledger {shown(url)}: {_cut(text)}; {advice}"


def _with_its_password(url: URL) -> URL:
    """The URL with a `?password=` where a password belongs, and is hidden."""
    given = url.query.get("password")
    if not isinstance(given, str):
        return url
    return url.set(password=url.password or given).difference_update_query(["password"])


def _is_path(text: str) -> bool:
    return "://" not in text and text.endswith((".sqlite3", ".sqlite", ".db"))


def _given(url: str) -> str:
    """What was meant as a URL, however mistyped, without its password."""
    return _cut(_MISTYPED.sub(r"\1\2:***@", url))


def _cut(text: str) -> str:
    text = without_passwords(text)
    return text if len(text) <= 300 else f"{text[:300]}…"
