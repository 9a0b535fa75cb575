"""Pure. How many bytes all exchanges together may keep in memory.

An ordinary exchange keeps a few KB and takes nothing from this budget. An exchange takes from it
for: bytes that arrive faster than the meter reads them, an unfinished event of an edited stream, a
large document or message in progress, a decoder's window, and captured bytes until they are
written. If the budget is used up, the proxy passes an exchange on without reading or capturing it,
and its row records that.

A process therefore keeps at most `BUDGET_BYTES_MAX`, and `FREE_BYTES` for each open exchange.
"""

FREE_BYTES = 64 * 1024
"""Bytes that each exchange may keep outside the budget; one socket read returns as many."""
BUDGET_BYTES_MAX = 512 * 1024 * 1024
"""For all exchanges of one process: enough for sixteen answers at the bound of one answer, or for
thousands with a small backlog."""
CAPTURES_LEAVE_BYTES = BUDGET_BYTES_MAX // 2
"""Bytes that captures must leave free for reading, so that a slow disk does not lose figures."""


class MemoryBudget:
    """The free bytes, shared by all exchanges of one process.

    It belongs to the event loop's thread; the thread that writes captures calls `release` alone.
    """

    __slots__ = ("_released_bytes", "_taken_bytes", "_total_bytes")

    def __init__(self, total_bytes: int = BUDGET_BYTES_MAX) -> None:
        self._total_bytes = total_bytes
        # Two numbers with one writing thread each, so the byte path needs no lock.
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
        """Take `count` bytes. If fewer than `leaving` would be left, take none, return False."""
        if self.left_bytes - count < leaving:
            return False
        self._taken_bytes += count
        return True

    def give_back(self, count: int) -> None:
        """Return taken bytes."""
        self._taken_bytes -= count

    def release(self, count: int) -> None:
        """Return taken bytes from the thread that writes captures."""
        self._released_bytes += count


class Share:
    """The bytes that one exchange may keep: the free ones, and those that it takes."""

    __slots__ = ("_budget", "_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._bytes = FREE_BYTES

    def covers(self, count: int) -> bool:
        """Whether `count` bytes may be kept; takes the missing ones from the budget."""
        missing = count - self._bytes
        if missing <= 0:
            return True
        # Take as much again, so that a growing answer seldom takes from the budget.
        for wanted in (missing + count, missing):
            if self._budget.take(wanted):
                self._bytes += wanted
                return True
        return False

    def give_back(self) -> None:
        """Return what was taken."""
        if self._bytes > FREE_BYTES:
            self._budget.give_back(self._bytes - FREE_BYTES)
            self._bytes = FREE_BYTES
