"""Edge (a memory-mapped file). How many connections each worker has, for all workers to see.

A worker that has more than the least of the others leaves a new connection to that one, so that a
few long connections are spread as evenly as many short ones.
"""

import mmap
import os
from pathlib import Path

FILE = "connections"
SEATS_MAX = 512
"""More than workers and those that retire: at most three processes for each of 64 places."""
_FIGURE_BYTES = 8
NOBODY = 0
"""Of a seat whose worker does not accept; else its connections and one."""


class Board:
    """The figures by seat. Each is written by one process and read by all."""

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
        """A worker accepts, and has so many connections."""
        self._figures[seat] = connections + 1

    def clear(self, seat: int) -> None:
        """A worker accepts no more."""
        self._figures[seat] = NOBODY

    def is_least(self, seat: int, seats: int) -> bool:
        """Whether no worker that accepts has fewer connections; of the first so many seats."""
        own = self._figures[seat]
        return all(other >= own for other in self._figures[:seats] if other != NOBODY)
