"""Edge (files). What the writer cannot write: which rows are tried again, set aside, kept for the
next start, or dropped, and what is logged.

- Trouble is a condition of the file, the disk or another process: all rows wait and are tried
  again. It is logged when it begins and when it ends.
- A refusal belongs to one row, which is set aside; the others are written.
- A ledger that was overwritten is written no more, and one whose schema takes no row (`UnfitError`)
  is not written meanwhile. Rows go into a file beside it, NAME-unbooked-….jsonl, one line for each:
  the exchange, and its reading or null; so do rows that still wait when the writer ends. While it
  lives, it holds a lock on the file (`nodes.take_turn`). What is left behind is booked by the next
  start, or when the schema fits.
"""

import contextlib
import glob
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Sequence
from itertools import batched
from math import inf
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ledger.model import door
from ledger.model.errors import LedgerError, named
from ledger.model.exchange import Exchange, Reading
from ledger.store.processes import nodes
from ledger.store.processes.supervision import Log, SetAside, ThrottledLog
from ledger.store.writing.batch_insert import ROWS_MAX
from ledger.store.writing.incoming import LATE, WAITING_MAX, Job

ROW_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    UnicodeError,
    OverflowError,
)
"""The row is at fault: every retry would fail."""
TROUBLE = (sqlite3.Error, LedgerError, OSError)
"""The file, the disk or another process is at fault: a retry may succeed."""
_WRONG_STATEMENT = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA)
"""No such table or column, or a value that a function refuses."""
UNBOOKED_BYTES_MAX = 1_000_000_000
"""Some 500 000 rows."""

_line_of = msgspec.json.Encoder().encode
_row_of = msgspec.json.Decoder(tuple[Exchange, Reading | None]).decode


def is_trouble(error: Exception) -> bool:
    """Whether a retry of the same write may succeed later."""
    is_other = isinstance(error, ROW_ERRORS) or is_of_statement(error)
    return isinstance(error, TROUBLE) and not is_other


def is_of_statement(error: Exception) -> bool:
    """Whether the statement does not fit the schema, or a value in it a function of SQL."""
    return getattr(error, "sqlite_errorcode", 0) in _WRONG_STATEMENT


class UnfitError(Exception):
    """The ledger's tables are not those that this process writes: they take no row."""


class OverwrittenError(UnfitError):
    """The ledger's file was overwritten in place: nothing more can be written to it."""


class Trouble:
    """Why the writer cannot write, and how many exchanges were dropped so far."""

    def __init__(self, path: Path, *, log: Log) -> None:
        self.reason: str | None = None
        """Why nothing can be committed now."""
        self.dropped = 0
        """Settled exchanges that were dropped."""
        self._path = path
        self._log = log
        self._dropping = threading.Lock()
        self._log_throttled = ThrottledLog(log)

    def begin(self, error: Exception) -> None:
        """Record that nothing can be written, for this reason."""
        reason = str(error) if isinstance(error, TROUBLE) else named(error)
        if reason != self.reason:
            self._log(
                "error",
                f"cannot write the ledger {self._path}: {reason}; the traffic goes on, "
                f"up to {WAITING_MAX} exchanges wait in memory",
            )
        self.reason = reason

    def end(self) -> None:
        """Record that a batch was written."""
        if self.reason is not None:
            self._log("warning", f"the ledger {self._path} is written again")
            self.reason = None

    def count_dropped(self, count: int, why: str) -> None:
        """Count settled exchanges that are not in the ledger, from any thread."""
        if count:
            with self._dropping:
                self.dropped += count
            self.log_throttled(f"{count} exchanges are not in the ledger: {why}")

    def log_throttled(self, line: str) -> None:
        """Log an error, unless another was logged just before."""
        self._log_throttled("error", line)


class Unbooked:
    """The rows of a writer whose ledger takes none, or took none up to the end."""

    def __init__(self, ledger: Path, *, set_aside: SetAside) -> None:
        self.node = ""
        """Of the writer."""
        self.why: str | None = None
        """Why nothing goes into the ledger; None: it does."""
        self.due = inf
        """When the schema is looked at again, as `time.monotonic`."""
        self._ledger = ledger
        self._set_aside = set_aside
        self._begin()

    def _begin(self) -> None:
        name = f"{self._ledger.name}-unbooked-{secrets.token_hex(8)}.jsonl"
        self.path = self._ledger.with_name(name)
        self._file: int | None = None
        self._size = 0

    def explain(self, error: UnfitError, *, again_at: float) -> None:
        """From now on all rows come here."""
        self.due = again_at
        why, when = (
            f"the ledger's schema takes no rows ({error})",
            "the ledger gets them when it does",
        )
        if isinstance(error, OverwrittenError):  # which is for good
            self.due = inf
            why = "the ledger was overwritten in place, and nothing more is written to it"
            when = "after a restart the ledger gets them"
        self.why = f"{why}; exchanges go into {self.path}: {when}"

    def write(self, jobs: Sequence[Job]) -> None:
        """Append rows, on disk when it returns. OSError: they are to be written again."""
        data = b""
        for job in jobs:
            try:
                exchange, reading = job.exchange, job.reading
                if job.receipt is not None and job.receipt.is_let_go:
                    noted = f"{LATE}; {exchange.degraded}" if exchange.degraded else LATE
                    exchange = replace(exchange, degraded=noted)
                exchange, reading = door.admitted(exchange, reading)
                data += _line_of((replace(exchange, node=self.node), reading)) + b"\n"
            except Exception as error:  # noqa: BLE001  # one bad row must not cost the others
                self._set_aside.add((job.exchange, job.reading), error)
        if self._file is None:
            self._file = nodes.take_turn(self.path)
        assert self._file is not None  # nobody else knows its name
        if self._size + len(data) > UNBOOKED_BYTES_MAX:
            raise OSError(f"{self.path} has {UNBOOKED_BYTES_MAX} bytes")
        # In place of what an error has cut off.
        if os.pwrite(self._file, data, self._size) < len(data):
            raise OSError(f"{self.path}: the disk is full")
        os.ftruncate(self._file, self._size + len(data))
        os.fsync(self._file)
        self._size += len(data)

    def close(self) -> None:
        """Leave the file to the next start, without what an error has cut off. Later rows go into
        another one."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
                if not self._size:
                    self.path.unlink()
            os.close(self._file)
            self._begin()


def book(ledger: Path, write: Callable[[list[Job]], None], *, set_aside: SetAside) -> int:
    """Write the rows that writers of this ledger left behind, and remove their files; how many."""
    count = 0
    for path in sorted(ledger.parent.glob(f"{glob.escape(ledger.name)}-unbooked-*.jsonl")):
        if (descriptor := nodes.take_turn(path)) is None:
            continue  # its writer lives
        with os.fdopen(descriptor, "rb") as file:
            for lines in batched(file, ROWS_MAX):
                jobs = []
                for line in lines:
                    try:
                        jobs.append(Job(*_row_of(line)))
                    except (msgspec.DecodeError, UnicodeDecodeError) as error:
                        set_aside.add(line, error)
                write(jobs)
                count += len(jobs)
            path.unlink()
    return count
