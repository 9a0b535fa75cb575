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
from dataclasses import dataclass, replace
from datetime import datetime
from queue import Empty, Full, Queue
from typing import Protocol
from urllib.parse import urlsplit

from ledger.model.charge import Charge, ExchangeCost, cost_of
from ledger.model.exchange import ORDERED, Exchange, Outcome, Reading, UsageSource
from ledger.store.processes.supervision import (
    SupervisedThread,
    ThreadHealth,
    ThrottledLog,
    log_into,
)

logger = logging.getLogger(__name__)

PRICED_MAX = 60_000
"""Priced exchanges whose commit is not reported yet: a little more than the writer itself holds
while its disk is in trouble."""
QUEUE_MAX = 20_000
"""Observations in the queue for the sinks; about 10 MB."""
HOLDER_LENGTH = 8
"""Characters of a hash that tell accounts apart on a dashboard."""

type Price = Callable[[Exchange, Reading], tuple[Charge, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One settled, committed exchange for telemetry: figures and bounded labels, no content."""

    exchange: Exchange
    reading: Reading
    amounts: ExchangeCost
    settled_at: datetime

    @property
    def is_estimated(self) -> bool:
        """Whether the figures are our estimate: no counter of tokens includes them."""
        return self.reading.usage_source is UsageSource.ESTIMATED

    @property
    def has_usage(self) -> bool:
        """Whether usage was reported or estimated."""
        return self.reading.usage_source is not UsageSource.NONE

    @property
    def is_without_usage(self) -> bool:
        """As in the ledger's views: neither reported nor estimated, no error, not refused, and no
        order, whose result is expected to be fetched."""
        others = (Outcome.ERROR_FRAME, Outcome.HTTP_ERROR, Outcome.REFUSED)
        failed = self.exchange.outcome in others
        return not (self.has_usage or failed or self.exchange.finish_reason in ORDERED)

    @property
    def is_unpriced(self) -> bool:
        """Usage was reported and is billed by tokens, and some line of it has no price."""
        amounts = self.amounts
        return not (amounts.is_complete or self.is_estimated or amounts.is_covered)

    @property
    def billing(self) -> str:
        """metered, plan, free or unknown."""
        return self.reading.billing or "unknown"

    @property
    def model(self) -> str:
        """The model that answered, otherwise the requested one."""
        return self.exchange.model or "unknown"

    @property
    def holder(self) -> str:
        """Whose limits an answer states: the beginning of the account's hash, or of the key's."""
        return (self.exchange.account or self.exchange.key_fingerprint or "")[:HOLDER_LENGTH]

    @property
    def seconds(self) -> float:
        """From the request to the settling; 0 if the clock went back in between."""
        return max(0.0, (self.settled_at - self.exchange.opened_at).total_seconds())

    @property
    def seconds_to_first_token(self) -> float | None:
        """None: no token came."""
        return self._seconds_to(self.exchange.first_token_at)

    @property
    def seconds_to_first_chunk(self) -> float | None:
        """Of a stream; None: nothing of it came."""
        return self._seconds_to(self.exchange.first_byte_at if self.exchange.streamed else None)

    def _seconds_to(self, moment: datetime | None) -> float | None:
        if moment is None:
            return None
        return max(0.0, (moment - self.exchange.opened_at).total_seconds())

    @property
    def error_type(self) -> str | None:
        """OpenTelemetry's `error.type`: the provider's word, otherwise the HTTP status or the
        outcome. None: no error."""
        exchange = self.exchange
        if exchange.outcome is Outcome.COMPLETE:
            return None
        is_refused = exchange.outcome is Outcome.HTTP_ERROR and exchange.http_status is not None
        return exchange.error_type or str(exchange.http_status if is_refused else exchange.outcome)

    @property
    def server(self) -> tuple[str, int | None]:
        """Host and port of the upstream; None: it has no port that is one."""
        parts = urlsplit(self.exchange.origin)
        try:
            return parts.hostname or self.exchange.origin, parts.port
        except ValueError:
            return self.exchange.origin, None


def observed(exchange: Exchange, reading: Reading, charges: Sequence[Charge]) -> Observed:
    """A settled exchange, its reading and its charges, for telemetry."""
    assert exchange.settled_at is not None, exchange.id
    assert exchange.outcome is not None, exchange.id
    return Observed(
        exchange=exchange,
        reading=reading,
        amounts=cost_of(reading, charges),
        settled_at=exchange.settled_at,
    )


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
        self._log = ThrottledLog(log_into(logger))
        self._thread = SupervisedThread("telemetry", self._run, log=log_into(logger))

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
            if len(self._held) > PRICED_MAX:
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
                for receipt in receipts:
                    found = self._held.pop(receipt.exchange_id, None)
                    if found is None or not receipt.committed:
                        continue
                    try:
                        self._queue.put_nowait(found)
                    except Full:
                        self.dropped += 1

        return committed

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
            self._log("warning", f"telemetry failed: {type(failure).__name__}")
