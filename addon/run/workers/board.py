"""Edge (a memory-mapped file). The number of connections of each worker, readable by all workers.

A worker leaves a new connection to a worker with fewer connections, so that a few long connections
are distributed as evenly as many short ones.
"""

import mmap
import os
from pathlib import Path

FILE = "connections"
SEATS_MAX = 512
"""More than workers and those that retire: at most three processes for each of 64 places."""
_FIGURE_BYTES = 8
NOBODY = 0
"""The value of a seat whose worker does not accept; otherwise it is the number of connections plus
one."""


class Board:
    """The figures by seat. One process writes each, and all read it."""

    def __init__(self, folder: Path) -> None:
        size = SEATS_MAX * _FIGURE_BYTES
        file = os.open(folder / FILE, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if os.fstat(file).st_size < size:
                os.ftruncate(file, size)
            self._figures = memoryview(mmap.mmap(file, size)).cast("q")
        finally:
            os.close(file)

    def write(self, seat: int, connections: int) -> None:
        """Record that a worker accepts, and its number of connections."""
        self._figures[seat] = connections + 1

    def clear(self, seat: int) -> None:
        """Record that a worker no longer accepts."""
        self._figures[seat] = NOBODY

    def is_least(self, seat: int, seats: int) -> bool:
        """Whether no accepting worker among the first `seats` has fewer connections."""
        own = self._figures[seat]
        return all(other >= own for other in self._figures[:seats] if other != NOBODY)
