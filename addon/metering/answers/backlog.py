"""Pure. The bytes of an answer that the meter has not read yet, and when it reads them.

The meter reads a longer or encoded body in several turns of the event loop, so that other clients
do not wait.
"""

from collections.abc import Callable, Iterator

from addon.metering.answers.meter import Meter

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
    """Runs of bytes, in their order. `clock` returns seconds."""

    __slots__ = ("_clock", "_meter", "_rest_until", "_runs", "_steps", "is_empty", "size_bytes")

    def __init__(self, meter: Meter, clock: Callable[[], float]) -> None:
        self._meter = meter
        self._clock = clock
        self._runs: list[bytes] = []
        """Not a deque: an empty one takes 760 bytes, and this is nearly always empty."""
        self.size_bytes = 0
        """What the runs that the meter has not begun take in memory."""
        self._rest_until = 0.0
        """When to read next, while chunks arrive."""
        self._steps: Iterator[None] | None = None
        """The meter's remaining steps on the run that it has begun."""
        self.is_empty = True
        """The meter has read everything."""

    def add(self, run: bytes) -> bool:
        """Add bytes; False if the backlog is now too large."""
        self.is_empty = False
        self.size_bytes += len(run)
        if self._runs and len(self._runs[-1]) + len(run) <= JOINED_BYTES_MAX:
            self._runs[-1] += run
        else:
            self._runs.append(run)
            self.size_bytes += RUN_BYTES
        return self.size_bytes <= BACKLOG_BYTES_MAX

    def read_beside_chunks(self) -> None:
        """Read for a turn, unless the last turn is too recent."""
        now = self._clock()
        if 0 < self._rest_until - now <= REST_SECONDS:
            return
        self._read(now + TURN_SECONDS)
        if not self.is_empty:
            self._rest_until = self._clock() + REST_SECONDS

    def read_turn(self) -> None:
        """Read for one turn of the event loop."""
        self._read(self._clock() + TURN_SECONDS)

    def read_all(self) -> None:
        """Read everything."""
        self._read(None)

    def drop(self) -> None:
        """Leave the rest unread."""
        self._runs.clear()
        self.size_bytes = 0
        self._steps = None
        self.is_empty = True

    def _read(self, deadline: float | None) -> None:
        """Read until the deadline; without one, everything."""
        while self._steps is not None or self._runs:
            if self._steps is None:
                run = self._runs.pop(0)
                self.size_bytes -= len(run) + RUN_BYTES
                self._steps = self._meter.steps(run)
            for _ in self._steps:
                if deadline is not None and self._clock() >= deadline:
                    return
            self._steps = None
        self.is_empty = True
