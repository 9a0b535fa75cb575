"""Database. The SQLite file that the writer commits to: opening it, and watching that it stays.

SQLite finds the WAL of a database by the name that the database had when it was opened
(https://www.sqlite.org/howtocorrupt.html, "Unlinking or renaming a database file while in use"). A
file that is moved or removed still accepts writes, no command would ever read them, and a new file
under the name would take the old one's WAL for its own. So:

- After each commit, before it is reported, the writer compares device and inode of the file of this
  name with those of the file that it has open. If they differ, nothing is reported: the batch is
  written again, to the file that has the name now. Exchanges have ids of their own, so one that is
  in both files is one.
- Opening goes on under a lock file, one process at a time. Which WAL belongs to which file stands
  in it. A WAL of another file is set aside before any file is opened under the name.
- Before a writer lets go of a moved file, it checkpoints the WAL into it.
- A file that is overwritten in place (`cp` over it) keeps its inode. Where its size or time of
  change is another than last seen, SQLite is asked, past the WAL, whose it is: each ledger has a
  number of its own (`PRAGMA application_id`), and a backup has another version of the schema or
  fewer pages. `OverwrittenError` then ends the use of this file. A copy of the ledger's own file
  that is no shorter cannot be told from it.

The writer has no descriptor of its own on the file: closing one drops the locks that SQLite holds
for this process (POSIX). SQLite's keeps the inode from being given to another file.
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
LOCK_CHARACTERS_MAX = 100
LOCK_SECONDS_MAX = 30.0
LOCK_PAUSE_SECONDS = 0.02
"""How long a process waits for others that open the ledger: a migration may take that long."""
CHECK_SECONDS = 1.0
"""How often the writer checks the length of the WAL."""

type FileId = tuple[int, int]
"""Device and inode."""


class OverwrittenError(Exception):
    """The ledger's file was overwritten in place: nothing more can be written to it."""


class LedgerFile:
    """A connection to a ledger's file, for one thread."""

    def __init__(self, path: Path, *, shown_url: str, spooling: bool, log: Log) -> None:
        self.connection: sqlite3.Connection
        self.path = path
        self.shown_url = shown_url
        self.spooling = spooling
        self._wal = path.with_name(f"{path.name}-wal")
        self._log = log
        self._ids: tuple[FileId | None, FileId | None] = (None, None)
        """Of the file and the WAL that are open."""
        self._number = 0
        self._identity = (0, 0)
        """Number of the ledger and version of the schema, as the file itself had them; 0: they have
        not come from the WAL into the file yet."""
        self._size_and_time = (0, 0)
        """Of the file, when it was found to be the ledger's."""
        self._check_at = 0.0
        self._is_wal_warned = False

    def open(self) -> None:
        """Open the ledger, created or migrated if need be, and prepare the connection for
        batches. LedgerError if it cannot be opened."""
        with _opening(self.path) as lock:
            self._set_stale_wal_aside(lock)
            sqlite_file.create(self.path)
            file_id = _id_of(self.path)
            connection, found = sqlite_file.opened(self.path, self.shown_url, creating=True)
            if found != REVISION:
                connection.close()
                # Migrations use SQLAlchemy, which a proxy does not import otherwise.
                from sqlalchemy.engine import URL

                from ledger.store import db

                db.ensure(URL.create("sqlite", database=str(self.path))).dispose()
                connection = sqlite_file.connect(self.path)
            self._number = _number(connection)
            self._ids = (file_id, _id_of(self._wal))
            if lock is not None:
                lock.seek(0)
                lock.truncate()
                print(*(each and each[1] for each in self._ids), file=lock, flush=True)
        # In a large ledger, a row touches pages anywhere in two indices.
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES_MAX}")
        for statement in batch_insert.setup(spooling=self.spooling):
            connection.execute(statement)
        self.connection = connection
        with contextlib.closing(self._past_wal()) as past_wal:
            self._identity = _identity(past_wal)
        self._size_and_time = (0, 0)

    def is_in_place(self) -> bool:
        """Whether the connected file is the one that has the ledger's name. OverwrittenError: it
        is, and is the ledger's no more."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        file_id, wal_id = self._ids
        if (status.st_dev, status.st_ino) != file_id:
            return False
        size_and_time = (status.st_size, status.st_mtime_ns)
        wal_now = _id_of(self._wal)
        is_found_out = wal_now != wal_id and (  # by another writer, that set the WAL aside
            wal_now is not None or (wal_id is not None and _aside(self._wal, wal_id[1]).exists())
        )
        if is_found_out or (
            size_and_time != self._size_and_time and self._is_overwritten(status.st_size)
        ):
            # The WAL holds commits of the file that it was, and would be written over the new one.
            # Closed first: who opens the new file has the lock file, and waits for all connections
            # to the old one, whose locks are on the same inode.
            self.connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
            self.connection.close()
            with contextlib.suppress(sqlite3.OperationalError), _opening(self.path):
                if _id_of(self._wal) == wal_id:
                    _set_aside(self._wal)
            self._ids = (None, None)
            raise OverwrittenError(f"the ledger {self.path} was overwritten in place")
        self._size_and_time = size_and_time
        return wal_now is not None

    def check(self) -> None:
        """Open the file that has the ledger's name, if that is another one now."""
        if not self.is_in_place():
            self.change()
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + CHECK_SECONDS
            size = 0
            with contextlib.suppress(OSError):
                size = self._wal.stat().st_size
            if size > WAL_WARNED_BYTES and not self._is_wal_warned:
                self._log(
                    "warning",
                    f"the WAL of {self.path} has {size // 1_000_000} MB: a reader that does not "
                    "end keeps it from being emptied",
                )
            self._is_wal_warned = size > WAL_WARNED_BYTES

    def change(self) -> None:
        """Let go of a file that was moved or removed, and open the one that has the name."""
        if self._ids[0] is not None:
            self._log("error", f"the ledger {self.path} was moved or removed; a new one is begun")
            self._release()
        self.open()

    def close(self) -> None:
        """Close the connection. The last one to close brings the WAL into the file.
        OverwrittenError, when it is closed: the file is not the ledger's any more."""
        with contextlib.suppress(sqlite3.Error):
            if not self.is_in_place() and self._ids[0] is not None:
                self._release()
        self.connection.close()

    def _release(self) -> None:
        try:
            busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                self._log("error", f"a reader of {self.path} keeps its last commits in the WAL")
        except sqlite3.Error as error:
            self._log("error", f"the last commits of {self.path} stay in its WAL: {error}")
        with _opening(self.path) as lock:
            self._set_stale_wal_aside(lock)
            # Of a file that was moved, SQLite removes no WAL when the last connection closes.
            self.connection.close()
        self._ids = (None, None)

    def _is_overwritten(self, size: int) -> bool:
        """Whether somebody who is no writer of this ledger made the file what it is."""
        if size < (whole_size := self._size_and_time[0]):
            with contextlib.suppress(sqlite3.DatabaseError):
                # The length of the ledger, its WAL taken in: VACUUM makes it shorter.
                pages = _pragma(self.connection, "page_count")
                whole_size = pages * _pragma(self.connection, "page_size")
            if size < whole_size:
                return True
        try:
            with contextlib.closing(self._past_wal()) as past_wal:
                number, version = _identity(past_wal)
            latest = _identity(self.connection)[1]
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return True
        is_ours = number in (self._identity[0], self._number)
        if not is_ours or not self._identity[1] <= version <= latest:
            return True
        self._identity = number, version
        return False

    def _past_wal(self) -> sqlite3.Connection:
        """The file without its WAL, for its identity."""
        uri = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True)
        # A checkpoint of another writer puts down the first page first, with the length that the
        # file is to have: until then the file would be malformed.
        connection.execute("PRAGMA writable_schema = ON")
        return connection

    def _set_stale_wal_aside(self, lock: IO[str] | None) -> None:
        """Rename the WAL of a file that does not have this name any more. Who has it open goes on
        with it, and finds out before anything is reported."""
        if lock is None or (wal_id := _id_of(self._wal)) is None:
            return
        lock.seek(0)
        noted_file, _, noted_wal = lock.readline(LOCK_CHARACTERS_MAX).strip().partition(" ")
        file_id = _id_of(self.path)
        if file_id is None or (noted_wal == str(wal_id[1]) and noted_file != str(file_id[1])):
            _set_aside(self._wal)


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[IO[str] | None]:
    """Hold the lock file of a ledger: processes open it one after the other. None where there can
    be no lock file: what is wrong with the place is said when the ledger is opened."""
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


def _set_aside(wal: Path) -> None:
    """Take a WAL away from a name, unless it is empty into a file that keeps it."""
    with contextlib.suppress(OSError):
        status = wal.stat()
        if status.st_size:
            wal.rename(_aside(wal, status.st_ino))
        else:
            wal.unlink()
    with contextlib.suppress(OSError):
        wal.with_name(f"{wal.name.removesuffix('-wal')}-shm").unlink()


def _aside(wal: Path, inode: int) -> Path:
    return wal.with_name(f"{wal.name}.{inode}")


def _number(connection: sqlite3.Connection) -> int:
    """The number of a ledger, in the header of its file; given once."""
    number = _pragma(connection, "application_id")
    if not number:
        with sqlite_file.writing(connection):
            number = _pragma(connection, "application_id")
            if not number:
                number = secrets.randbelow(2**31 - 1) + 1
                connection.execute(f"PRAGMA application_id = {number}")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return number


def _identity(connection: sqlite3.Connection) -> tuple[int, int]:
    return _pragma(connection, "application_id"), _pragma(connection, "schema_version")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _id_of(path: Path) -> FileId | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
