"""Edge. A supervised thread: `work` runs in a daemon thread, and is restarted if it raises.

`work` guards each item itself: an item that fails goes to `SetAside` and the loop goes on. Only
errors that no single item causes end `work`. They are logged once a minute, to the log and to
stderr.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable

from ledger.store.processes.health import ThreadHealth
from ledger.store.processes.set_aside import SetAside, shown

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 30.0
"""A thread that fails at once is restarted at most twice a minute."""
WORKS_AGAIN_SECONDS = 60.0
"""A thread that has run for this long has recovered."""
LOG_SECONDS = 60.0

type Log = Callable[[str, str], object]


class SupervisedThread:
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
        pause_seconds, say_at = PAUSE_SECONDS, 0.0
        while True:
            started = time.monotonic()
            self._is_working = True
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001  # the thread goes on after any error
                now = time.monotonic()
                self._failures += 1
                self._error = shown(error)
                self._is_working = False
                if now - started >= WORKS_AGAIN_SECONDS:
                    pause_seconds = PAUSE_SECONDS
                if now >= say_at:
                    say_at = now + LOG_SECONDS
                    self._print_failure()
                # A stop that is requested during the pause ends the pause.
                self._woken.wait(pause_seconds)
                if self._woken.is_set() and self._failures > FAILURES_AT_END_MAX:
                    return
                pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)
            else:
                self._ended.set()
                return

    def _print_failure(self) -> None:
        line = f"the {self._name} failed {self._failures} times and is started again: {self._error}"
        # A closed log or stderr must not end the thread.
        with contextlib.suppress(Exception):
            self._log("error", line)
        with contextlib.suppress(Exception):
            _to_stderr(line)


FAILURES_AT_END_MAX = 3
"""How often a thread that fails while it is asked to stop is restarted."""


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"tokentee: {line}\n")
    sys.stderr.flush()
