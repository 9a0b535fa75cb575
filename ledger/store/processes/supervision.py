"""Edge. Supervised threads, their health, and the items that they cannot process.

`work` runs in a daemon thread and is restarted if it raises. It guards each item itself: an item
that fails goes to `SetAside`, which counts it and keeps it in a file for inspection, and the loop
goes on. Only errors that no single item causes end `work`. They are logged once a minute, to the
log and to stderr.
"""

import contextlib
import json
import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ledger.model.errors import LedgerError, named

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 30.0
"""A thread that fails at once is restarted at most twice a minute."""
WORKS_AGAIN_SECONDS = 60.0
"""A thread that has run for this long has recovered."""
FAILURES_AT_END_MAX = 3
"""How often a thread that fails while it is asked to stop is restarted."""
LOG_SECONDS = 60.0
"""Between two lines of a `ThrottledLog`."""
SET_ASIDE_BYTES_MAX = 4_000_000
"""Size of the file of set-aside items; later items are only counted."""
ITEM_CHARACTERS_MAX = 4_000
"""Kept of one item and of one error."""

WITH_TEXT = (sqlite3.Error, OSError, LedgerError)

type Log = Callable[[str, str], object]
"""Takes a level and a line."""


class ThrottledLog:
    """Logs what may happen thousands of times: one line in `LOG_SECONDS`, from any thread. A log
    that raises stops nobody."""

    def __init__(self, *logs: Log) -> None:
        self._logs = logs
        self._quiet_until = 0.0

    def __call__(self, level: str, line: str) -> None:
        """Log this line, unless another was logged just before."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + LOG_SECONDS
            for log in self._logs:
                with contextlib.suppress(Exception):
                    log(level, line)


def log_into(logger: logging.Logger) -> Log:
    """A log whose lines go to this logger."""

    def log(level: str, line: str) -> None:
        logger.log(logging.getLevelNamesMapping()[level.upper()], "tokentee: %s", line)

    return log


def pause_after(failures: int, *, first_seconds: float, seconds_max: float) -> float:
    """Seconds to wait after so many failures in a row, from 1: they double up to a bound."""
    return min(first_seconds * 2.0 ** min(failures - 1, 60), seconds_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHealth:
    """The state of one thread."""

    name: str
    is_working: bool
    """False while it waits for a restart, and after it ended without being asked to."""
    failures: int
    """How often it was restarted."""
    set_aside: int
    """Items that it could not process."""
    error: str | None
    """The last reason for a restart or a set-aside item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingHealth:
    """The state of recording."""

    threads: tuple[ThreadHealth, ...]
    """The writer's first, then those of the other threads."""
    trouble: str | None
    """Why nothing can be committed now."""
    queued_rows: int
    dropped: int
    """Settled exchanges that could not be recorded since the start."""
    set_aside: int
    """Items that could not be written, kept in a file beside the ledger."""

    def problems(self) -> tuple[str, ...]:
        """One line per problem; empty: there is none."""
        found = [
            f"the {thread.name} does not work: {thread.error}"
            for thread in self.threads
            if not thread.is_working
        ]
        if self.trouble is not None:
            found.append(f"the ledger cannot be written: {self.trouble}")
        if self.dropped:
            found.append(f"{self.dropped} exchanges are not in the ledger")
        if self.set_aside:
            found.append(f"{self.set_aside} items were set aside")
        return tuple(found)

    def unrecorded(self) -> str:
        """What the ledger lacks, for a bill that it is the source of; empty: nothing is known to
        be missing."""
        count = self.dropped + self.set_aside + self.queued_rows
        if not (count or self.trouble):
            return ""
        noun = "exchange is" if count == 1 else "exchanges are"
        what = (
            f"{count} {noun} not in the ledger" if count else "exchanges may not be in the ledger"
        )
        return f"{what}{f': {self.trouble}' if self.trouble else ''}"


class SetAside:
    """Keeps items that could not be processed. Called from any thread; never raises."""

    def __init__(self, path: Path | None, *, log: Log) -> None:
        self._path = path
        self._log = ThrottledLog(log)
        self._lock = threading.Lock()
        self.count = 0
        self.error: str | None = None

    def add(self, item: object, error: BaseException) -> None:
        """Keep an item and the reason why it failed; logged at intervals."""
        reason = shown(error)
        with self._lock:
            self.count += 1
            self.error = reason
            place = ""
            if self._path is not None:
                at = datetime.now(UTC).isoformat()
                line = json.dumps({"at": at, "error": reason, "item": shown(item)})
                with contextlib.suppress(OSError):
                    file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
                    try:
                        if os.fstat(file).st_size < SET_ASIDE_BYTES_MAX:
                            os.write(file, line.encode() + b"\n")
                    finally:
                        os.close(file)
                    place = f"; kept in {self._path}"
        self._log("error", f"{self.count} items were set aside, the last for {reason}{place}")


class SupervisedThread:
    """Runs `work` in a thread until it returns."""

    def __init__(
        self, name: str, work: Callable[[], None], *, log: Log, set_aside: SetAside | None = None
    ) -> None:
        self._name = name
        self._work = work
        self._log = ThrottledLog(log, _print)
        self._set_aside = set_aside
        self._failures = 0
        self._error: str | None = None
        self._is_working = True
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tokentee-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Wait until `work` has returned; whether it has."""
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @property
    def is_running(self) -> bool:
        """Whether the thread exists: `work` runs, or is about to run again."""
        return self._thread.is_alive()

    def health(self) -> ThreadHealth:
        """The state of the thread."""
        aside = self._set_aside
        return ThreadHealth(
            name=self._name,
            is_working=self._is_working and (self._thread.is_alive() or self._ended.is_set()),
            failures=self._failures,
            set_aside=aside.count if aside else 0,
            error=self._error or (aside.error if aside else None),
        )

    def _run(self) -> None:
        failures_in_a_row = 0
        while True:
            started = time.monotonic()
            self._is_working = True
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001  # the thread goes on after any error
                if time.monotonic() - started >= WORKS_AGAIN_SECONDS:
                    failures_in_a_row = 0
                failures_in_a_row += 1
                self._failures += 1
                self._error = shown(error)
                self._is_working = False
                self._log(
                    "error",
                    f"the {self._name} failed {self._failures} times and is started again: "
                    f"{self._error}",
                )
                # A stop that is requested during the pause ends the pause.
                self._woken.wait(
                    pause_after(
                        failures_in_a_row,
                        first_seconds=PAUSE_SECONDS,
                        seconds_max=PAUSE_SECONDS_MAX,
                    )
                )
                if self._woken.is_set() and self._failures > FAILURES_AT_END_MAX:
                    return
            else:
                self._ended.set()
                return


class Companion:
    """A thread that works on a ledger beside the writer: it ships it, or keeps its sums."""

    def __init__(self, name: str, *, log: Log) -> None:
        self._log = log
        self._stopping = threading.Event()
        self._thread = SupervisedThread(name, self._run, log=log)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Called when the writer has committed a batch; who works at intervals does nothing."""

    def stop(self, timeout_seconds: float) -> None:
        """Finish within this many seconds."""
        self._stopping.set()
        self._thread.join(timeout_seconds)

    def health(self) -> ThreadHealth:
        """The state of the thread."""
        return self._thread.health()

    def _run(self) -> None:
        raise NotImplementedError


def shown(value: object) -> str:
    """The text of an item or an error for a log and a file. Of an error that is no database's, no
    file's and not the operator's, the text may quote traffic: its type and place alone."""
    if isinstance(value, BaseException) and not isinstance(value, WITH_TEXT):
        return named(value)
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # the value's own repr raised
        text = f"{type(value).__name__} ({type(error).__name__} in its repr)"
    return text[:ITEM_CHARACTERS_MAX].encode("ascii", "backslashreplace").decode()


def _print(_level: str, line: str) -> None:
    sys.stderr.write(f"tokentee: {line}\n")
    sys.stderr.flush()
