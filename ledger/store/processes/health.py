"""Pure. How the threads of a recording process do, and what works beside the writer."""

from dataclasses import dataclass
from typing import Protocol


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How recording goes."""

    threads: tuple[ThreadHealth, ...]
    """The writer's first, then those beside it."""
    trouble: str | None
    """Why nothing can be committed now."""
    queued_rows: int
    dropped: int
    """Settled exchanges that could not be recorded since the start."""
    set_aside: int
    """Items that could not be written, and are kept beside the ledger."""

    def problems(self) -> tuple[str, ...]:
        """What is wrong, in words; empty: nothing is."""
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


class Companion(Protocol):
    """A thread that works on a ledger beside the writer: it ships it, or keeps its sums."""

    def start(self) -> None:
        """Begin to work."""

    def wake(self) -> None:
        """The writer has committed a batch."""

    def stop(self, timeout_seconds: float) -> None:
        """Finish, within so many seconds."""

    def health(self) -> ThreadHealth:
        """How the thread does."""
