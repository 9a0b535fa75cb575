"""Edge. Lets a thread wait until the writer has resolved its receipts."""

import threading
from collections.abc import Sequence

from ledger.store.writing.jobs import Receipt


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
