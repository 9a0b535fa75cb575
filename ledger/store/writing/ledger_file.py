"""Database. The SQLite file that the writer commits to: opening it, and watching that it stays.

SQLite finds the WAL of a database by the name that the database had when it was opened
(https://www.sqlite.org/howtocorrupt.html, "Unlinking or renaming a database file while in use"). So
three things are promised:

- After each commit, before it is reported, the writer compares the inodes of the file and the WAL
  of this name with those that it has open. If they differ, the batch is written again, to the file
  that has the name now. Exchanges have ids of their own, so one that is in both files is one.
- Files are opened under a lock file, one process at a time. In it stands which WAL belongs to which
  file: a WAL of another file is set aside before any file is opened under the name.
- A file that is overwritten in place (`cp` over it) keeps its inode. When its size or time of
  change is another, SQLite is asked, past the WAL, whose it is: each ledger has a number
  (`PRAGMA application_id`), and a backup has another version of the schema or fewer pages. Then
  `OverwrittenError` ends the use of this file. A copy of the ledger's own file that is no shorter
  cannot be told from it.

SQLite asks through its own descriptors: one of ours, when closed, would drop the locks that SQLite
holds for this process (POSIX).
"""

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ledger.store.engines import sqlite_file
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.processes import nodes
from ledger.store.processes.supervision import Log
from ledger.store.writing import batch_insert
from ledger.store.writing.unwritten import OverwrittenError, UnfitError

LOCK_SECONDS_MAX = 30.0
LOCK_PAUSE_SECONDS = 0.02
"""How long a process waits for others that open the ledger: a migration may take that long."""
LOCK_CHARACTERS_MAX = 100
TRY_MS_MAX = 500
"""How long one try to write waits for another process; a writer that is to end has no more."""
CACHE_KIB = 2_000
"""Held in the proxy's memory all the time, beside the operating system's file cache. With 4 MB an
exchange needs as much CPU in a ledger of 560 MB (measured), with 0.5 MB five percent more."""
BULK_CACHE_KIB = 32_000
"""Of a process that only fills a ledger: the pages of a whole commit. With 2 MB they went to the
WAL and came back within one commit, twice the system's time for the ledger (measured)."""
CHECKPOINT_PAGES = 4_000
"""16 MB of WAL."""
WAL_KEPT_BYTES_MAX = 64_000_000
"""A longer WAL is truncated to this after a checkpoint has emptied it."""
WAL_WARNED_BYTES = 256_000_000
"""A WAL of this length is logged: a reader keeps its snapshot open, so no checkpoint can empty the
WAL, and it grows by some 20 KB an exchange until that reader ends."""


class LedgerFile:
    """A connection to a ledger's file, for one thread."""

    def __init__(
        self, path: Path, *, shown_url: str, spooling: bool, log: Log, cache_kib: int = CACHE_KIB
    ) -> None:
        self.connection: sqlite3.Connection
        self.path = path
        self.shown_url = shown_url
        self.spooling = spooling
        self._cache_kib = cache_kib
        self._wal = path.with_name(f"{path.name}-wal")
        self._log = log
        self._inodes: tuple[int, int] | None = None
        """Of the file and the WAL that are open; None: nothing is."""
        self._number = 0
        self._identity = (0, 0)
        """Number of the ledger and version of the schema, as the file itself had them last; 0: they
        have not come from the WAL into the file yet."""
        self._size_and_time = (0, 0)
        """Of the file, when it was found to be the ledger's."""
        self._is_wal_long = False
        self._schema_version = 0
        """SQLite's, which any change of tables raises, when the schema was found to be ours."""

    def open(self) -> None:
        """Open the ledger, created or migrated if need be. LedgerError if it cannot be opened."""
        with _opening(self.path) as lock:
            noted = lock.readline(LOCK_CHARACTERS_MAX).split() if lock is not None else []
            inode, wal_inode = str(_inode(self.path)), str(_inode(self._wal))
            if inode == "0" or (noted and wal_inode == noted[1] and inode != noted[0]):
                self._set_wal_aside()
            sqlite_file.create(self.path)
            connection, found = sqlite_file.opened(self.path, self.shown_url, creating=True)
            if found != REVISION:
                connection.close()
                # Migrations use SQLAlchemy, which a proxy does not import otherwise.
                from sqlalchemy.engine import URL

                from ledger.store import db

                db.ensure(URL.create("sqlite", database=str(self.path))).dispose()
                connection = sqlite_file.connect(self.path)
            self._number = _number(connection)
            self._inodes = _inode(self.path), _inode(self._wal)
            if lock is not None:
                lock.seek(0)
                lock.truncate()
                print(*self._inodes, file=lock, flush=True)
        busy_ms = min(TRY_MS_MAX, sqlite_file.BUSY_MS_MAX)
        connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
        connection.execute(f"PRAGMA cache_size = -{self._cache_kib}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES_MAX}")
        for statement in batch_insert.setup(spooling=self.spooling):
            connection.execute(statement)
        self.connection = connection
        self._identity = self._identity_in_file()
        self._size_and_time = (0, 0)

    def is_in_place(self) -> bool:
        """Whether the connected file and its WAL have the ledger's name. OverwrittenError: the file
        does, and is the ledger's no more; it is closed."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        wal_inode = _inode(self._wal)
        if self._inodes is None or status.st_ino != self._inodes[0]:
            return False
        size_and_time = (status.st_size, status.st_mtime_ns)
        is_same_wal = wal_inode == self._inodes[1]
        # A writer that finds it out sets the WAL aside; an operator who removes it keeps no copy.
        is_found_out = not is_same_wal and self._kept_wal(self._inodes[1]).exists()
        if is_found_out or (size_and_time != self._size_and_time and self._is_overwritten(status)):
            # The WAL would be written over the new file. Closed first: who opens the new one has
            # the lock file, and waits for all connections to the old one.
            self.connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
            self.connection.close()
            self._inodes = None
            with contextlib.suppress(sqlite3.OperationalError), _opening(self.path):
                if is_same_wal and _inode(self._wal) == wal_inode:
                    self._set_wal_aside()
            raise OverwrittenError(f"the ledger {self.path} was overwritten in place")
        self._size_and_time = size_and_time
        return is_same_wal

    def check(self) -> None:
        """Open the file that has the ledger's name, if that is another one now. UnfitError: its
        schema is another one."""
        if not self.is_in_place():
            self.change()
        if (version := _pragma(self.connection, "schema_version")) != self._schema_version:
            found = sqlite_file.revision_of(self.connection)
            if found != REVISION:
                raise UnfitError(f"its schema is {found or 'none'}, this tokentee has {REVISION}")
            self._schema_version = version
        with contextlib.suppress(OSError):
            size = self._wal.stat().st_size
            if size > WAL_WARNED_BYTES and not self._is_wal_long:
                self._log(
                    "warning",
                    f"the WAL of {self.path} has {size // 1_000_000} MB: a reader that does not "
                    "end keeps it from being emptied",
                )
            self._is_wal_long = size > WAL_WARNED_BYTES

    def reopen(self) -> None:
        """Open the ledger again, migrated if need be. LedgerError: this process cannot."""
        self.connection.close()
        self.open()

    def change(self) -> None:
        """Let go of a file that was moved or removed, and open the one that has the name."""
        if self._inodes is not None:
            self._log("error", f"the ledger {self.path} was moved or removed; a new one is begun")
            self._release()
        self.open()

    def close(self) -> None:
        """Close the connection. The last one to close brings the WAL into the file.
        OverwrittenError, when it is closed: the file is not the ledger's any more."""
        with contextlib.suppress(sqlite3.Error):
            if not self.is_in_place() and self._inodes is not None:
                self._release()
        self.connection.close()

    def _release(self) -> None:
        """Bring the WAL into a file that has another name now, or none, and close it."""
        try:
            busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                self._log("error", f"a reader of {self.path} keeps its last commits in the WAL")
        except sqlite3.Error as error:
            self._log("error", f"the last commits of {self.path} stay in its WAL: {error}")
        self.connection.close()
        self._inodes = None

    def _is_overwritten(self, status: os.stat_result) -> bool:
        """Whether somebody who is no writer of this ledger made the file what it is."""
        try:
            number, version = self._identity_in_file()
            latest = _pragma(self.connection, "schema_version")
            # VACUUM makes it shorter, and takes its WAL in.
            size = _pragma(self.connection, "page_count") * _pragma(self.connection, "page_size")
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return True
        if status.st_size < min(size, self._size_and_time[0]):
            return True
        is_ours = number in (self._identity[0], self._number)
        if not is_ours or not self._identity[1] <= version <= latest:
            return True
        self._identity = number, version
        return False

    def _identity_in_file(self) -> tuple[int, int]:
        uri = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"  # past the WAL
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            # A checkpoint of another writer puts down the first page first, with the length that
            # the file is to have: until then the file would be malformed.
            connection.execute("PRAGMA writable_schema = ON")
            return _pragma(connection, "application_id"), _pragma(connection, "schema_version")

    def _set_wal_aside(self) -> None:
        """Take the WAL away from its name. Who has it open goes on with it, and finds out before
        anything is reported."""
        with contextlib.suppress(OSError):
            status = self._wal.stat()
            if status.st_size:
                self._wal.rename(self._kept_wal(status.st_ino))
            else:
                self._wal.unlink()
        with contextlib.suppress(OSError):
            self.path.with_name(f"{self.path.name}-shm").unlink()

    def _kept_wal(self, inode: int) -> Path:
        return self._wal.with_name(f"{self._wal.name}.{inode}")


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[IO[str] | None]:
    """Hold the lock file of a ledger. None where there can be no lock file: what is wrong with the
    place is said when the ledger is opened."""
    name, until = path.with_name(f"{path.name}-lock"), time.monotonic() + LOCK_SECONDS_MAX
    try:
        while (turn := nodes.take_turn(name)) is None and time.monotonic() < until:
            time.sleep(LOCK_PAUSE_SECONDS)
    except OSError:
        yield None
        return
    if turn is None:
        raise sqlite3.OperationalError("database is locked")
    with os.fdopen(turn, "r+") as lock:
        yield lock


def _number(connection: sqlite3.Connection) -> int:
    """The number of a ledger, in the header of its file; given once."""
    if not _pragma(connection, "application_id"):
        with sqlite_file.writing(connection):
            if not _pragma(connection, "application_id"):
                number = secrets.randbelow(2**31 - 1) + 1
                connection.execute(f"PRAGMA application_id = {number}")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return _pragma(connection, "application_id")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _inode(path: Path) -> int:
    """0: there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0
