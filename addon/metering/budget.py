"""Pure. How many bytes all exchanges together may keep in memory.

An ordinary exchange keeps a few KB and asks for nothing. One that must keep more takes from this
budget: bytes that arrive faster than they are read, an unfinished event of an edited stream, a
large document or message that is being read, a window of a decoder, and captured bytes until they
are written. If the budget is used up, an exchange is passed on without being read, or is not
captured, and its row says so.

A process therefore keeps at most `BUDGET_BYTES_MAX`, and `FREE_BYTES` for each open exchange.
"""

FREE_BYTES = 64 * 1024
"""Bytes that each exchange may keep outside the budget; one read of a socket gives as many."""
BUDGET_BYTES_MAX = 512 * 1024 * 1024
"""For all exchanges of one process: sixteen answers at the bound of one, or thousands that are a
little behind."""
CAPTURES_LEAVE_BYTES = BUDGET_BYTES_MAX // 2
"""Bytes that captures must leave to reading, so that a slow disk does not cost figures."""


class Budget:
    """Bytes that are left to be kept, shared by all exchanges of one process.

    It belongs to the event loop's thread; the thread that writes captures calls `release` alone.
    """

    __slots__ = ("_released_bytes", "_taken_bytes", "_total_bytes")

    def __init__(self, total_bytes: int = BUDGET_BYTES_MAX) -> None:
        self._total_bytes = total_bytes
        # Two numbers with one writer each: no lock on the byte path.
        self._taken_bytes = 0
        self._released_bytes = 0

    @property
    def left_bytes(self) -> int:
        """Bytes that are free."""
        return self._total_bytes - self.taken_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes that are taken."""
        return self._taken_bytes - self._released_bytes

    def take(self, count: int, *, leaving: int = 0) -> bool:
        """Take so many bytes; False if fewer than `leaving` would be left, and none are taken."""
        if self.left_bytes - count < leaving:
            return False
        self._taken_bytes += count
        return True

    def give_back(self, count: int) -> None:
        """Give taken bytes back."""
        self._taken_bytes -= count

    def release(self, count: int) -> None:
        """Give back from the thread that writes captures."""
        self._released_bytes += count
