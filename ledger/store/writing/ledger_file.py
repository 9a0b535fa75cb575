"""Database. The SQLite file that the writer commits to: opening it, and watching that it stays.

A file that is moved or removed still accepts writes, but no command would ever read them. So the
writer checks the file at intervals. Before it closes a moved file it checkpoints the WAL into it;
then it creates a new ledger under the name.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from ledger.model.errors import LedgerError
from ledger.store.engines import advice, private_files, sqlite_file
from ledger.store.schema.revision import REVISION, refuse_newer
from ledger.store.writing import batch_insert

CACHE_KIB = 2_000
"""Held in the proxy's memory all the time, beside the operating system's file cache. With 4 MB an
exchange needs as much CPU in a ledger of 560 MB (measured), with 0.5 MB five percent more."""
CHECKPOINT_PAGES = 4_000
"""16 MB of WAL."""
WAL_KEPT_BYTES_MAX = 64_000_000
"""A longer WAL is truncated to this after a checkpoint has emptied it."""
WAL_WARNED_BYTES = 256_000_000
"""A WAL of this length is logged: a reader keeps its snapshot open, so no checkpoint can empty the
WAL, and it grows by some 20 KB an exchange until that reader ends."""
CHECK_SECONDS = 1.0
"""How often the writer checks that its file still exists."""

type Log = Callable[[str, str], None]


class LedgerFile:
    """A connection to a ledger's file, for one thread."""

    def __init__(self, path: Path, *, shown_url: str, spooling: bool, log: Log) -> None:
        self.connection: sqlite3.Connection
        self._path = path
        self._shown_url = shown_url
        self._spooling = spooling
        self._log = log
        self._inode: int | None = None
        self._check_at = 0.0
        self._is_wal_warned = False

    def open(self) -> None:
        """Open the ledger, created or migrated if need be, and prepare the connection for
        batches. LedgerError if it cannot be opened."""
        private_files.create(self._path)
        inode = _inode(self._path)
        connection = _connected(self._path, self._shown_url)
        # In a large ledger, a row touches pages anywhere in two indices.
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES_MAX}")
        for statement in batch_insert.setup(spooling=self._spooling):
            connection.execute(statement)
        self.connection, self._inode = connection, inode

    def check(self) -> None:
        """Check that the connected file is the one that has the ledger's name."""
        now = time.monotonic()
        if now < self._check_at:
            return
        if self._inode is None or _inode(self._path) != self._inode:
            if self._inode is not None:
                self._release()
            self.open()
        self._check_wal_size()
        self._check_at = now + CHECK_SECONDS

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _release(self) -> None:
        self._log("error", f"the ledger {self._path} was moved or removed; a new one is begun")
        try:
            busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                self._log("error", f"a reader of {self._path} keeps its last commits in the WAL")
        except sqlite3.Error as error:
            self._log("error", f"the last commits of {self._path} stay in its WAL: {error}")
        self._inode = None
        # The last connection to close removes the WAL, so the new file does not find the old WAL.
        self.connection.close()

    def _check_wal_size(self) -> None:
        size = 0
        with contextlib.suppress(OSError):
            size = self._path.with_name(f"{self._path.name}-wal").stat().st_size
        if size > WAL_WARNED_BYTES and not self._is_wal_warned:
            self._log(
                "warning",
                f"the WAL of {self._path} has {size // 1_000_000} MB: a reader that does not end "
                "keeps it from being emptied",
            )
        self._is_wal_warned = size > WAL_WARNED_BYTES


def _connected(path: Path, shown: str) -> sqlite3.Connection:
    """A connection to a ledger, created or migrated to this code's schema if need be."""
    try:
        connection = sqlite_file.connect(path)
        try:
            found = _found_or_created(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise LedgerError(advice.file_not_opened(shown, error)) from error
    if found == REVISION:
        return connection
    connection.close()
    refuse_newer(found, shown)
    # Migrations use SQLAlchemy, which a proxy does not import otherwise.
    from sqlalchemy.engine import URL

    from ledger.store import db

    db.ensure(URL.create("sqlite", database=str(path))).dispose()
    return sqlite_file.connect(path)


def _found_or_created(connection: sqlite3.Connection) -> str | None:
    found = sqlite_file.revision_of(connection)
    if found is None:
        with sqlite_file.writing(connection):
            # Another process may have created it meanwhile.
            found = sqlite_file.revision_of(connection)
            if found is None:
                sqlite_file.create_schema(connection)
                found = REVISION
    return found


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
