"""Edge. One recording: its settings, its ledger, and the exchanges under way. It outlives a reload
of the script.

    begin        a request has come: its exchange is read, its row opened, usage asked for
    settle       an exchange is over: its row goes to the ledger
    message      one message of a WebSocket; end_session: it is closed
    end_all      the proxy stops: whatever is open is settled

What the hooks call (`recorder.py`, `traffic.py`), which guard each call against our own bugs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mitmproxy import http, websocket
from mitmproxy.connection import ConnectionState
from msgspec.structs import replace

from addon.caps.limits import Limits, read_limits, response_asked
from addon.dialects.agents import refused_status_of
from addon.dialects.dialect import Asking
from addon.dialects.facts import Ending, text_of
from addon.dialects.request import read_request
from addon.framing import json_values
from addon.framing.long_json import without_pauses
from addon.metering.exchange import Event, Stage, exchange_of
from addon.metering.opening import RunRules, is_read_in_steps
from addon.metering.requests.messages import End, Request
from addon.metering.settlement import Settled, refused, result_unread
from addon.metering.websocket import OPEN_MAX
from addon.proxy import capturing, flows, opt_in
from addon.proxy.caps import Gate, with_hold
from addon.proxy.display import exchange_log
from addon.proxy.display.content_view import FlowNotes
from addon.proxy.display.watching import Watching
from addon.proxy.event_loop import in_turns
from addon.proxy.live import Live
from addon.proxy.options import Inject, Log, Settings
from addon.proxy.process import Process
from addon.proxy.wanted_bodies import Bodies
from addon.recordings.capture import CaptureFiles
from addon.recordings.metered import without_upstream_bytes
from addon.usage_opt_in import policy
from ledger.caps.book import Held, Refusal, Waiting
from ledger.model.exchange import Exchange, Outcome, Source, UsageSource
from ledger.store.writing.batches import Price
from ledger.store.writing.jobs import Receipt
from ledger.store.writing.writer import Ledger

logger = logging.getLogger(__name__)

PROVEN_MAX = 10_000
"""Upstreams and paths that answered a question for usage; bounded, since a client can invent
paths without end."""
BOOKED_MAX = 10_000
"""Responses remembered as booked, about 4 MB: a result is fetched within hours as a rule."""
KEY_LENGTH_MAX = 80
"""Characters of an unknown usage key that are logged."""
UNKNOWN_KEYS_MAX = 1_000
"""Unknown usage keys that are logged in one run."""


@dataclass(slots=True)
class Seen:
    """What earlier answers of this run have shown."""

    proven: set[tuple[str, str]] = field(default_factory=set)
    """(origin, path) that have answered a request with our question in it."""
    booked: dict[tuple[str, str | None, str], None] = field(default_factory=dict)
    """(origin, key fingerprint, response id) of answers with usage that have a row, the oldest
    first."""
    unknown_keys: set[str] = field(default_factory=set)
    """Unknown usage keys that have been logged."""

    def is_booked(self, exchange: Exchange) -> bool:
        """Whether a fetched result has a row, from the request that ordered it or from an earlier
        fetch."""
        return _booked_as(exchange) in self.booked

    def remember_booked(self, exchange: Exchange) -> None:
        """Remember an answer with usage that gets a row."""
        booked_as = _booked_as(exchange)
        if booked_as is not None:
            self.booked[booked_as] = None
            if len(self.booked) > BOOKED_MAX:
                del self.booked[next(iter(self.booked))]

    def log_unknown_keys(self, keys: set[str]) -> None:
        """Log each unknown usage key once; the row keeps it verbatim."""
        for key in keys - self.unknown_keys:
            if len(self.unknown_keys) < UNKNOWN_KEYS_MAX:
                self.unknown_keys.add(key)
                logger.debug("tokentee: a usage key not known before: %r", key[:KEY_LENGTH_MAX])


class Recording:
    """The ledger, and what is under way."""

    def __init__(
        self,
        settings: Settings,
        rules: RunRules,
        *,
        ledger: Ledger,
        price: Price,
        gate: Gate,
    ) -> None:
        """`price`: for log lines; the ledger prices on its own thread."""
        self.settings = settings
        self.rules = rules
        self.ledger = ledger
        self.price = price
        self.captures: CaptureFiles | None = None
        """None: nothing is captured."""
        self.notes: FlowNotes | None = None
        """For mitmweb and mitmproxy, which show flows."""
        self.watching: Watching | None = None
        """Health, metrics and spans, where the options ask for them."""
        self.tasks: list[asyncio.Task[None]] = []
        """Those that watch the caps, and write down what is answered, for `tokentee top`."""
        self.process = Process()
        self.bodies = Bodies()
        """Whether other addons want plain answers whole."""
        self.live: dict[str, Live] = {}
        """By flow id."""
        self.own_headers: dict[str, flows.Fields] = {}
        """Headers for us, taken out of requests whose bodies are still read, by flow id."""
        self.is_over = False
        """Everything was settled: what has not opened yet must not go upstream without a row."""
        self.seen = Seen()
        self.gate = gate

    @property
    def under_way(self) -> int:
        """Exchanges that are not settled."""
        return sum([live.is_busy for live in self.live.values()])

    # The request

    def begin(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Begin the exchange of a request, if it may be an LLM call. Of a live one with a long body
        what comes back is to be awaited."""
        own = self.own_headers.pop(flow.id, ())
        if not flow.live:
            flows.take_own_headers(flow.request.headers)
        request = flows.request_of(flow, own)
        live = exchange_of(
            request,
            self.rules,
            Live,
            exchange_id=flows.exchange_id_of(flow, request),
            source=Source.LIVE if flow.live else Source.REPLAY,
            flow=flow,
        )
        if live is None:
            return None
        self.live[flow.id] = live
        if flow.live and is_read_in_steps(request):
            return self._begin_in_turns(live, request)
        without_pauses(live.read_request(request))
        return self._admit(live)

    def _admit(self, live: Live) -> Awaitable[None] | None:
        """Send a request upstream, or refuse it; what comes back waits for its caps."""
        found = self._ask(live)
        if isinstance(found, Waiting):
            return self._wait(live, found)
        self._go(live, found)
        return None

    def _ask(self, live: Live) -> Held | Waiting | Refusal | None:
        """Whether the caps let a request go upstream; None: they are not asked."""
        if not self.gate.is_active or live.is_recorded or not live.is_confirmed:
            return None
        dialect = (live.routes.session or live.route).dialect
        if live.is_handshake and dialect.cost_limits is not None:
            return None  # each of its responses asks
        limits = live.asked.limits
        if limits is None and live.rules.limits_of is not None:
            limits = Limits(unbounded="the request is not read")  # an error of ours
        return self.gate.ask(
            live.opened,
            limits,
            fields=live.request.billing,
            billing=live.billing_of(live.opened),
        )

    async def _wait(self, live: Live, waiting: Waiting) -> None:
        found = await self.gate.wait(waiting)
        is_gone = not live.flow.client_conn.state & ConnectionState.CAN_READ
        if not (self.is_over or is_gone):
            self._go(live, found)
            return
        if isinstance(found, Held):
            self.gate.leave(found)
        live.flow.kill()
        live.moves(Event.STOPPED)
        self.live.pop(live.flow.id, None)

    def _go(self, live: Live, found: Held | Refusal | None) -> None:
        if isinstance(found, Refusal):
            self.refuse(live, found)
            return
        if isinstance(found, Held):
            if live.is_handshake:
                self.gate.leave(found)
            else:
                live.opened = with_hold(live.opened, found)
        self.send(live)

    def refuse(self, live: Live, refusal: Refusal) -> None:
        """Answer a request ourselves; nothing of it goes upstream."""
        dialect = (live.routes.session or live.route).dialect
        body = dialect.refusal(refusal.message, refusal.cap)
        live.flow.response = flows.refusal(body, refusal, refused_status_of(live.opened.agent))
        live.moves(Event.STOPPED)
        self.live.pop(live.flow.id, None)
        self.ledger.settle(*refused(live.opened, refusal.cap, now=flows.now()))

    async def _begin_in_turns(self, live: Live, request: Request) -> None:
        """Read a request with turns of other connections between its steps."""
        await in_turns(live.read_request(request))
        if not self.is_over:
            if (waiting := self._admit(live)) is not None:
                await waiting
            return
        live.flow.kill()
        live.moves(Event.STOPPED)
        self.live.pop(live.flow.id, None)

    def send(self, live: Live) -> None:
        """The request goes upstream: open its row, and ask for its usage."""
        live.moves(Event.SENT)
        if live.is_handshake or not live.is_confirmed:
            return  # its answer may confirm it, which opens its row then
        try:
            if self._asks(live):
                opt_in.ask(live)
        finally:
            self.ledger.open(live.opened)

    def _asks(self, live: Live) -> bool:
        """Whether to ask for usage that the client did not ask for."""
        opened, inject = live.opened, self.settings.inject
        if live.is_recorded or not opened.streamed or opened.usage_asked:
            return False
        if live.route.dialect.asking is not Asking.STREAM_OPTIONS:
            return False
        if inject is not Inject.AUTO:
            return inject is Inject.ALWAYS
        learned = self.ledger.learned.get((opened.origin, opened.path))
        return policy.asks_of(opened.provider, learned, now=opened.opened_at)

    # The end

    def settle(self, live: Live, end: End, cause: str | None) -> Receipt | None:
        """Hand the row of an exchange that is over to the ledger; its receipt, None if it gets no
        row."""
        try:
            return self._settle(live, end, cause)
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the row
            live.troubles.add_failure(failure, "its row is without figures")
        settled = result_unread(live.opened, end=end, status=live.status, now=flows.now())
        self.gate.settled(settled.exchange, settled.reading if live.is_confirmed else None)
        return self.ledger.settle(*live.noted(settled)) if live.is_confirmed else None

    def _settle(self, live: Live, end: End, cause: str | None) -> Receipt | None:
        times = flows.times_of(live.flow) if live.is_recorded else None
        settled = live.settle(end, cause=cause, now=flows.now(), times=times)
        has_row = live.is_confirmed
        if live.route.is_fetch and self.seen.is_booked(settled.exchange):
            has_row = False  # the request that ordered it has one, or an earlier fetch
        try:
            if not live.is_recorded:
                settled = self._counted(settled, live.asked.limits, has_row=has_row)
            if self.notes is not None:
                self.notes.settled(live.flow)
            if not has_row:
                capturing.discard(live)
                return None
            self._learn(live, settled)
            if live.is_recorded and flows.is_of_har(live.flow):
                settled = Settled(without_upstream_bytes(settled.exchange), settled.reading)
            elif self.captures is not None and not (live.is_recorded and live.capture is None):
                at = settled.exchange.settled_at or live.opened.opened_at
                place = capturing.finish(self.captures, live, end=end, cause=cause, at=at)
                settled = Settled(replace(settled.exchange, capture=place), settled.reading)
            settled = live.noted(settled)
            if settled.reading.usage_json is not None:
                self.seen.remember_booked(settled.exchange)
            if live.tap is not None and logger.isEnabledFor(logging.DEBUG):
                self.seen.log_unknown_keys(live.tap.meter.unknown_keys)
            if self.settings.log is Log.EXCHANGES:
                logger.info("tokentee: %s", exchange_log.line_of(settled, self.price))
        except Exception as failure:  # noqa: BLE001  # beside the figures, which are kept
            live.troubles.add_failure(failure, "the traffic goes on")
            settled = live.noted(settled)
        return self.ledger.settle(*settled) if has_row else None

    def _counted(self, settled: Settled, limits: object = None, *, has_row: bool = True) -> Settled:
        """The result, with what its caps remark."""
        reading = settled.reading if has_row else None
        remarks = self.gate.settled(settled.exchange, reading, limits)
        if not remarks:
            return settled
        usage = settled.reading.usage
        usage = replace(usage, remarks=(*usage.remarks, *remarks))
        return Settled(settled.exchange, replace(settled.reading, usage=usage))

    def _learn(self, live: Live, settled: Settled) -> None:
        """Remember whether the upstream of an exchange reports usage unasked, asked, or refuses."""
        exchange, reading = settled
        if live.route.dialect.asking is not Asking.STREAM_OPTIONS or not exchange.streamed:
            return
        if exchange.outcome is not Outcome.COMPLETE:
            return
        upstream = (exchange.origin, exchange.path)
        if exchange.usage_injected:
            if len(self.seen.proven) < PROVEN_MAX:
                self.seen.proven.add(upstream)
            return
        # The `stream:chat:` endpoint only resembles OpenAI's: it reports usage in some streams, and
        # stripping would remove usage that the client should get.
        resembles = live.tap is not None and live.tap.meter.facts.ending is Ending.CLOSE
        if exchange.resent:
            verdict = policy.UsageHabit.REFUSES
        elif exchange.usage_asked or policy.is_known(exchange.provider):
            return
        elif reading.usage_source is UsageSource.REPORTED or resembles:
            verdict = policy.UsageHabit.AUTOMATIC
        else:
            verdict = policy.UsageHabit.OPT_IN
        lesson = policy.lesson(
            *upstream, verdict, now=exchange.opened_at, known=self.ledger.learned
        )
        if lesson is not None:
            self.ledger.learn(lesson)

    # WebSockets

    def message(self, live: Live, message: websocket.WebSocketMessage) -> list[Receipt]:
        """Read one message of either side; the receipts of the responses that it ends."""
        assert live.session is not None
        at = datetime.fromtimestamp(message.timestamp, UTC)
        if live.capture is not None:
            live.capture.add_message(
                message.content, from_client=message.from_client, is_text=message.is_text, at=at
            )
        exchanges = live.session.message(message.content, from_client=message.from_client, at=at)
        held = live.session.held
        for place, each in enumerate(exchanges):
            if held and isinstance(each, Exchange):
                one = held.pop(0)
                exchanges[place] = self.gate.held_as(one, with_hold(each, one))
        return self._write(exchanges)

    async def refusal_of(self, live: Live, message: websocket.WebSocketMessage) -> bytes | None:
        """The message that refuses a response which a client's message asks for; None: it goes on.
        It does not wait for requests under way: the messages of both sides would, and with them
        what it waits for."""
        if not self.gate.is_active or live.is_recorded or not message.from_client:
            return None
        dialect = (live.routes.session or live.route).dialect
        asked = response_asked(message.content)
        if asked is None or dialect.cost_limits is None:
            return None
        at = datetime.fromtimestamp(message.timestamp, UTC)
        assert live.session is not None
        live.session.asked += 1
        exchange = replace(
            live.opened,
            id=f"{live.opened.id}/asked-{live.session.asked}",
            opened_at=at,
            request_model=text_of(asked.get("model")) or live.opened.request_model,
            streamed=True,
        )
        found = self.gate.ask(
            exchange,
            read_limits(dialect, asked, message.content),
            fields=read_request(live.route, b"", parsed=asked).billing,
            billing=live.billing_of(exchange),
        )
        if isinstance(found, Waiting):
            if found.is_for_share:
                found = await self.gate.wait(found)
            else:
                found = self.gate.book.give_up(found)
        if isinstance(found, Held) and live.session is None:  # it was closed meanwhile
            self.gate.leave(found)
            return None
        if isinstance(found, Held):
            if len(live.session.held) == OPEN_MAX:  # upstream has begun none of them
                self.gate.lost(live.session.held.pop(0))
            live.session.held.append(found)
            return None
        self.ledger.settle(*refused(exchange, found.cap, now=flows.now()))
        return json_values.dumps(dialect.refused_event(found.message, found.cap)).encode()

    def end_session(self, live: Live, how: End, at: datetime) -> None:
        """Settle the open responses of a WebSocket that has ended, and write its capture."""
        session, live.session = live.session, None
        assert session is not None
        self._write(session.end(how, at=at))
        for held in session.held:  # what became of them is not known
            self.gate.lost(held)
        if self.captures is not None and live.capture is not None:
            capturing.finish(self.captures, live, end=how, cause=None, at=at)

    def _write(self, exchanges: Iterable[Exchange | Settled]) -> list[Receipt]:
        receipts = []
        for each in exchanges:
            if isinstance(each, Settled):
                receipts.append(self.ledger.settle(*self._counted(each)))
            else:
                self.ledger.open(each)
        return receipts

    # A stop

    def end_all(self, cause: str) -> None:
        """Settle every exchange and end every WebSocket session that is under way. `cause` goes
        into the rows of those that had not ended by themselves."""
        self.is_over = True
        for flow_id, live in list(self.live.items()):
            if live.session is not None:
                self.end_session(live, End.STOPPED, flows.now())
            elif live.stage is Stage.OPENING:
                continue  # it is killed when it is read
            elif live.moves(Event.STOPPED):
                self.settle(live, *(live.end or (End.STOPPED, cause)))
            del self.live[flow_id]


def _booked_as(exchange: Exchange) -> tuple[str, str | None, str] | None:
    if exchange.response_id is None:
        return None
    return exchange.origin, exchange.key_fingerprint, exchange.response_id
