"""Edge (threads). The queue to the writer: its jobs, the receipts that tell the callers the result,
and `Commits`, which waits for them. Any thread puts into the queue without waiting, and the writer
takes all queued items.

Settled exchanges wake the writer, since clients wait for their commit. Open ones do not: an open
row is committed when it has waited for `OPEN_SECONDS_MAX`, or with the last batch before that. So
an exchange that ends sooner is one row, inserted once. One for which a cap holds something is
committed at once: if this process is killed, other ones count the hold.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from ledger.model.exchange import Exchange, Reading
from ledger.model.learned import Learned
from ledger.store.processes.supervision import SetAside
from ledger.store.writing.batch_insert import Row

LATE = "its end reached the client before it was on disk"
"""Why an exchange is degraded although all of it was read."""
WAITING_MAX = 50_000
"""Rows in memory: about 150 MB, and more than a minute of a busy proxy core."""
GATHER_SECONDS = 0.01
GATHER_SETTLED = 16
GATHER_ENOUGH = 32
"""While as many exchanges as `GATHER_SETTLED` have settled lately, two in `GATHER_SECONDS`, and any
is open, the writer waits that long for further rows before it commits, as PostgreSQL does with
`commit_delay`: a row alone costs 360 µs of CPU, one of sixteen 108 µs (measured). The wait ends
when no exchange is open any more, or with a batch of `GATHER_ENOUGH` rows. Where fewer end, each
of them is long, and a wait would bring the ends of a few clients to one moment, so that the core
idles while all of them wait for their commit. A single client never waits. Six clients pass 1.5
times as many answers as with a wait to its end, sixteen 1.05 times (measured)."""

OPEN_SECONDS_MAX = 0.05
"""How long an open row waits for its own end. A proxy that is killed in this time leaves no row of
a request that it sent just before. Writing an open row first costs half as much again as one
insert, and in a commit of its own twice as much (measured); short answers would pay for that."""


class Receipt(Struct, eq=False):
    """Result of writing one settled exchange: `committed`, or `error`."""

    exchange_id: str
    since: float = field(default_factory=time.monotonic)
    committed: bool = False
    error: str | None = None
    context: Any = None
    """The caller's own, to find its waiter by."""
    is_let_go: bool = False
    """Its waiter sent the end of the answer on before the commit: the row must say so."""

    @property
    def is_resolved(self) -> bool:
        """Whether the writer has reported the result."""
        return self.committed or self.error is not None


class Job(Struct, eq=False):
    """One exchange to write: opened, or settled with a reading and a receipt."""

    exchange: Exchange
    reading: Reading | None = None
    receipt: Receipt | None = None
    row: Row | None = None
    is_refused: bool = False
    """The row cannot be written; the rest of its batch is retried without it."""


type OnCommit = Callable[[Sequence[Receipt]], None]


def resolve(
    jobs: Sequence[Job], *, error: str | None, on_commit: OnCommit | None
) -> Exception | None:
    """Resolve the receipts of these jobs, once each; the error that `on_commit` raised, if any."""
    receipts = [job.receipt for job in jobs if job.receipt and not job.receipt.is_resolved]
    for receipt in receipts:
        receipt.error = error
        receipt.committed = error is None
    if receipts and on_commit is not None:
        try:
            on_commit(receipts)
        except Exception as failure:  # noqa: BLE001  # the writer outlives its callers
            return failure
    return None


class Commits:
    """Counts the receipts that the writer has resolved, so that a caller keeps pace with it."""

    def __init__(self) -> None:
        self._resolved = 0
        self._has_more = threading.Condition()

    def on_commit(self, receipts: Sequence[Receipt]) -> None:
        """For `ledger.recording.open_ledger`; called on the writer's thread."""
        with self._has_more:
            self._resolved += len(receipts)
            self._has_more.notify()

    def wait(self, count: int = 1) -> None:
        """Wait until as many more receipts are resolved; the writer resolves each within its
        bounds."""
        with self._has_more:
            self._has_more.wait_for(lambda: self._resolved >= count)
            self._resolved -= count


type _Signal = Literal["opened", "stop"]


class _Opened(NamedTuple):
    since: float
    """As `time.monotonic`."""
    job: Job


class Incoming:
    """Exchanges and lessons on their way to the writer."""

    def __init__(self, set_aside: SetAside) -> None:
        self.is_closed = False
        self._closing = threading.Lock()
        self._queue: SimpleQueue[Job | Learned | _Signal] = SimpleQueue()
        self._opened: dict[str, _Opened] = {}
        """By the id of the exchange, the oldest first. Other threads change it meanwhile, so it is
        only copied and looked up: each of that is one step."""
        self._is_opened_told = False
        """Whether the writer knows that open exchanges wait."""
        self._set_aside = set_aside
        self._under_way = 0
        self._settled_at = deque([0.0] * GATHER_SETTLED, GATHER_SETTLED)
        """When the last ones settled, as `time.monotonic`."""
        self._gathering: threading.Event | None = None
        """While the writer waits for more rows: set when it has enough."""

    @property
    def count(self) -> int:
        """How many items wait."""
        return self._queue.qsize() + len(self._opened)

    def open(self, job: Job) -> None:
        """Put an opened exchange; a full queue drops it, since its settled row holds everything."""
        waiting = self._queue.qsize() + len(self._opened)
        if not self.is_closed and waiting < WAITING_MAX // 2:
            self._under_way += 1
            if job.exchange.hold_tokens is not None:  # which counts if this process is killed
                self._queue.put(job)
                return
            self._opened[job.exchange.id] = _Opened(time.monotonic(), job)
            # Checked afterwards: the writer clears the flag before it takes the jobs.
            if not self._is_opened_told:
                self._tell_opened()

    def settle(self, job: Job) -> str | None:
        """Put a settled exchange; the reason why it was refused, or None."""
        self._under_way = max(0, self._under_way - 1)
        with self._closing:  # nothing comes behind the mark that stops the writer
            if self.is_closed:
                return "the ledger is closed"
            if self._queue.qsize() >= WAITING_MAX:
                return "too many exchanges wait for the ledger"
            self._settled_at.append(time.monotonic())
            self._queue.put(job)
        # Only now: whoever is refused keeps the open row.
        self._opened.pop(job.exchange.id, None)
        if (gathering := self._gathering) is not None and self._has_enough():
            gathering.set()
        return None

    def learn(self, lesson: Learned) -> None:
        """Put a lesson; a full queue drops it, and it is learnt again."""
        if not self.is_closed and self._queue.qsize() < WAITING_MAX:
            self._queue.put(lesson)

    def close(self) -> None:
        """Refuse everything from now on."""
        with self._closing:
            if not self.is_closed:
                self.is_closed = True
                self._queue.put("stop")

    def take(self, jobs: list[Job], lessons: list[Learned], wait_seconds: float | None) -> bool:
        """Move all queued items into the lists; whether the queue was closed.

        Waits for the first item: about `wait_seconds` at most, None means without a bound.
        """
        try:
            item = self._queue.get(timeout=wait_seconds)
            while item == "opened":  # which needs no commit until the oldest row is due
                oldest = next(iter(self._opened.copy().values()), None)
                due = oldest.since + OPEN_SECONDS_MAX if oldest else 0.0
                item = self._queue.get(timeout=max(0.0, due - time.monotonic()))
            is_first = True
            while True:
                if isinstance(item, Job):
                    jobs.append(item)
                elif isinstance(item, Learned):
                    lessons.append(item)
                elif item == "stop":
                    self._take_opened(jobs, until=time.monotonic())
                    return True
                elif item != "opened":
                    self._set_aside.add(item, TypeError("not an item for the writer"))
                if is_first:  # which is in its list by now: an error loses nothing
                    is_first = False
                    self._gather()
                item = self._queue.get_nowait()
        except Empty:
            # A busy writer comes back after `GATHER_SECONDS`; what is due by then goes now.
            self._take_opened(jobs, until=time.monotonic() - OPEN_SECONDS_MAX + GATHER_SECONDS)
            return False

    def _gather(self) -> None:
        """Wait for more rows, if more are soon to come."""
        settled_within = self._settled_at[-1] - self._settled_at[0]
        if settled_within >= GATHER_SETTLED * GATHER_SECONDS / 2:
            return
        self._gathering = threading.Event()
        if not self._has_enough():
            self._gathering.wait(GATHER_SECONDS)
        self._gathering = None

    def _has_enough(self) -> bool:
        return not self._under_way or self._queue.qsize() >= GATHER_ENOUGH

    def _take_opened(self, jobs: list[Job], *, until: float) -> None:
        """Move what was opened until then. Taken after the settled ones, so that an exchange that
        has settled meanwhile is in one batch only."""
        self._is_opened_told = False
        for name, opened in self._opened.copy().items():
            if opened.since > until:
                self._tell_opened()
                return
            if self._opened.pop(name, None) is not None:
                jobs.append(opened.job)

    def _tell_opened(self) -> None:
        self._is_opened_told = True
        self._queue.put("opened")
