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
from sqlalchemy.engine import URL, Connection, Engine

from ledger.model.errors import LedgerError
from ledger.store import db, retention, secret
from ledger.store.engines import migration, sqlite_file, urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.keys import Key
from ledger.store.tables import exchanges
from ledger.sync import bundles, far
from ledger.sync.bundles import Bundle, Known
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


class LocalSource:
    """A ledger to read from."""

    def __init__(self, engine: Engine, reader: Connection) -> None:
        self._engine = engine
        self._reader = reader
        """To the ledger, or to a migrated copy of it."""
        self.secret_id = secret.id_in(engine)

    def count(self) -> int:
        """How many exchanges it has."""
        count = sa.select(sa.func.count()).select_from(exchanges)
        return self._reader.execute(count).scalar_one()

    def secret(self) -> bytes:
        """The secret that its keys are hashed with."""
        found = secret.known(self._engine)
        if found is None or secret.id_of(found) != self.secret_id:
            raise LedgerError(
                f"the secret of key fingerprints of {urls.shown(self._engine.url)} cannot be read "
                "here; name its file (TOKENTEE_SECRET_FILE), or leave out --with-secret"
            )
        return found

    def known_after(self, last: Key | None) -> dict[Key, Known]:
        """The exchanges that follow in the order of keys."""
        return bundles.known_after(self._reader, last, BUNDLE_EXCHANGES_MAX)

    def read(self, keys: Sequence[Key]) -> Bundle:
        """Everything that it knows of these exchanges."""
        return bundles.read(self._reader, keys)


class LocalTarget:
    """A ledger to add to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._months: set[date] = set()

    @property
    def secret_id(self) -> str | None:
        """The id of the secret that its keys are hashed with."""
        return secret.id_in(self._engine)

    def take_secret(self, carried: bytes) -> None:
        """Hash keys with this secret, if it is empty."""
        with self._engine.connect() as connection:
            is_empty = connection.execute(sa.select(exchanges.c.id).limit(1)).first() is None
        if secret.known(self._engine) == carried:
            return
        if not is_empty or not secret.store(self._engine, carried):
            raise LedgerError(
                f"{urls.shown(self._engine.url)} has exchanges or a secret of its own already; "
                "--with-secret is for an empty target"
            )

    def known_of(self, keys: Sequence[Key]) -> dict[Key, Known]:
        """These exchanges, as far as it has them."""
        with self._engine.connect() as connection:
            return bundles.known_of(connection, keys)

    def relink(self, keys: Sequence[Key]) -> None:
        """Link what an interrupted merge may have written without linking it."""
        if self._engine.dialect.name == "postgresql":
            _link(self._engine, keys)

    def add(
        self, keys: Sequence[Key], read: Callable[[Sequence[Key]], Bundle]
    ) -> list[tuple[Key, str]]:
        """Add these exchanges; the ones that it refuses, and why."""
        refused = deliver(read, self._engine, keys, self._months)
        return [(one.key, one.error) for one in refused]


@contextmanager
def source_at(url: str | URL) -> Iterator[LocalSource]:
    """A ledger of this machine to read from, for a `with` block."""
    with (
        db.disposing(db.open_existing(url)) as engine,
        _of_this_schema(engine) as current,
        current.connect() as reader,
    ):
        yield LocalSource(engine, reader)


@contextmanager
def target_at(url: str | URL) -> Iterator[LocalTarget]:
    """A ledger of this machine to add to, for a `with` block."""
    with db.disposing(db.ensure(url, answer_seconds_max=ANSWER_SECONDS_MAX)) as engine:
        yield LocalTarget(engine)


def sync(
    source_url: str,
    target_url: str,
    *,
    with_secret: bool = False,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Merged:
    """Merge a ledger into another, one of which may be on another machine (`ssh://…`);
    `on_progress` gets the number done and the total.

    `with_secret` lets an empty target hash keys as the source does.
    """
    is_far = far.is_far(source_url), far.is_far(target_url)
    if all(is_far):
        raise LedgerError("one of SOURCE and TARGET has to be on this machine")
    if not any(is_far) and urls.parse_url(source_url) == urls.parse_url(target_url):
        raise LedgerError(f"source and target are the same ledger: {urls.shown(source_url)}")
    done = 0
    refused: list[RefusedExchange] = []
    try:
        with (
            far.connect(source_url, "source") if is_far[0] else source_at(source_url) as source,
            far.connect(target_url, "target") if is_far[1] else target_at(target_url) as target,
        ):
            if with_secret:
                target.take_secret(source.secret())
            ids = source.secret_id, target.secret_id
            total = source.count()
            last: Key | None = None
            while batch := source.known_after(last):
                known = target.known_of([*batch])
                new = [
                    key for key in batch if key not in known or not known[key].covers(batch[key])
                ]
                if len(new) < len(batch):
                    target.relink([*(batch.keys() - {*new})])
                for key, why in target.add(new, source.read) if new else ():
                    refused.append(RefusedExchange(key, why))
                done += len(batch)
                last = [*batch][-1]
                on_progress(done, max(total, done))
    except (sa.exc.DBAPIError, ConnectionError) as error:
        reason = str(error) if isinstance(error, ConnectionError) else reason_of(error)
        raise LedgerError(
            f"interrupted after {done} exchanges: {reason}; run it again, "
            "what is done is not done twice"
        ) from error
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
            f"{urls.shown(source.url)} has the schema {found}, this tokentee needs {REVISION}: "
            "run `tokentee db upgrade` on it first"
        )
    else:
        with tempfile.TemporaryDirectory(prefix="tokentee-") as folder:
            copy = Path(folder) / path.name
            sqlite_file.copy(path, copy)
            with db.disposing(db.open_engine(f"sqlite:///{copy}")) as engine:
                migration.upgrade(engine, is_copy=True)
                yield engine


def deliver(
    read: Callable[[Sequence[Key]], Bundle], target: Engine, keys: Sequence[Key], months: set[date]
) -> list[RefusedExchange]:
    """Copy these exchanges, as `read` gives them, into the target; the exchanges that it refuses.

    `months` holds the months for which the target has made partitions; this function adds to it.
    """
    if target.dialect.name == "postgresql":
        new = {retention.month_of(opened_at) for opened_at, _ in keys} - months
        retention.make_partitions(target, new, datetime.now(UTC).date())
        months |= new
    try:
        bundle = read(keys)
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
            *deliver(read, target, keys[:half], months),
            *deliver(read, target, keys[half:], months),
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
