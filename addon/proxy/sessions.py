"""Edge. One open WebSocket: the rows of its responses, and what the caps say of them."""

from __future__ import annotations

from datetime import UTC, datetime

from mitmproxy import websocket
from msgspec.structs import replace

from addon.caps.limits import read_limits, response_asked
from addon.dialects.facts import text_of
from addon.dialects.request import read_request
from addon.framing import json_values
from addon.metering.messages import End
from addon.metering.settlement import Settled, refused
from addon.metering.websocket import OPEN_MAX, MeteredSession
from addon.proxy import flows
from addon.proxy.caps import Gate, with_hold
from addon.proxy.live import Live
from addon.recordings.capture import CaptureFiles
from ledger.caps.book import Held, Waiting
from ledger.model.exchange import Exchange
from ledger.store.writing.incoming import Receipt
from ledger.store.writing.writer import Ledger


class LiveSession(MeteredSession):
    """An open WebSocket that passes mitmproxy."""

    __slots__ = ("_asked", "_gate", "_held", "_ledger", "_live", "is_over", "messages_under_way")

    def __init__(self, live: Live, *, ledger: Ledger, gate: Gate) -> None:
        super().__init__(live)
        self._live = live
        self._ledger = ledger
        self._gate = gate
        self._held: list[Held] = []
        """What its caps hold for responses that are asked for and not open yet."""
        self._asked = 0
        """Responses, of the caps."""
        self.messages_under_way = 0
        """Those that are read, or wait for the commit of the response that they end."""
        self.is_over = False

    @property
    def is_busy(self) -> bool:
        """Whether something is under way. Without an open response nothing is."""
        return self.is_open or self.messages_under_way > 0

    def receive(self, message: websocket.WebSocketMessage) -> list[Receipt]:
        """Read one message of either side; the receipts of the responses that it ends."""
        at = datetime.fromtimestamp(message.timestamp, UTC)
        if self._live.capture is not None:
            self._live.capture.add_message(
                message.content, from_client=message.from_client, is_text=message.is_text, at=at
            )
        return self._write(self.message(message.content, from_client=message.from_client, at=at))

    async def refusal_of(self, message: websocket.WebSocketMessage) -> bytes | None:
        """The message that refuses a response which a client's message asks for; None: it goes on.
        It does not wait for requests under way: the messages of both sides would, and with them
        what it waits for."""
        live, gate = self._live, self._gate
        if live.is_recorded or not message.from_client:
            return None
        dialect = (live.routes.session or live.route).dialect
        asked = response_asked(message.content)
        if asked is None or dialect.cost_limits is None:
            return None
        self._asked += 1
        exchange = replace(
            live.opened,
            id=f"{live.opened.id}/asked-{self._asked}",
            opened_at=datetime.fromtimestamp(message.timestamp, UTC),
            request_model=text_of(asked.get("model")) or live.opened.request_model,
            streamed=True,
        )
        found = gate.ask(
            exchange,
            read_limits(dialect, asked, message.content),
            fields=read_request(live.route, b"", parsed=asked).billing,
            billing=live.billing_of(exchange),
        )
        if isinstance(found, Waiting):
            found = await gate.wait(found) if found.is_for_share else gate.book.give_up(found)
        if not isinstance(found, Held):
            self._ledger.settle(*refused(exchange, found.cap, now=flows.now()))
            return json_values.dumps(dialect.refused_event(found.message, found.cap)).encode()
        if self.is_over:  # it was closed meanwhile
            gate.leave(found)
            return None
        if len(self._held) == OPEN_MAX:  # upstream has begun none of them
            gate.lost(self._held.pop(0))
        self._held.append(found)
        return None

    def close(self, how: End, at: datetime, captures: CaptureFiles | None) -> None:
        """Settle the open responses, and write the capture."""
        self.is_over = True
        self._write(self.end(how, at=at))
        for held in self._held:  # what became of them is not known
            self._gate.lost(held)
        if captures is not None and self._live.capture is not None:
            self._live.write_capture(captures, end=how, cause=None, at=at)

    def _write(self, exchanges: list[Exchange | Settled]) -> list[Receipt]:
        receipts = []
        for each in exchanges:
            if isinstance(each, Settled):
                remarks = self._gate.settled(*each)
                receipts.append(self._ledger.settle(*each.remarked(remarks)))
            elif self._held and not self.is_over:
                held = self._held.pop(0)
                self._ledger.open(self._gate.held_as(held, with_hold(each, held)))
            else:
                self._ledger.open(each)
        return receipts
