"""Edge. Shows an exchange in mitmweb and mitmproxy: a comment in the list, and a content view.

This happens only where mitmproxy has its `view` addon; mitmdump has none and pays nothing.
mitmproxy keeps no body of a stream ("Content is missing"), so a bounded copy of the answer is kept
here and given to the flow when the exchange is settled.

    tap ──chunks──▶ copy ──settled──▶ flow.response
    writer thread: price ──▶ held until the commit ──▶ event loop ──▶ flow.comment, content view

Both ways are bounded: a long answer is kept up to a length, and of many answers the oldest lose
their body first. A comment that a person wrote is never overwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

from mitmproxy import contentviews, hooks, http

from addon.dialects.transcript import transcript_of
from addon.proxy.display.flow_comment import BookedFlow, comment_of, page_of
from ledger.model.charge import Charge
from ledger.model.exchange import Exchange, Outcome, Reading
from ledger.store.writing.batches import Price
from ledger.store.writing.jobs import OnCommit, Receipt

logger = logging.getLogger(__name__)

BODY_BYTES_MAX = 1024 * 1024
"""Of one answer: more than any text a model writes in one turn."""
BODIES_BYTES_MAX = 64 * 1024 * 1024
"""Of all answers together; the oldest lose their body first."""
FLOWS_MAX = 5_000
"""Flows whose figures are kept; some 10 MB. mitmweb itself is slow long before."""
RESPONSES_MAX = 200
"""Of one WebSocket; a longer session shows its latest ones."""
HELD_MAX = 10_000
"""Priced exchanges whose commit is not reported yet."""

type Listener = Callable[[bytes], None]


class FlowNotes:
    """Bodies and figures of the flows that a person may open."""

    def __init__(self, master: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._master = master
        self._loop = loop
        self._bodies: OrderedDict[str, bytearray] = OrderedDict()
        """Under way and settled, by flow id."""
        self._flows: dict[str, http.HTTPFlow] = {}
        """Those whose body we filled in."""
        self._bytes = 0
        self._booked: OrderedDict[str, deque[BookedFlow]] = OrderedDict()
        self._comments: dict[str, str] = {}
        """The comments that we wrote, so that a person's are recognised."""
        self._priced: OrderedDict[str, BookedFlow] = OrderedDict()
        """Of the writer's thread alone."""
        self._committed: deque[BookedFlow] = deque()
        self._is_called = False

    def show(self) -> Callable[[], object]:
        """Register the content view; returns what takes it out, for which mitmproxy has no call."""
        contentviews.add(ExchangeContentview(self))
        return lambda: getattr(contentviews.registry, "_by_name", {}).pop("tokentee", None)

    # Bodies, on the event loop

    def listener(self, live: http.HTTPFlow) -> Listener:
        """A callable for each chunk of an answer."""
        body = self._bodies.setdefault(live.id, bytearray())

        def listen(chunk: bytes) -> None:
            room = BODY_BYTES_MAX - len(body)
            if room > 0:
                body.extend(chunk[:room])
                self._bytes += min(room, len(chunk))

        return listen

    def settled(self, live: http.HTTPFlow) -> None:
        """Give a flow the body that passed in its stream."""
        body = self._bodies.get(live.id)
        if body is None:
            return
        if live.response is None or not live.response.stream or live.response.data.content:
            self._forget(live.id)  # mitmproxy has the body, or there is no response to show it in
            return
        live.response.data.content = bytes(body)
        self._flows[live.id] = live
        while self._bytes > BODIES_BYTES_MAX and len(self._flows) > 1:
            oldest = next(iter(self._flows))
            found = self._flows[oldest]
            if found.response is not None:
                found.response.data.content = None
            self._forget(oldest)

    def _forget(self, flow_id: str) -> None:
        self._flows.pop(flow_id, None)
        self._bytes -= len(self._bodies.pop(flow_id, b""))

    # Figures, from the writer's thread

    def pricing(self, price: Price) -> Price:
        """The writer's price function, which remembers what it priced."""

        def priced(exchange: Exchange, reading: Reading) -> tuple[Charge, ...]:
            charges = price(exchange, reading)
            self._priced[exchange.id] = BookedFlow(
                exchange=exchange, reading=reading, charges=charges
            )
            if len(self._priced) > HELD_MAX:
                self._priced.popitem(last=False)
            return charges

        return priced

    def on_commit(self, then: OnCommit) -> OnCommit:
        """The writer's commit callback. Calls `then` first: clients wait for it. At most one
        wake-up of the loop is under way, as in `commits.py`."""

        def committed(receipts: Sequence[Receipt]) -> None:
            then(receipts)
            found = [
                booked
                for receipt in receipts
                if (booked := self._priced.pop(receipt.exchange_id, None)) and receipt.committed
            ]
            self._committed.extend(found)
            if found and not self._is_called:
                self._is_called = True
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._take)

        return committed

    def _take(self) -> None:
        self._is_called = False  # first, so that a later batch calls again
        changed: dict[str, http.HTTPFlow] = {}
        while self._committed:
            booked = self._committed.popleft()
            flow_id = booked.exchange.id.partition("/")[0]
            responses = self._booked.setdefault(flow_id, deque(maxlen=RESPONSES_MAX))
            responses.append(booked)
            if len(self._booked) > FLOWS_MAX:
                oldest, _ = self._booked.popitem(last=False)
                self._comments.pop(oldest, None)
            view = self._master.addons.get("view")
            found = view.get_by_id(flow_id) if view is not None else None
            if isinstance(found, http.HTTPFlow):
                if found.comment in ("", self._comments.get(found.id)):
                    found.comment = self._comments[found.id] = comment_of(responses)
                if booked.exchange.outcome is Outcome.COMPLETE and found.response is not None:
                    # A client that has read `[DONE]` may leave while we wait for the commit; its
                    # answer was whole, and mitmweb would mark it red because of our wait.
                    found.error = None
                changed[flow_id] = found
        if changed:
            self._master.addons.trigger(hooks.UpdateHook(list(changed.values())))

    # Called by the content view

    def latest(self, flow_id: str) -> BookedFlow | None:
        """The exchange of a flow that was booked last."""
        booked = self._booked.get(flow_id)
        return booked[-1] if booked else None


class ExchangeContentview(contentviews.Contentview):
    """The answer put together, with its usage and its charge lines."""

    def __init__(self, notes: FlowNotes) -> None:
        self._notes = notes

    @property
    def name(self) -> str:
        """The name in the list of views."""
        return "Tokentee"

    def prettify(self, data: bytes, metadata: contentviews.Metadata) -> str:
        """The page of the flow's exchange."""
        booked = self._booked(metadata)
        if booked is None:
            return "Nothing is booked of this message: see the response of an LLM request."
        is_websocket = "/" in booked.exchange.id
        content_type = ""
        if metadata.http_message is not None:
            content_type = metadata.http_message.headers.get("content-type", "")
        transcript = None if is_websocket else transcript_of(data, content_type)
        return page_of(booked, transcript)

    def render_priority(self, data: bytes, metadata: contentviews.Metadata) -> float:
        """The view of choice for every answer that is booked."""
        return 3 if data and self._booked(metadata) is not None else -1

    def _booked(self, metadata: contentviews.Metadata) -> BookedFlow | None:
        if metadata.flow is None or isinstance(metadata.http_message, http.Request):
            return None
        return self._notes.latest(metadata.flow.id)


def notes_if_viewed(master: Any, loop: asyncio.AbstractEventLoop) -> FlowNotes | None:
    """Notes for the flows of a master that shows flows; None for any other."""
    if master.addons.get("view") is None:
        return None
    return FlowNotes(master, loop)
