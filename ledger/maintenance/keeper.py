"""Edge (a thread). The keeper: makes the sums of days that are over beside a running proxy.

Summing uses SQLAlchemy and the tables, some 14 MB of a process, and the interpreter lock for
seconds. So the keeper of a SQLite ledger first looks whether a day waits for its sums, with the
driver alone, and then has a process of its own make them: `python -m … URL`, whose errors and
notes go to stderr, a line each.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ledger.model.errors import LedgerError
from ledger.store.engines import sqlite_file, urls
from ledger.store.keys import instant_text
from ledger.store.processes.supervision import Companion, Log

FIRST_SUMS_SECONDS = 60.0
"""A proxy that runs for one command only should not spend its time on sums."""
SUMS_EVERY_SECONDS = 3600.0
SUMMING_SECONDS_MAX = 900.0
"""A shared database that needs longer for the sums of one day counts as not answering."""
LOOK_SECONDS = 0.2
"""How often the keeper looks whether it is to stop, while another process makes the sums."""
COMMAND = (sys.executable, "-P", "-m", __name__)
"""-P: files of the current folder must not shadow modules."""
NICENESS = 10
"""Of that process: a proxy on the same core comes first."""
_WAITS = (
    "SELECT EXISTS (SELECT 1 FROM stale_days) OR EXISTS (SELECT 1 FROM exchanges "
    "WHERE opened_at < :today AND opened_at >= "
    "coalesce((SELECT value FROM meta WHERE key = 'rolled_until'), ''))"
)


class Keeper(Companion):
    """Sums up days beside a running proxy, in a thread of its own."""

    def __init__(self, url: str, *, log: Log, is_bulk: bool = False) -> None:
        """`is_bulk`: the process only fills the ledger, so sums are made once, at its end."""
        super().__init__("keeper", log=log)
        self._first_seconds = None if is_bulk else FIRST_SUMS_SECONDS
        self._url = url
        self._file = urls.sqlite_path(url)
        self._deadline = 0.0

    def stop(self, timeout_seconds: float) -> None:
        """Sum up the days that are over, within the timeout, and stop; the rest stays stale."""
        self._deadline = time.monotonic() + timeout_seconds
        super().stop(timeout_seconds)

    def _run(self) -> None:
        pause_seconds = self._first_seconds
        while not self._stopping.wait(pause_seconds):
            pause_seconds = SUMS_EVERY_SECONDS
            if self._file is None or "sqlalchemy" in sys.modules:
                self._roll(self._stopping.is_set)
            elif a_day_waits(self._file, datetime.now(UTC)):
                self._roll_apart()
        # A process that filled the ledger also leaves its sums.
        self._roll(lambda: time.monotonic() >= self._deadline)

    def _roll_apart(self) -> None:
        """Let another process make the sums; what it has not made when this one stops waits."""
        process = subprocess.Popen(  # noqa: S603  # our own interpreter and module
            [*COMMAND, self._url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,  # Ctrl-C in the terminal is for the proxy
        )
        while True:
            try:
                _, lines = process.communicate(timeout=LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if self._stopping.is_set():
                    process.kill()
        for line in lines.splitlines():
            self._log("warning", line)

    def _roll(self, is_stopping: Callable[[], bool]) -> None:
        now = datetime.now(UTC)
        if self._file is not None and not a_day_waits(self._file, now):
            return
        import sqlalchemy as sa

        from ledger.maintenance import rollup
        from ledger.store import db

        # The writer logs errors of the ledger.
        with (
            contextlib.suppress(sa.exc.SQLAlchemyError, LedgerError),
            db.disposing(db.ensure(self._url, answer_seconds_max=SUMMING_SECONDS_MAX)) as engine,
        ):
            rollup.roll(engine, now=now, log=self._log, is_stopping=is_stopping)


def a_day_waits(path: Path, now: datetime) -> bool:
    """Whether a day of a SQLite ledger that is over may have no sums yet; True if it is unknown."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        with contextlib.closing(sqlite_file.connect(path)) as connection:
            (waits,) = connection.execute(_WAITS, {"today": instant_text(today)}).fetchone()
    except sqlite3.Error:
        return True
    return bool(waits)


def main() -> int:
    """Make the sums that are missing; returns the exit code."""
    from ledger.maintenance import rollup
    from ledger.store import db

    os.nice(NICENESS)
    try:
        with db.disposing(db.ensure(sys.argv[1])) as engine:
            rollup.roll(engine, now=datetime.now(UTC), log=_print)
    except LedgerError as error:
        _print("error", str(error))
        return 1
    return 0


def _print(_level: str, line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
