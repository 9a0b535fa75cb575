"""Database. The SQLite file that the writer commits to: opening it, and watching that it stays.

SQLite finds the WAL of a database by the name that the database had when it was opened
(https://www.sqlite.org/howtocorrupt.html, "Unlinking or renaming a database file while in use"). A
file that is moved or removed still accepts writes, no command would ever read them, and a new file
under the name would take the old one's WAL for its own. So:

- After each commit, before it is reported, the writer compares the file of this name with the one
  that it has open. If they differ, nothing is reported: the batch is written again, to the file
  that has the name now. Exchanges have ids of their own, so one that is in both files is one.
- Opening goes on under a lock file, one process at a time. A WAL that belongs to a file that was
  moved goes after it, or aside, before any file is opened under the name. Which WAL belongs to
  which file stands in the lock file.
- Before a writer lets go of a moved file, it checkpoints the WAL into it.
- A file that is overwritten in place (`cp` over it) keeps its name and its inode. Before and after
  each batch, and each second, the writer reads the header from the file itself, past the WAL. Each
  ledger has a number of its own there (`PRAGMA application_id`). A backup has it, too, but counts
  its changes anew, and its schema has a version that the ledger's has not had yet (`VACUUM INTO`
  adds one to it) or has left behind (`.backup` begins at 1). If the header is another's, or the
  file became too short, the writer moves the WAL aside and goes on in the file as it is then. What
  `cp` made of the ledger's own file since the last checkpoint cannot be told from it.
"""

import contextlib
import fcntl
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from ledger.store.engines import sqlite_file
from ledger.store.engines.sqlite_file import REVISION
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
"""How often the writer checks that its file still exists."""

HEADER_BYTES = 72
COUNTER_AT, COOKIE_AT, NUMBER_AT = 24, 40, 68
"""Where the count of changes, `schema_version` and `application_id` stand in a file, each 4 bytes
(https://sqlite.org/fileformat2.html#the_database_header). Who writes the first page counts it; none
of the three ever becomes smaller."""

SETTLED_SECONDS = 1.0
"""A file that is being overwritten is opened when nobody has written to it for so long."""

type Log = Callable[[str, str], None]


class _Header(NamedTuple):
    """Of a file as it lies on disk, without its WAL."""

    number: int = 0
    """0: it has not come from the WAL into the file yet."""
    counter: int = 0
    cookie: int = 0
    """`PRAGMA schema_version`."""


class _Seen(NamedTuple):
    """A ledger's file as it lies on disk, without its WAL."""

    inode: int
    wal_inode: int | None
    bytes: int = 0
    header: _Header = _Header()


class BeingOverwrittenError(sqlite3.OperationalError):
    """Somebody writes into the ledger's file past SQLite, and may not have finished."""


class LedgerFile:
    """A connection to a ledger's file, for one thread."""

    def __init__(self, path: Path, *, shown_url: str, spooling: bool, log: Log) -> None:
        self.connection: sqlite3.Connection
        self._path = path
        self._shown_url = shown_url
        self._spooling = spooling
        self._log = log
        self._seen: _Seen | None = None
        self._number = self._page_bytes = 0
        self._descriptor: int | None = None
        self._check_at = 0.0
        self._changed_at = 0.0
        """When the file was last seen to be written to by somebody else; 0: it was not."""
        self._is_wal_warned = False

    def open(self) -> None:
        """Open the ledger, created or migrated if need be, and prepare the connection for
        batches. LedgerError if it cannot be opened."""
        with _opening(self._path) as lock:
            _part_from_stale_wal(self._path, lock)
            sqlite_file.create(self._path)
            inode = self._path.stat().st_ino
            connection = _connected(self._path, self._shown_url)
            self._number = _number(connection)
            self._page_bytes = _pragma(connection, "page_size")
            _remember(self._path, lock)
        # In a large ledger, a row touches pages anywhere in two indices.
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES_MAX}")
        for statement in batch_insert.setup(spooling=self._spooling):
            connection.execute(statement)
        self.connection = connection
        self._descriptor = _descriptor(inode)
        self._seen = _Seen(inode, _inode(_wal(self._path)))

    def is_in_place(self) -> bool:
        """Whether the connected file is the one that has the ledger's name, and still the ledger's.
        BeingOverwrittenError: not for now."""
        seen = self._seen
        try:
            found = self._path.stat()
        except OSError:
            return False
        if seen is None or found.st_ino != seen.inode:
            return False
        header = self._header()
        is_shorter = found.st_size < seen.bytes and found.st_size < self._bytes()
        wal_inode = _inode(_wal(self._path))
        if (
            is_shorter
            or not self._may_become(seen.header, header)
            or wal_inode not in (None, seen.wal_inode)  # another writer has found it out
        ):
            is_first = wal_inode == seen.wal_inode  # of the writers that find it out
            # While a file is truncated, it has its old time.
            self._changed_at = max(self._changed_at or time.time(), found.st_mtime)
            if is_first and time.time() - self._changed_at < SETTLED_SECONDS:
                raise BeingOverwrittenError("the ledger's file is being overwritten")
            self._abandon(seen)
            return False
        self._changed_at = 0.0
        self._seen = seen._replace(bytes=found.st_size, header=header)
        return wal_inode is not None

    def check(self) -> None:
        """Open the file that has the ledger's name, if that is another one now."""
        if not self.is_in_place():
            self.change()
        now = time.monotonic()
        if now >= self._check_at:
            self._check_wal_size()
            self._check_at = now + CHECK_SECONDS

    def close(self) -> None:
        """Close the connection. The last one to close brings the WAL into the file, unless that is
        another one now."""
        try:
            self.is_in_place()
        except BeingOverwrittenError:
            if self._seen is not None:
                self._abandon(self._seen)
        except sqlite3.Error:
            pass
        self.connection.close()

    def change(self) -> None:
        """Let go of a file that was moved or removed, and open the one that has the name."""
        if self._seen is not None:
            self._release(self._seen.inode)
        self.open()

    def _release(self, inode: int) -> None:
        self._log("error", f"the ledger {self._path} was moved or removed; a new one is begun")
        try:
            busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                self._log("error", f"a reader of {self._path} keeps its last commits in the WAL")
        except sqlite3.Error as error:
            self._log("error", f"the last commits of {self._path} stay in its WAL: {error}")
        self._seen = None
        with _opening(self._path) as lock:
            _part_from_stale_wal(
                self._path, lock, moved_to=_name_of_open_file(self._descriptor, inode)
            )
            # Of a file that was moved, SQLite removes no WAL when the last connection closes.
            self.connection.close()

    def _header(self) -> _Header:
        """What stands in the file itself."""
        if self._descriptor is None:
            return _Header()  # no way to look past the WAL on this system
        head = os.pread(self._descriptor, HEADER_BYTES, 0)
        return _Header(
            *(int.from_bytes(head[at : at + 4], "big") for at in (NUMBER_AT, COUNTER_AT, COOKIE_AT))
        )

    def _may_become(self, seen: _Header, found: _Header) -> bool:
        """Whether writers of this ledger, and nobody else, made one header of the other."""
        if found == seen:
            return True
        if found.number not in (seen.number, self._number) or found.counter < seen.counter:
            return False
        return seen.cookie <= found.cookie <= self._cookie()

    def _cookie(self) -> int:
        """The version of the schema, the WAL taken in; 0: it cannot be read."""
        try:
            return _pragma(self.connection, "schema_version")
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return 0

    def _bytes(self) -> int:
        """The length of the ledger, its WAL taken in. VACUUM makes it shorter."""
        with contextlib.suppress(sqlite3.DatabaseError):
            return _pragma(self.connection, "page_count") * self._page_bytes
        return sys.maxsize

    def _abandon(self, seen: _Seen) -> None:
        """Let go of a file that was overwritten in place. Its WAL holds commits of the file that it
        was, and would be taken for the new one's."""
        self._log(
            "error",
            f"the ledger {self._path} was overwritten in place; recording goes on in the file as "
            f"it is now, and what the WAL held lies in {_wal(self._path).name}.{seen.wal_inode}",
        )
        # Closed first: who opens the new file has the lock file, and waits for all connections to
        # the old one, whose locks are on the same inode.
        self.connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        self.connection.close()
        self._seen = None
        with _opening(self._path):
            if _inode(_wal(self._path)) == seen.wal_inode:
                _move_wal(self._path, None)

    def _check_wal_size(self) -> None:
        size = 0
        with contextlib.suppress(OSError):
            size = _wal(self._path).stat().st_size
        if size > WAL_WARNED_BYTES and not self._is_wal_warned:
            self._log(
                "warning",
                f"the WAL of {self._path} has {size // 1_000_000} MB: a reader that does not end "
                "keeps it from being emptied",
            )
        self._is_wal_warned = size > WAL_WARNED_BYTES


def _connected(path: Path, shown: str) -> sqlite3.Connection:
    """A connection to a ledger, created or migrated to this code's schema if need be."""
    connection, found = sqlite_file.opened(path, shown, creating=True)
    if found == REVISION:
        return connection
    connection.close()
    # Migrations use SQLAlchemy, which a proxy does not import otherwise.
    from sqlalchemy.engine import URL

    from ledger.store import db

    db.ensure(URL.create("sqlite", database=str(path))).dispose()
    return sqlite_file.connect(path)


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[IO[str] | None]:
    """Hold the lock file of a ledger: processes open it one after the other. None where there can
    be no lock file: what is wrong with the place is said when the ledger is opened."""
    try:
        name = path.with_name(f"{path.name}-lock")
        lock = os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    except OSError:
        yield None
        return
    with lock:
        until = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= until:
                    raise sqlite3.OperationalError("database is locked") from None
                time.sleep(LOCK_PAUSE_SECONDS)
        yield lock


def _remember(path: Path, lock: IO[str] | None) -> None:
    """Note which WAL belongs to the file of this name."""
    if lock is None:
        return
    lock.seek(0)
    lock.truncate()
    lock.write(f"{_inode(path)} {_inode(_wal(path))}\n")
    lock.flush()


def _part_from_stale_wal(path: Path, lock: IO[str] | None, moved_to: Path | None = None) -> None:
    """Move the WAL of a file that does not have this name any more after it, or aside.

    Who has it open goes on with it, and finds out before anything is reported.
    """
    if lock is None:
        return
    lock.seek(0)
    words = lock.readline(LOCK_CHARACTERS_MAX).split()
    ours = tuple(int(word) if word.isdigit() else None for word in words)
    file, wal = _inode(path), _inode(_wal(path))
    if wal is None or (file is not None and (len(ours) != 2 or wal != ours[1] or file == ours[0])):
        return
    _move_wal(path, moved_to)


def _move_wal(path: Path, moved_to: Path | None) -> None:
    wal = _inode(_wal(path))
    for ending in ("-wal", "-shm"):
        beside = path.with_name(f"{path.name}{ending}")
        aside = path.with_name(f"{path.name}{ending}.{wal}")
        target = aside if moved_to is None else moved_to.with_name(f"{moved_to.name}{ending}")
        with contextlib.suppress(OSError):
            beside.rename(aside if target.exists() else target)


def _number(connection: sqlite3.Connection) -> int:
    """The number of a ledger, in the header of its file; given once."""
    found = _pragma(connection, "application_id")
    if not found:
        with sqlite_file.writing(connection):
            found = _pragma(connection, "application_id")
            if not found:
                found = secrets.randbelow(2**31 - 1) + 1
                connection.execute(f"PRAGMA application_id = {found}")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return found


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _descriptor(inode: int) -> int | None:
    """The descriptor that SQLite has of a file. One of our own would, when it is closed, drop the
    locks that this process holds on the file (POSIX)."""
    for link in Path("/dev/fd").glob("*"):
        with contextlib.suppress(OSError):
            if os.fstat(int(link.name)).st_ino == inode:
                return int(link.name)
    return None


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _name_of_open_file(descriptor: int | None, inode: int) -> Path | None:
    """The name that a file of this process has now; None where it has none, or none is known."""
    with contextlib.suppress(OSError):
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        if name.stat().st_ino == inode:
            return name
    return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
