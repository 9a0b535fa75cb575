"""Edge. The policy for failed writes: which rows are retried, set aside or dropped, and what is
logged. Trouble is a condition of the file, the disk or another process: nothing is lost, all rows
wait and are retried. It is logged when it begins and when it ends. A refusal belongs to one row,
which is set aside; the others are written.
"""

import sqlite3
import threading
from pathlib import Path

from ledger.model.errors import LedgerError, named
from ledger.store.processes.supervision import Log, ThrottledLog
from ledger.store.writing.incoming import WAITING_MAX

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


def is_trouble(error: Exception) -> bool:
    """Whether a retry of the same write may succeed later."""
    return isinstance(error, TROUBLE) and not isinstance(error, ROW_ERRORS)


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
