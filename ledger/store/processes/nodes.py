"""Edge. Which recording processes are alive.

Each one holds a lock on a file of its own beside the ledger. The system releases the lock when the
process ends for any reason, so a lock that can be taken belongs to a dead process. This needs no
process ids, which are reused and mean nothing between two containers on one volume. In the file
stand the schema that the process writes, its name, and the exchanges that upstream is answering:
what is shown for seconds needs no commit.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

from ledger.store.engines.sqlite_file import REVISION

ANSWERED_MAX = 1_000
"""Ids in a file, of 64 characters at most."""
LINE_BYTES_MAX = 1_000
"""Read of the first line: a schema, and a host's name, a process id and a time."""


class Claim:
    """Marks a node as alive from `take` on, until it is released or the process ends."""

    def __init__(self, ledger: Path, node: str) -> None:
        self.node = node
        """The node's name: made unique if another process has the same."""
        self._ledger = ledger
        self._file: int | None = None
        self._lock = threading.Lock()

    def take(self) -> Self:
        """Mark it. OSError if that cannot be written."""
        wanted = self.node
        while self._file is None:
            self._path = lock_path(self._ledger, self.node)
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # None: another container has the same host name, process id and second of start.
            self._file = take_turn(self._path)
            if self._file is None:
                self.node = f"{wanted}/{secrets.token_hex(4)}"
        self.note_answered(())
        return self

    def note_answered(self, ids: Iterable[str]) -> None:
        """Write which exchanges upstream is answering, in place of the last ones."""
        lines = (f"{REVISION} {self.node}", *sorted(ids)[:ANSWERED_MAX])
        data = "\n".join(lines).encode("utf-8", "replace")
        with self._lock, contextlib.suppress(OSError):
            if self._file is not None:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, data, 0)

    def release(self) -> None:
        """Mark the node as ended in good order; idempotent."""
        with self._lock:
            if self._file is None:
                return
            # Removed before it is closed: otherwise another process could take the lock and we
            # would remove its file.
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._file)
            self._file = None


def answered(ledger: Path, nodes: Iterable[str]) -> set[str]:
    """The exchanges of these nodes that upstream was answering when they last wrote it down."""
    found: set[str] = set()
    for node in nodes:
        with contextlib.suppress(OSError), lock_path(ledger, node).open("rb") as file:
            found.update(file.read(ANSWERED_MAX * 65).decode("utf-8", "replace").split("\n")[1:])
    return found


class LiveRecorder(NamedTuple):
    """A live process that records into a ledger."""

    file: Path
    """Its lock file."""
    schema: str
    """The one that it writes; empty: it is of a version that did not note it."""
    node: str


def recorders(ledger: Path) -> list[LiveRecorder]:
    """The live processes that record into a SQLite ledger."""
    found = []
    for path in sorted(_folder(ledger).glob("*")):
        with contextlib.suppress(OSError), path.open("r+b") as file:
            if not _try_lock(file.fileno()):
                first = file.readline(LINE_BYTES_MAX).decode("utf-8", "replace").rstrip("\n")
                schema, _, node = first.partition(" ")
                found.append(LiveRecorder(path, schema if node else "", node))
    return found


def is_alive(ledger: Path, node: str) -> bool:
    """A node without a file ended in good order; a file that can be locked was left by a dead
    one, and is removed."""
    path = lock_path(ledger, node)
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        if not _try_lock(file):
            return True
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(file)


def take_turn(path: Path) -> int | None:
    """An open file with an exclusive lock; None while another process holds the lock."""
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    if _try_lock(file):
        return file
    os.close(file)
    return None


def lock_path(ledger: Path, node: str) -> Path:
    """The lock file of a node of this name."""
    digest = hashlib.blake2b(node.encode(), digest_size=16).hexdigest()
    return _folder(ledger) / digest


def _folder(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}-nodes")


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
