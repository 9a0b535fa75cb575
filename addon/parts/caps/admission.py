"""Edge. Asks the caps before a request, or a response of a WebSocket, goes upstream."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

from mitmproxy import http, websocket
from mitmproxy.connection import ConnectionState
from msgspec.structs import replace

from addon.dialects import grpc
from addon.dialects.agents import refused_status_of
from addon.dialects.errors import provider_refusal
from addon.dialects.facts import text_of
from addon.dialects.request import read_request
from addon.framing import json_values
from addon.metering.exchange import Event
from addon.metering.settlement import refused
from addon.metering.websocket import OPEN_MAX
from addon.parts.caps.gate import OURS, Gate, with_hold
from addon.parts.caps.limits import Limits, read_limits, response_asked
from addon.proxy.authorising import OpenSocket
from addon.proxy.live import Clock, Live
from addon.proxy.recording import Recording
from ledger.model.exchange import CAP_HEADER, Exchange, Reading
from ledger.parts.budgets.book import Held, Refusal, Waiting
from ledger.parts.budgets.budgets_file import CapFile
from ledger.parts.budgets.caps import Cap
from ledger.pricing.prices import PriceBook
from ledger.store.writing.writer import Ledger

if TYPE_CHECKING:
    from ledger.parts.budgets.shared import SharedCaps


class CapAuthoriser(Gate):
    """The caps of a recording, as the core calls them."""

    limits_of = staticmethod(read_limits)

    def admit(self, recording: Recording, live: Live) -> Awaitable[None] | None:
        """Send a request upstream, or refuse it; what comes back waits for its caps."""
        routes, route = live.routes, live.route
        may_be_call = routes.is_served and not (route.is_fetch or route.needs_stream)
        if live.is_recorded or not (live.is_confirmed or may_be_call):
            recording.send(live)
            return None
        dialect = (routes.session or route).dialect
        if live.routes.is_handshake and dialect.cost_limits is not None:
            recording.send(live)  # each of its responses asks
            return None
        limits = live.asked.limits
        if limits is None and live.routes.rules.limits_of is not None:
            limits = Limits(unbounded="the request could not be read")  # an error of ours
        billing = live.billing_of(live.opened)
        found = self.ask(live.opened, limits, fields=live.asked.facts.billing, billing=billing)
        if isinstance(found, Waiting):
            return self._wait(recording, live, found)
        self._go(recording, live, found)
        return None

    async def _wait(self, recording: Recording, live: Live, waiting: Waiting) -> None:
        found = await self.wait(waiting)
        is_gone = not live.flow.client_conn.state & ConnectionState.CAN_READ
        if not (recording.is_over or is_gone):
            self._go(recording, live, found)
            return
        if isinstance(found, Held):
            self.leave(found)
        recording.kill(live)

    def _go(self, recording: Recording, live: Live, found: Held | Refusal) -> None:
        if isinstance(found, Refusal):
            _refuse(recording, live, found)
            return
        if live.routes.is_handshake:
            self.leave(found)
        else:
            live.opened = with_hold(live.opened, found)
        recording.send(live)

    def refuses_failed(self, recording: Recording, live: Live) -> bool:
        """An error of ours refuses: the operator asked for a cap."""
        if not self.is_active or live.is_recorded:
            return False
        _refuse(recording, live, Refusal("", OURS))
        return True

    def socket(self, live: Live, recording: Recording) -> OpenSocket:
        """A WebSocket is open."""
        return _CappedSocket(self, live, recording)


def authoriser_of(
    ledger: Ledger, url: str, own: tuple[Cap, ...], prices: PriceBook
) -> CapAuthoriser:
    """The caps at the start. LedgerError if they are wrong."""

    def shared() -> SharedCaps:
        from ledger.parts.budgets.shared import SharedCaps  # imports SQLAlchemy

        file: Path = ledger.file
        return SharedCaps(
            url,
            node=ledger.node,
            file=file,
            is_written=lambda: not ledger.health().queued_rows,
        )

    file = CapFile()
    caps, names = file.first(own)
    gate = CapAuthoriser(own=own, prices=prices, file=file, shared=shared)
    if caps:
        prices.read_lists()
        gate.book.set_caps(caps, names)
    return gate


class _CappedSocket(OpenSocket):
    def __init__(self, gate: Gate, live: Live, recording: Recording) -> None:
        self._gate = gate
        self._live = live
        self._ledger = recording.ledger
        self._held: list[Held] = []
        """For responses that are asked for and not open yet."""
        self._asked = 0
        self._is_over = False

    async def refusal_of(self, message: websocket.WebSocketMessage) -> bytes | None:
        """It does not wait for requests under way: the messages of both sides would, and with them
        what it waits for."""
        live, gate = self._live, self._gate
        if not gate.is_active or live.is_recorded or not message.from_client:
            return None
        dialect = (live.routes.session or live.route).dialect
        asked = response_asked(message.content) if dialect.cost_limits is not None else None
        if asked is None:
            return None
        self._asked += 1
        clock = Clock(time.time(), time.monotonic())
        exchange = replace(
            live.opened,
            id=f"{live.opened.id}/asked-{self._asked}",
            opened_at=clock.now(),
            request_model=text_of(asked.get("model")) or live.opened.request_model,
            streamed=True,
        )
        found = gate.ask(
            exchange,
            read_limits(dialect, asked, message.content),
            fields=read_request(live.route, b"", parsed=asked).billing,
            billing=live.billing_of(exchange),
            waits=False,
        )
        if isinstance(found, Waiting):
            found = await gate.wait(found)
        if isinstance(found, Refusal):
            self._ledger.settle(*refused(exchange, found.cap, now=clock.now()))
            return json_values.dumps(dialect.refused_event(found.message, found.cap)).encode()
        if self._is_over:  # it was closed meanwhile
            gate.leave(found)
            return None
        if len(self._held) == OPEN_MAX:  # upstream has begun none of them
            gate.lost(self._held.pop(0))
        self._held.append(found)
        return None

    def opened(self, exchange: Exchange) -> Exchange:
        if self._is_over or not self._held:
            return exchange
        held = self._held.pop(0)
        return self._gate.held_as(held, with_hold(exchange, held))

    def settled(self, exchange: Exchange, reading: Reading) -> tuple[str, ...]:
        return self._gate.settled(exchange, reading)

    def close(self) -> None:
        """What became of those that never began is not known."""
        self._is_over = True
        for held in self._held:
            self._gate.lost(held)


def _refuse(recording: Recording, live: Live, refusal: Refusal) -> None:
    """Answer a request ourselves; nothing of it goes upstream."""
    flow, status = live.flow, refused_status_of(live.opened.agent)
    kind = flow.request.headers.get("content-type", "")
    if kind.lower().startswith(grpc.CONTENT_TYPE):
        status, content = 200, b""
        headers = grpc.refused_headers(kind, refusal.message)
    else:
        dialect = (live.routes.session or live.route).dialect
        body = dialect.refusal(refusal.message, refusal.cap)
        content = json_values.dumps(provider_refusal(live.opened.provider, body)).encode()
        headers = {"content-type": "application/json", "x-should-retry": "false"}
    headers[CAP_HEADER] = refusal.cap or "tokentee"
    flow.response = http.Response.make(status, content, headers)
    if flow.request.stream and not recording.process.can_hold_end:
        flow.kill()  # mitmproxy alone would answer at the end of the request, which may never come
    live.moves(Event.STOPPED)
    recording.live.pop(flow.id, None)
    recording.ledger.settle(*refused(live.opened, refusal.cap, now=live.clock.now(), status=status))
