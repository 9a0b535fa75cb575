"""Database. Merging one ledger into another: laptop to team, spool to shared, old to new.

Order, repetition and interruption do not matter (`bundles.py`). A bundle whose rows the target
refuses is halved until the rows at fault stand alone; they are set aside and the rest goes in.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.errors import LedgerError
from ledger.store import db, retention, secret
from ledger.store.engines import migration, sqlite_file, urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.keys import Key
from ledger.store.tables import exchanges
from ledger.sync import bundles
from ledger.text.printable import without_passwords

BUNDLE_EXCHANGES_MAX = 500
"""On SQLite a bundle holds the write lock for about 0.1 s; a proxy's own commits wait behind it."""

STATEMENT_MS_MAX = 60_000
"""A bundle takes about 100 ms."""
LOCK_MS_MAX = 20_000

REFUSALS = (sa.exc.IntegrityError, sa.exc.DataError)
"""Errors that the row causes: a retry fails as well."""
_REFUSING_CLASSES = ("21", "22", "23", "2F", "38", "39", "44", "54", "P0")
"""Classes of SQLSTATE that the row causes: values, constraints, checks, limits of the server, and
exceptions raised by a trigger."""
ANSWER_SECONDS_MAX = STATEMENT_MS_MAX / 1_000 + 15
"""A server that enforces the limits above answers within this time."""


@dataclass(frozen=True, slots=True)
class RefusedExchange:
    """An exchange that the target refuses."""

    key: Key
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The result of a merge."""

    exchanges: int
    refused: tuple[RefusedExchange, ...]
    has_two_secrets: bool
    """One key has one fingerprint in the source and another in the target."""


def sync(
    source_url: str,
    target_url: str,
    *,
    with_secret: bool = False,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Merged:
    """Merge a ledger into another; `on_progress` gets the number done and the total.

    `with_secret` lets an empty target hash keys as the source does.
    """
    if urls.parse_url(source_url) == urls.parse_url(target_url):
        raise LedgerError(f"source and target are the same ledger: {urls.shown(source_url)}")
    source = db.open_existing(source_url)
    target = db.ensure(target_url, answer_seconds_max=ANSWER_SECONDS_MAX)
    done = 0
    refused: list[RefusedExchange] = []
    try:
        if with_secret:
            _carry_secret(source, target)
        ids = secret.id_in(source), secret.id_in(target)
        with _of_this_schema(source) as current, current.connect() as reader:
            total = reader.execute(sa.select(sa.func.count()).select_from(exchanges)).scalar_one()
            months: set[date] = set()
            last: Key | None = None
            while batch := bundles.known_after(reader, last, BUNDLE_EXCHANGES_MAX):
                with target.connect() as connection:
                    known = bundles.known_of(connection, [*batch])
                is_new = {
                    key: key not in known or not known[key].covers(ours)
                    for key, ours in batch.items()
                }
                if target.dialect.name == "postgresql" and not all(is_new.values()):
                    # An interrupted merge may have written them without linking them.
                    _link(target, [key for key in batch if not is_new[key]])
                if new := [key for key in batch if is_new[key]]:
                    refused += deliver(reader, target, new, months)
                last = [*batch][-1]
                done += len(batch)
                on_progress(done, max(total, done))
    except sa.exc.DBAPIError as error:
        raise LedgerError(
            f"interrupted after {done} exchanges: {reason_of(error)}; run it again, "
            "what is done is not done twice"
        ) from error
    finally:
        source.dispose()
        target.dispose()
    return Merged(
        exchanges=done,
        refused=tuple(refused),
        has_two_secrets=None not in ids and ids[0] != ids[1],
    )


@contextmanager
def _of_this_schema(source: Engine) -> Iterator[Engine]:
    """A source to read from: itself, or a migrated copy of an older file, which is not changed."""
    found = migration.revision_of(source)
    path = urls.file_of(source.url)
    if found == REVISION:
        yield source
    elif path is None:
        raise LedgerError(
            f"{urls.shown(source.url)} has the schema {found}, this is tokentee for {REVISION}: "
            "run `tokentee db upgrade` on it first"
        )
    else:
        with tempfile.TemporaryDirectory(prefix="tokentee-") as folder:
            copy = Path(folder) / path.name
            sqlite_file.copy(path, copy)
            with db.disposing(db.open_engine(f"sqlite:///{copy}")) as engine:
                migration.upgrade(engine, is_copy=True)
                yield engine


def _carry_secret(source: Engine, target: Engine) -> None:
    """Let an empty target hash keys as the source does."""
    carried = secret.known(source)
    if carried is None or secret.id_of(carried) != secret.id_in(source):
        raise LedgerError(
            f"the secret of key fingerprints of {urls.shown(source.url)} cannot be read here; "
            "name its file (TOKENTEE_SECRET_FILE), or leave out --with-secret"
        )
    with target.connect() as connection:
        is_empty = connection.execute(sa.select(exchanges.c.id).limit(1)).first() is None
    if secret.known(target) == carried:
        return
    if not is_empty or not secret.store(target, carried):
        raise LedgerError(
            f"{urls.shown(target.url)} has exchanges or a secret of its own already; "
            "--with-secret is for an empty target"
        )


def deliver(
    source: Connection, target: Engine, keys: Sequence[Key], months: set[date]
) -> list[RefusedExchange]:
    """Copy these exchanges into the target; the exchanges that it refuses.

    `months` holds the months for which the target has made partitions; this function adds to it.
    """
    if target.dialect.name == "postgresql":
        new = {retention.month_of(opened_at) for opened_at, _ in keys} - months
        retention.make_partitions(target, new, datetime.now(UTC).date())
        months |= new
    try:
        bundle = bundles.read(source, keys)
        with db.writing(target) as connection:
            _bound(connection)
            bundles.write(connection, bundle)
            if target.dialect.name == "sqlite":
                bundles.link(connection, keys)
    except Exception as error:  # one exchange must not stop the others
        if not is_refusal(error):
            raise
        if len(keys) == 1:
            return [RefusedExchange(keys[0], reason_of(error))]
        half = len(keys) // 2
        return [
            *deliver(source, target, keys[:half], months),
            *deliver(source, target, keys[half:], months),
        ]
    if target.dialect.name == "postgresql":
        # In a transaction of its own, so that of two writers the later one sees both.
        _link(target, keys)
    return []


def _link(target: Engine, keys: Sequence[Key]) -> None:
    with db.writing(target) as connection:
        _bound(connection)
        bundles.link(connection, keys)


def _bound(connection: Connection) -> None:
    """Limit the time of a statement, so that a database that hangs raises an error."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"SET LOCAL statement_timeout = {STATEMENT_MS_MAX}; "
            f"SET LOCAL lock_timeout = {LOCK_MS_MAX}"
        )


def is_refusal(error: Exception) -> bool:
    """Whether the row causes the error; False: the database does, and a retry may succeed."""
    if isinstance(error, REFUSALS):
        return True
    if isinstance(error, sa.exc.DBAPIError):
        return str(getattr(error.orig, "sqlstate", None) or "")[:2] in _REFUSING_CLASSES
    return not isinstance(error, sa.exc.SQLAlchemyError | LedgerError | OSError | MemoryError)


def reason_of(error: Exception, *passwords: str | None) -> str:
    """The database's message, without the row it is about and without these passwords."""
    if not isinstance(error, sa.exc.DBAPIError):
        return without_passwords(f"{type(error).__name__}: {error}", *passwords)[:300]
    diagnosis = getattr(error.orig, "diag", None)
    text = (diagnosis.message_primary if diagnosis else None) or str(error.orig)
    return without_passwords(" ".join(text.split()), *passwords)[:300]
