"""How long a process kept somebody waiting, without the time that other processes took from it.

A process has one thread that matters, here that of the event loop, and others that it may wait for:
for the interpreter's lock, for a lock of theirs, for a commit. Between two moments that thread
computed, waited in the run queue for a processor, or slept. The kernel counts the first two for each
thread (`/proc/PID/task/TID/schedstat`), the rest of the time it slept.

- What it computed is the process' own doing.
- What it waited for a processor is not.
- What it slept is: the thread waits for a disk, a lock, a timer or another thread. But if one of the
  other threads waited for a processor meanwhile, the sleep may have been for that thread, so it is
  taken off.

So other processes can make the result smaller (at most to what the thread computed), never larger.
On an idle machine it is the time of the clock. Threads of the process that take the last processor
from the thread that matters do not count: the scheduler ends that after milliseconds.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic_ns
from typing import NamedTuple


class Moment(NamedTuple):
    """The counters of a process, in nanoseconds since the clock, the process or a thread began."""

    clock: int
    computed: int
    """By the thread that matters."""
    queued: int
    """By the thread that matters."""
    others_queued: Mapping[str, int]
    """By each of the others, and by the whole machine for its host."""


def own_ms(before: Moment, after: Moment) -> float:
    """What the process did or slept between two moments while somebody waited for it."""
    computed = max(0, after.computed - before.computed)
    passed = after.clock - before.clock
    slept = max(0, passed - computed - (after.queued - before.queued))
    others = queued_by_others(before.others_queued, after.others_queued)
    return (computed + max(0, slept - others)) / 1e6


def queued_by_others(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Threads may begin and end meanwhile."""
    return sum(max(0, queued - before.get(name, 0)) for name, queued in after.items())


class Reader:
    """Reads the counters of a process, from inside or outside; the main thread is what matters."""

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._main = str(pid)
        self._files: dict[str, int] = {}
        """Of the threads that were there last. Opening a file costs five times what reading does."""

    def now(self) -> Moment:
        others = self.others_queued()
        computed, queued = self.main()
        return Moment(monotonic_ns(), computed, queued, others)

    def main(self) -> tuple[int, int]:
        """What the thread that matters computed, and what it waited for a processor."""
        counted = self._schedstat(self._main)
        assert counted is not None
        return counted

    def others_queued(self) -> dict[str, int]:
        names = [task.name for task in self._tasks.iterdir()]
        for ended in self._files.keys() - names:
            os.close(self._files.pop(ended))
        found = {"the machine": _stolen_ns()}
        for name in names:
            if name != self._main and (counted := self._schedstat(name)):
                found[name] = counted[1]
        return found

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _schedstat(self, name: str) -> tuple[int, int] | None:
        try:
            if name not in self._files:
                self._files[name] = os.open(self._tasks / name / "schedstat", os.O_RDONLY)
            computed, queued, _ = os.pread(self._files[name], 100, 0).split()
        except OSError:  # a thread that has ended
            return None
        return int(computed), int(queued)


def _stolen_ns() -> int:
    """What the host of a virtual machine took of its processors."""
    with Path("/proc/stat").open("rb") as file:
        return int(file.readline().split()[8]) * 1_000_000_000 // _TICKS_PER_SECOND


_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
