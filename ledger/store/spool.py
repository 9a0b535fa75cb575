"""Database. A spool: the SQLite ledger that a proxy commits to before PostgreSQL gets the rows.
Where it lies, and what waits in it; the part `sync` ships it.

One file per shared database, in the user's data directory; all proxies of this machine and user
share it. It is a complete ledger, so no failure of the shared database affects the proxy. `outbox`
lists the exchanges that are not shipped yet, `set_aside` those that the shared database refuses.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL

from ledger.model.errors import LedgerError
from ledger.settings import small_files
from ledger.store import db
from ledger.store.keys import Key, instant_text
from ledger.store.tables import meta, outbox, set_aside


@dataclass(frozen=True, slots=True)
class RefusedExchange:
    """An exchange that the target refuses."""

    key: Key
    error: str


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
