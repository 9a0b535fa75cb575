"""Database. Merging one ledger into another: laptop to team, spool to shared, old to new.

Order, repetition and interruption do not matter (`bundles.py`). A bundle whose rows the target
refuses is halved until the rows at fault stand alone; they are set aside and the rest goes in.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from ledger.maintenance import imported
from ledger.model.errors import LedgerError
from ledger.parts.sync import bounds, bundles, sessions
from ledger.parts.sync.bundles import Bundle
from ledger.store import db, retention, secret
from ledger.store.engines import migration, sqlite_file, urls
from ledger.store.engines.refusals import is_refusal, reason_of
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.keys import Key
from ledger.store.spool import RefusedExchange
from ledger.store.tables import exchanges
from ledger.store.writing.running_totals import Price

BUNDLE_EXCHANGES_MAX = 500
"""On SQLite a bundle holds the write lock for about 0.1 s; a proxy's own commits wait behind it."""

STATEMENT_MS_MAX = 60_000
"""A bundle takes about 100 ms."""
LOCK_MS_MAX = 20_000

ANSWER_SECONDS_MAX = STATEMENT_MS_MAX / 1_000 + 15
"""A server that enforces the limits above answers within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The result of a merge."""

    exchanges: int
    refused: tuple[RefusedExchange, ...]
    has_two_secrets: bool
    """One key has one fingerprint in the source and another in the target."""


@contextmanager
def opened_source(url: str | URL) -> Iterator[tuple[Engine, Connection]]:
    """A ledger to read from, and a connection to it, or to a migrated copy, for a `with` block."""
    with (
        db.disposing(db.open_existing(url)) as engine,
        _of_this_schema(engine) as current,
        current.connect() as reader,
    ):
        yield engine, reader


def count(connection: Connection) -> int:
    """How many exchanges a ledger has."""
    return connection.execute(sa.select(sa.func.count()).select_from(exchanges)).scalar_one()


def secret_of(engine: Engine) -> bytes:
    """The secret that the keys of a ledger are hashed with."""
    found = secret.known(engine)
    if found is None or secret.id_of(found) != secret.id_in(engine):
        raise LedgerError(
            f"the secret of key fingerprints of {urls.shown(engine.url)} cannot be read "
            "here; name its file (TOKENTEE_SECRET_FILE), or leave out --with-secret"
        )
    return found


def take_secret(engine: Engine, carried: bytes) -> None:
    """Let a ledger hash keys with this secret, if it is empty."""
    with engine.connect() as connection:
        is_empty = connection.execute(sa.select(exchanges.c.id).limit(1)).first() is None
    if secret.known(engine) == carried:
        return
    if not is_empty or not secret.store(engine, carried):
        raise LedgerError(
            f"{urls.shown(engine.url)} has exchanges or a secret of its own already; "
            "--with-secret is for an empty target"
        )


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
    done = 0
    refused: list[RefusedExchange] = []
    months: set[date] = set()
    try:
        with (
            opened_source(source_url) as (source, reader),
            db.disposing(db.ensure(target_url, answer_seconds_max=ANSWER_SECONDS_MAX)) as target,
        ):
            if with_secret:
                take_secret(target, secret_of(source))
            ids = secret.id_in(source), secret.id_in(target)
            total, last = count(reader), None
            while batch := bundles.known_after(reader, last, BUNDLE_EXCHANGES_MAX):
                with target.connect() as connection:
                    known = bundles.known_of(connection, [*batch])
                new = [
                    key for key in batch if key not in known or not known[key].covers(batch[key])
                ]
                if len(new) < len(batch) and target.dialect.name == "postgresql":
                    # What an interrupted merge may have written without linking it.
                    _link(target, [*(batch.keys() - {*new})])
                if new:
                    refused += deliver(partial(bundles.read, reader), target, new, months)
                done += len(batch)
                last = [*batch][-1]
                on_progress(done, max(total, done))
    except sa.exc.DBAPIError as error:
        raise LedgerError(
            f"interrupted after {done} exchanges: {reason_of(error)}; run it again, "
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
    read: Callable[[Sequence[Key]], Bundle],
    target: Engine,
    keys: Sequence[Key],
    months: set[date],
    price: Price | None = None,
) -> list[RefusedExchange]:
    """Copy these exchanges, as `read` gives them, into the target; the exchanges that it refuses.

    `months` holds the months for which the target has made partitions; this function adds to it.
    `price`: of what is booked anew of hosted agents' sessions; None: the own price book.
    """
    if target.dialect.name == "postgresql":
        new = {retention.month_of(opened_at) for opened_at, _ in keys} - months
        retention.make_partitions(target, new, datetime.now(UTC).date())
        months |= new
    refused: list[RefusedExchange] = []
    try:
        bundle = read(keys)
        if wrong := bounds.refusals(bundle):
            refused = [RefusedExchange(key, why) for key, why in wrong.items()]
            keys = [key for key in keys if key not in wrong]
            if not keys:
                return refused
            bundle = read(keys)
        with db.writing(target) as connection:
            _bound(connection)
            bundles.write(connection, bundle)
            if target.dialect.name == "sqlite":
                bundles.link(connection, keys)
                if sessions.are_in(bundle):
                    sessions.settle(connection, keys, price)
                imported.settle(connection, keys, price or sessions.priced)
    except Exception as error:  # one exchange must not stop the others
        if not is_refusal(error):
            raise
        if len(keys) == 1:
            return [*refused, RefusedExchange(keys[0], reason_of(error))]
        half = len(keys) // 2
        return [
            *refused,
            *deliver(read, target, keys[:half], months, price),
            *deliver(read, target, keys[half:], months, price),
        ]
    if target.dialect.name == "postgresql":
        # In a transaction of its own, so that of two writers the later one sees both.
        _link(target, keys, price, has_sessions=sessions.are_in(bundle))
    return refused


def _link(
    target: Engine, keys: Sequence[Key], price: Price | None = None, *, has_sessions: bool = True
) -> None:
    with db.writing(target) as connection:
        _bound(connection)
        bundles.link(connection, keys)
        if has_sessions:
            sessions.settle(connection, keys, price)
        imported.settle(connection, keys, price or sessions.priced)


def _bound(connection: Connection) -> None:
    """Limit the time of a statement, so that a database that hangs raises an error."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"SET LOCAL statement_timeout = {STATEMENT_MS_MAX}; "
            f"SET LOCAL lock_timeout = {LOCK_MS_MAX}"
        )
