"""Database. A spool: the SQLite ledger that a proxy commits to before PostgreSQL gets the rows.

One file per shared database, in the user's data directory; all proxies of this machine and user
share it. It is a complete ledger, so no failure of the shared database affects the proxy. `outbox`
lists the exchanges that are not shipped yet, `set_aside` those that the shared database refuses.
Shipped exchanges stay for `KEPT_DAYS`, for inspection, and are then dropped, so the spool grows
only while exchanges cannot be shipped.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from ledger.model.errors import LedgerError
from ledger.model.exchange import State
from ledger.settings import small_files
from ledger.store import db
from ledger.store.keys import Key, instant_text
from ledger.store.retention import drop
from ledger.store.tables import exchanges, meta, outbox, set_aside
from ledger.sync.merging import RefusedExchange

KEPT_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """The state of a spool."""

    path: Path
    target: str
    waiting: int
    oldest: datetime | None
    shipped_at: str | None
    trouble: str | None
    refused: tuple[RefusedExchange, ...]


def path_for(target: URL) -> Path:
    """The spool of a shared database. The password does not matter: it does not name a database."""
    name = target.set(password=None).render_as_string()
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return small_files.data_directory() / "spool" / f"{digest}.sqlite3"


def all_paths() -> list[Path]:
    """The spools of this user, in the order of their names."""
    return sorted((small_files.data_directory() / "spool").glob("*.sqlite3"))


def status_of(path: Path) -> SpoolStatus:
    """The state of a spool, whether or not a proxy runs."""
    try:
        with (
            db.disposing(db.open_existing(f"sqlite:///{path}")) as engine,
            engine.connect() as connection,
        ):
            notes = {row.key: row.value for row in connection.execute(sa.select(meta))}
            waiting, oldest = connection.execute(
                sa.select(
                    sa.func.count(sa.distinct(outbox.c.exchange_id)),
                    sa.func.min(outbox.c.opened_at),
                )
            ).one()
            return SpoolStatus(
                path=path,
                target=notes.get("target", "unknown"),
                waiting=waiting,
                oldest=oldest,
                shipped_at=notes.get("shipped_at"),
                trouble=notes.get("trouble"),
                refused=tuple(
                    RefusedExchange((instant_text(row.opened_at), row.exchange_id), row.error)
                    for row in connection.execute(
                        sa.select(set_aside).order_by(set_aside.c.opened_at)
                    )
                ),
            )
    except sa.exc.DBAPIError as error:
        raise LedgerError(f"cannot read the spool {path}: {error.orig}") from error


def pending(connection: Connection, count: int) -> tuple[list[Key], int | None]:
    """The exchanges that changed first, and the number of their last row in the outbox."""
    rows = connection.execute(sa.select(outbox).order_by(outbox.c.seq).limit(count)).all()
    keys = dict.fromkeys((instant_text(row.opened_at), row.exchange_id) for row in rows)
    return list(keys), rows[-1].seq if rows else None


def settle_outbox(
    connection: Connection, last: int, refused: list[RefusedExchange], *, now: datetime
) -> None:
    """Delete the outbox up to row `last`, and set aside the exchanges that were refused."""
    connection.execute(sa.delete(outbox).where(outbox.c.seq <= last))
    db.note(connection, "shipped_at", instant_text(now))
    for one in refused:
        connection.execute(
            sa.text(
                "INSERT INTO set_aside (opened_at, exchange_id, error, refused_at) "
                "VALUES (:opened_at, :exchange_id, :error, :refused_at) "
                "ON CONFLICT (opened_at, exchange_id) DO UPDATE SET error = excluded.error"
            ),
            {
                "opened_at": one.key[0],
                "exchange_id": one.key[1],
                "error": one.error,
                "refused_at": instant_text(now),
            },
        )


def retry_refused(connection: Connection) -> int:
    """Move refused exchanges back into the outbox: an upgrade may have removed the cause."""
    put_back = connection.execute(
        sa.insert(outbox).from_select(
            ["exchange_id", "opened_at"], sa.select(set_aside.c.exchange_id, set_aside.c.opened_at)
        )
    )
    connection.execute(sa.delete(set_aside))
    return put_back.rowcount


def drop_shipped(engine: Engine, *, now: datetime) -> int:
    """Drop exchanges that were shipped more than `KEPT_DAYS` ago; how many."""
    waits = sa.exists().where(
        outbox.c.opened_at == exchanges.c.opened_at, outbox.c.exchange_id == exchanges.c.id
    )
    refused = sa.exists().where(
        set_aside.c.opened_at == exchanges.c.opened_at, set_aside.c.exchange_id == exchanges.c.id
    )
    old = exchanges.c.opened_at < now - timedelta(days=KEPT_DAYS)
    ended = exchanges.c.state != State.OPEN
    return drop(engine, sa.and_(old, ended, ~waits, ~refused))
