"""Pure. The bytes of an answer that the meter has not read yet, and when it reads them.

The meter reads a longer or encoded body in several turns of the event loop, so that other clients
do not wait.
"""

from collections.abc import Callable, Iterator

TURN_SECONDS = 0.001
"""How long the meter reads a longer or encoded body before it yields to the event loop. A small
request of another client takes a dozen turns of the loop."""
REST_SECONDS = 0.008
"""How long the backlog waits while chunks arrive. One socket read can hold thousands of chunks,
all in one turn of the loop; most of the work is better done after the body's end."""
BACKLOG_BYTES_MAX = 32 * 1024 * 1024
"""Largest backlog of one answer: twice the largest document that is held."""
JOINED_BYTES_MAX = 4 * 1024
"""Runs below this size are joined, because each object takes memory of its own."""
RUN_BYTES = 48
"""What Python needs for a run beside its bytes."""


class Backlog:
    """Runs of bytes, in their order."""

    __slots__ = ("_clock", "_rest_until", "_running", "_runs", "_steps", "size_bytes")

    def __init__(
        self, steps: Callable[[bytes], Iterator[None]], clock: Callable[[], float]
    ) -> None:
        """`steps`: reads a run, with pauses. `clock` returns seconds."""
        self._steps = steps
        self._clock = clock
        self._runs: list[bytes] = []
        self.size_bytes = 0
        """What the runs that are not begun take in memory."""
        self._rest_until = 0.0
        """When to read next, while chunks arrive."""
        self._running: Iterator[None] | None = None
        """The remaining steps of the run that is begun."""

    def add(self, run: bytes) -> bool:
        """Add bytes; False if the backlog is now too large."""
        self.size_bytes += len(run)
        if self._runs and len(self._runs[-1]) + len(run) <= JOINED_BYTES_MAX:
            self._runs[-1] += run
        else:
            self._runs.append(run)
            self.size_bytes += RUN_BYTES
        return self.size_bytes <= BACKLOG_BYTES_MAX

    @property
    def is_empty(self) -> bool:
        """Whether all is read."""
        return self._running is None and not self._runs

    def read_beside_chunks(self) -> None:
        """Read for a turn, unless the last turn is too recent."""
        now = self._clock()
        if not 0 < self._rest_until - now <= REST_SECONDS:
            self._read(now + TURN_SECONDS)
            self._rest_until = self._clock() + REST_SECONDS

    def read_turn(self) -> bool:
        """Read for one turn of the event loop; whether any is left."""
        return self._read(self._clock() + TURN_SECONDS)

    def read_all(self) -> None:
        """Read everything."""
        self._read(None)

    def _read(self, deadline: float | None) -> bool:
        """Read until the deadline; without one, everything. Whether any is left."""
        while self._running is not None or self._runs:
            if self._running is None:
                run = self._runs.pop(0)
                self.size_bytes -= len(run) + RUN_BYTES
                self._running = self._steps(run)
            for _ in self._running:
                if deadline is not None and self._clock() >= deadline:
                    return True
            self._running = None
        return False
