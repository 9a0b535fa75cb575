"""Pure. How many bytes all exchanges together may keep in memory.

An ordinary exchange keeps a few KB and asks for nothing. One that must keep more, because it is
read more slowly than it comes or because an event that is to be edited has no end yet, takes from
this budget. Where nothing is left it is only passed on, and its row says so.
"""

FREE_BYTES = 64 * 1024
"""What each exchange may keep without asking; a connection gives as much at once."""
BUDGET_BYTES_MAX = 256 * 1024 * 1024
"""For all exchanges of one process: eight answers at the bound of one, or thousands that are a
little behind."""


class Budget:
    """Bytes that are left to be kept, shared by all exchanges of one process."""

    __slots__ = ("_left_bytes",)

    def __init__(self, total_bytes: int = BUDGET_BYTES_MAX) -> None:
        self._left_bytes = total_bytes

    @property
    def left_bytes(self) -> int:
        """What nobody has taken."""
        return self._left_bytes

    def take(self, count: int) -> bool:
        """Take so many bytes; False if there are not as many, and then none are taken."""
        if count > self._left_bytes:
            return False
        self._left_bytes -= count
        return True

    def give_back(self, count: int) -> None:
        """Give back what was taken."""
        self._left_bytes += count
