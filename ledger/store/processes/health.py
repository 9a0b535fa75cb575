"""Pure. The state of the threads of a recording process, and the protocol of threads beside the
writer."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHealth:
    """The state of one thread."""

    name: str
    is_working: bool
    """False while it waits for a restart, and after it ended without being asked to."""
    failures: int
    """How often it was restarted."""
    set_aside: int
    """Items that it could not process."""
    error: str | None
    """The last reason for a restart or a set-aside item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of recording."""

    threads: tuple[ThreadHealth, ...]
    """The writer's first, then those of the other threads."""
    trouble: str | None
    """Why nothing can be committed now."""
    queued_rows: int
    dropped: int
    """Settled exchanges that could not be recorded since the start."""
    set_aside: int
    """Items that could not be written, kept in a file beside the ledger."""

    def problems(self) -> tuple[str, ...]:
        """One line per problem; empty: there is none."""
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
        """Start the thread."""

    def wake(self) -> None:
        """Called when the writer has committed a batch."""

    def stop(self, timeout_seconds: float) -> None:
        """Finish within this many seconds."""

    def health(self) -> ThreadHealth:
        """The state of the thread."""
