"""Edge (the clock, threads). The jobs of the writer, and the receipts that tell its callers the
result; `Commits` waits for them in another thread."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ledger.model.exchange import Exchange, Reading
from ledger.store.writing.batch_insert import Row


class Receipt:
    """Result of writing one settled exchange: `committed`, or `error`."""

    __slots__ = ("committed", "context", "error", "exchange_id", "is_let_go", "since")

    def __init__(self, exchange_id: str) -> None:
        self.exchange_id = exchange_id
        self.since = time.monotonic()
        self.committed = False
        self.error: str | None = None
        self.context: Any = None
        """The caller's own, to find its waiter by."""
        self.is_let_go = False
        """Its waiter sent the end of the answer on before the commit: the row must say so."""

    @property
    def is_resolved(self) -> bool:
        """Whether the writer has reported the result."""
        return self.committed or self.error is not None


class Job:
    """One exchange to write: opened, or settled with a reading and a receipt."""

    __slots__ = ("exchange", "is_refused", "reading", "receipt", "row")

    def __init__(
        self, exchange: Exchange, reading: Reading | None = None, receipt: Receipt | None = None
    ) -> None:
        self.exchange = exchange
        self.reading = reading
        self.receipt = receipt
        self.row: Row | None = None
        self.is_refused = False
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
        self._resolved = threading.Semaphore(0)

    def on_commit(self, receipts: Sequence[Receipt]) -> None:
        """For `ledger.recording.open_ledger`; called on the writer's thread."""
        self._resolved.release(len(receipts))

    def wait(self, count: int = 1) -> None:
        """Wait until as many more receipts are resolved; the writer resolves each within its
        bounds."""
        for _ in range(count):
            self._resolved.acquire()
