"""Edge (a thread). Passes committed exchanges from the ledger's writer to the sinks of telemetry.

    writer thread ──price──▶ held until the commit ──on_commit──▶ queue ──▶ thread ──▶ sinks

The writer prices an exchange and later reports its commit; the observer joins the two by the
exchange's id. Both calls only append to a bounded structure, so a slow sink cannot slow the
writer. A sink that raises is logged once a minute and counted, and the thread goes on. The thread
is supervised like those of the ledger.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import Empty, Full, Queue
from typing import Protocol

from addon.telemetry.observed import Observed, observed
from ledger.model.charge import Charge
from ledger.model.exchange import Exchange
from ledger.model.reading import Reading
from ledger.store.processes.supervision import SupervisedThread, ThreadHealth

logger = logging.getLogger(__name__)

HELD_MAX = 60_000
"""Priced exchanges whose commit is not reported yet: a little more than the writer itself holds
while its disk is in trouble."""
QUEUE_MAX = 20_000
"""Observations in the queue for the sinks; about 10 MB."""
LOG_SECONDS = 60.0

type Price = Callable[[Exchange, Reading], tuple[Charge, ...]]


class Committed(Protocol):
    """The writer's report about an exchange: the ledger's receipt."""

    exchange_id: str
    committed: bool


class Sink(Protocol):
    """A destination of observations."""

    def observe(self, one: Observed) -> None:
        """Process one exchange; called on the observer's thread."""

    def close(self, timeout_seconds: float) -> None:
        """Flush, within the timeout."""


class Observer:
    """Joins prices and commits, and passes the result to the sinks on a thread of its own."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.dropped = 0
        """Observations that found the queue full."""
        self._sinks = tuple(sinks)
        self._held: OrderedDict[str, tuple[Exchange, Reading, tuple[Charge, ...]]] = OrderedDict()
        self._queue: Queue[tuple[Exchange, Reading, tuple[Charge, ...]]] = Queue(QUEUE_MAX)
        self._stopping = threading.Event()
        self._failed = 0
        """Steps that raised: a sink that missed an observation, or did not close."""
        self._log_at = 0.0
        self._thread = SupervisedThread("telemetry", self._run, log=_log)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Flush the queue and close the sinks, within the timeout."""
        deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        self._thread.join(timeout_seconds)
        for sink in self._sinks:
            self._guarded(sink.close, max(0.1, deadline - time.monotonic()))

    def health(self) -> ThreadHealth:
        """The state of the thread."""
        return replace(self._thread.health(), set_aside=self.dropped + self._failed)

    def pricing(self, price: Price) -> Price:
        """The writer's price function; it also stores the priced exchange."""

        def priced(exchange: Exchange, reading: Reading) -> tuple[Charge, ...]:
            charges = price(exchange, reading)
            self._held[exchange.id] = (exchange, reading, charges)
            if len(self._held) > HELD_MAX:
                self._held.popitem(last=False)
                self.dropped += 1
            return charges

        return priced

    def on_commit[R: Committed](
        self, then: Callable[[Sequence[R]], None] | None
    ) -> Callable[[Sequence[R]], None]:
        """The writer's commit callback; calls `then` first, for clients wait behind it."""

        def committed(receipts: Sequence[R]) -> None:
            try:
                if then is not None:
                    then(receipts)
            finally:
                self._queue_committed(receipts)

        return committed

    def _queue_committed(self, receipts: Sequence[Committed]) -> None:
        for receipt in receipts:
            found = self._held.pop(receipt.exchange_id, None)
            if found is None or not receipt.committed:
                continue
            try:
                self._queue.put_nowait(found)
            except Full:
                self.dropped += 1

    def _run(self) -> None:
        while True:
            try:
                exchange, reading, charges = self._queue.get(timeout=0.2)
            except Empty:
                if self._stopping.is_set():
                    return
                continue
            self._guarded(self._hand_over, exchange, reading, charges)

    def _hand_over(self, exchange: Exchange, reading: Reading, charges: tuple[Charge, ...]) -> None:
        one = observed(exchange, reading, charges)
        for sink in self._sinks:
            self._guarded(sink.observe, one)

    def _guarded[**P](self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            step(*args, **kwargs)
        except Exception as failure:  # noqa: BLE001  # telemetry may fail; recording goes on
            self._failed += 1
            now = time.monotonic()
            if now >= self._log_at:
                self._log_at = now + LOG_SECONDS
                logger.warning("tokentee: telemetry failed: %s", type(failure).__name__)


def _log(level: str, line: str) -> None:
    logger.log(logging.getLevelNamesMapping()[level.upper()], "tokentee: %s", line)
