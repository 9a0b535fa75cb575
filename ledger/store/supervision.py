"""Edge. A thread that goes on, and items that it cannot work on.

    Supervisor   runs `work` in a daemon thread; if it raises, runs it again after a pause, and
                 says once a minute on stderr for how long it has not worked
    SetAside     counts what could not be worked on and keeps it in a file, to be looked at

`work` guards each item itself: an item that fails goes to `SetAside` and the loop goes on. What
reaches the supervisor is what no item explains.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 30.0
"""A thread that fails at once is started again twice a minute at most."""
WORKS_AGAIN_SECONDS = 60.0
"""A thread that has run for so long has recovered."""
SAY_SECONDS = 60.0
KEPT_BYTES_MAX = 4_000_000
"""Of what was set aside; later items are only counted."""
SHOWN_CHARACTERS_MAX = 4_000
"""Of one item and of one error."""

type Log = Callable[[str, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHealth:
    """How one thread does."""

    name: str
    is_working: bool
    """False while it waits to be started again, and after it ended without being told to."""
    failures: int
    """How often it had to be started again."""
    set_aside: int
    """Items that it could not work on."""
    error: str | None
    """The last reason for either."""


class SetAside:
    """What could not be worked on. Called from any thread; never raises."""

    def __init__(self, path: Path | None, *, log: Log) -> None:
        self._path = path
        self._log = log
        self._lock = threading.Lock()
        self._quiet_until = 0.0
        self.count = 0
        self.error: str | None = None

    def add(self, item: object, error: BaseException) -> None:
        """Keep an item and why it failed, and say so now and then."""
        reason = _shown(error)
        with self._lock:
            self.count += 1
            self.error = reason
            now = time.monotonic()
            is_said = now >= self._quiet_until
            if is_said:
                self._quiet_until = now + SAY_SECONDS
            kept = self._keep(item, reason)
        if is_said:
            place = f"; kept in {self._path}" if kept else ""
            self._log("error", f"{self.count} items were set aside, the last for {reason}{place}")

    def _keep(self, item: object, reason: str) -> bool:
        if self._path is None:
            return False
        line = json.dumps(
            {"at": datetime.now(UTC).isoformat(), "error": reason, "item": _shown(item)}
        )
        try:
            file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                if os.fstat(file).st_size < KEPT_BYTES_MAX:
                    os.write(file, line.encode() + b"\n")
            finally:
                os.close(file)
        except OSError:
            return False
        return True


class Supervisor:
    """Runs `work` in a thread until it returns."""

    def __init__(
        self, name: str, work: Callable[[], None], *, log: Log, set_aside: SetAside | None = None
    ) -> None:
        self._name = name
        self._work = work
        self._log = log
        self._set_aside = set_aside
        self._failures = 0
        self._error: str | None = None
        self._is_working = True
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tokentee-{name}", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Wait until `work` has returned; whether it has."""
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def health(self) -> ThreadHealth:
        """How the thread does."""
        aside = self._set_aside
        return ThreadHealth(
            name=self._name,
            is_working=self._is_working and (self._thread.is_alive() or self._ended.is_set()),
            failures=self._failures,
            set_aside=aside.count if aside else 0,
            error=self._error or (aside.error if aside else None),
        )

    def _run(self) -> None:
        pause_seconds, say_at = PAUSE_SECONDS, 0.0
        while True:
            started = time.monotonic()
            self._is_working = True
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001  # whatever it is, the thread goes on
                now = time.monotonic()
                self._failures += 1
                self._error = _shown(error)
                self._is_working = False
                if now - started >= WORKS_AGAIN_SECONDS:
                    pause_seconds = PAUSE_SECONDS
                if now >= say_at:
                    say_at = now + SAY_SECONDS
                    self._say()
                # A stop that was asked for meanwhile does not wait for the pause.
                self._woken.wait(pause_seconds)
                if self._woken.is_set() and self._failures > FAILURES_AT_END_MAX:
                    return
                pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)
            else:
                self._ended.set()
                return

    def _say(self) -> None:
        line = f"the {self._name} failed {self._failures} times and is started again: {self._error}"
        # A log or a stderr that is closed must not end the thread.
        with contextlib.suppress(Exception):
            self._log("error", line)
        with contextlib.suppress(Exception):
            _to_stderr(line)


FAILURES_AT_END_MAX = 3
"""How often a thread that is asked to stop, and fails, is started again."""


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"tokentee: {line}\n")
    sys.stderr.flush()


def _shown(value: object) -> str:
    """Of an item or an error, what a log and a file take."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # a value that cannot even be shown
        text = f"{type(value).__name__} ({type(error).__name__} in its repr)"
    return text[:SHOWN_CHARACTERS_MAX].encode("ascii", "backslashreplace").decode()
