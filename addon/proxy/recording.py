"""Edge. One recording: its settings, its ledger, and the exchanges under way. It outlives a reload
of the script.

    begin        a request has come: its exchange is read, its row opened, usage asked for
    settle       an exchange is over: its row goes to the ledger
    end_all      the proxy stops: whatever is open is settled

Who is asked before `send` says so in `authorising.py`, and an open WebSocket has an object of its
own (`sessions.py`): an HTTP exchange without caps meets neither.

What the hooks call (`recorder.py`, `traffic.py`), which guard each call against our own bugs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mitmproxy import http
from msgspec.structs import replace

from addon.framing.long_json import without_pauses
from addon.metering.exchange import Event, Stage
from addon.metering.messages import End, Request
from addon.metering.opening import RunRules, is_read_in_steps, routes_of
from addon.metering.settlement import Settled, result_unread
from addon.metering.troubles import Troubles
from addon.proxy import flows, opt_in
from addon.proxy.authorising import Authoriser
from addon.proxy.event_loop import in_turns
from addon.proxy.health import Telemetry
from addon.proxy.live import Live
from addon.proxy.options import Log, Settings
from addon.proxy.process import Bodies, Process
from addon.proxy.sessions import LiveSession
from addon.proxy.shown import line_of
from addon.recordings.capture import CaptureFiles
from addon.recordings.metered import without_upstream_bytes
from ledger.model.exchange import Exchange, UsageSource
from ledger.store.writing.batches import Price
from ledger.store.writing.incoming import OnCommit, Receipt
from ledger.store.writing.writer import Ledger

logger = logging.getLogger(__name__)

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
    doubted: set[tuple[str, str]] = field(default_factory=set)
    """(origin, path) that have given usage of their own beside what we asked for."""
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


@dataclass(eq=False)
class Recording:
    """The ledger, and what is under way."""

    settings: Settings
    rules: RunRules
    ledger: Ledger = field(kw_only=True)
    price: Price = field(kw_only=True)
    """For log lines; the ledger prices on its own thread."""
    authoriser: Authoriser = field(kw_only=True)
    captures: CaptureFiles | None = None
    """None: nothing is captured."""
    watching: Telemetry | None = None
    """Health, metrics and spans, where the options ask for them."""
    commit_callback: Callable[[OnCommit], OnCommit] = lambda first: first
    """What else is told of each commit, behind the first: made anew at a reload."""
    process: Process = field(default_factory=Process)
    bodies: Bodies = field(default_factory=Bodies)
    """Whether other addons want plain answers whole."""
    live: dict[str, Live] = field(default_factory=dict)
    """By flow id."""
    sessions: dict[str, LiveSession] = field(default_factory=dict)
    """Open WebSockets, by flow id: their handshakes are in `live` no more."""
    heads: dict[str, tuple[flows.Fields, float]] = field(default_factory=dict)
    """Of requests whose bodies are still read, by flow id: headers for us that were taken out, and
    when the head had come, as `time.monotonic`."""
    is_over: bool = False
    """Everything was settled: what has not opened yet must not go upstream without a row."""
    seen: Seen = field(default_factory=Seen)

    @property
    def under_way(self) -> int:
        """Exchanges that are not settled."""
        return len(self.live) + sum([session.is_busy for session in self.sessions.values()])

    def troubles_of(self, flow: http.HTTPFlow) -> Troubles:
        """Where errors of ours are noted for a flow's row."""
        if (live := self.live.get(flow.id)) is not None:
            return live.troubles
        session = self.sessions.get(flow.id)
        return session.handshake.troubles if session is not None else Troubles()

    def takes_runs(self, flow: http.HTTPFlow) -> bool:
        """Whether the callable on a flow's response is ours, so that it takes several chunks at
        once."""
        live = self.live.get(flow.id)
        return (
            live is not None and flow.response is not None and flow.response.stream is live.stream
        )

    # The request

    def begin(
        self, flow: http.HTTPFlow, send: Callable[[Live], Awaitable[None] | None]
    ) -> Awaitable[None] | None:
        """Begin the exchange of a request, if it may be an LLM call. `send` sends it upstream, or
        asks the caps first. Of a live one with a long body what comes back is to be awaited."""
        own, began = self.heads.pop(flow.id, ((), time.monotonic()))
        if not flow.live:
            flows.take_own_headers(flow.request.headers)
        request = flows.request_of(flow, own)
        routes = routes_of(request, self.rules)
        if routes is None:
            return None
        live = self.live[flow.id] = Live(routes, request, flow, began=began)
        if flow.live and is_read_in_steps(request):
            return self._begin_in_turns(live, request, send)
        without_pauses(live.read_request(request))
        return send(live)

    async def _begin_in_turns(
        self, live: Live, request: Request, send: Callable[[Live], Awaitable[None] | None]
    ) -> None:
        """Read a request with turns of other connections between its steps."""
        await in_turns(live.read_request(request))
        if not self.is_over:
            if (waiting := send(live)) is not None:
                await waiting
            return
        self.kill(live)

    def kill(self, live: Live) -> None:
        """Nothing of a request goes upstream, and it gets no row."""
        live.flow.kill()
        live.moves(Event.STOPPED)
        self.live.pop(live.flow.id, None)

    def send(self, live: Live) -> None:
        """The request goes upstream: open its row, and ask for its usage."""
        live.moves(Event.SENT)
        if live.routes.is_handshake or not live.is_confirmed:
            return  # its answer may confirm it, which opens its row then
        try:
            if opt_in.is_needed(live, self.settings.inject, self.ledger):
                opt_in.inject(live)
        finally:
            self.ledger.open(live.opened)

    # The end

    def settle(self, live: Live, end: End, cause: str | None) -> Receipt | None:
        """Hand the row of an exchange that is over to the ledger; its receipt, None if it gets no
        row."""
        has_row, stated = live.is_confirmed, list[Settled]()
        try:
            times = flows.times_of(live.flow) if live.is_recorded else None
            settled = live.settle(end, cause=cause, now=live.clock.now(), times=times)
            # The request that ordered a result may have a row, or an earlier fetch.
            is_booked = live.route.is_fetch and self.seen.is_booked(settled.exchange)
            has_row = live.is_confirmed and not is_booked
            stated = live.stated(settled)
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the row
            live.troubles.add_failure(failure, "its row is without figures")
            settled = result_unread(live.opened, end=end, status=live.status, now=live.clock.now())
        try:
            if not live.is_recorded:
                reading = settled.reading if has_row else None
                remarks = self.authoriser.settled(settled.exchange, reading, live.asked.limits)
                settled = settled.remarked(remarks)
            if not has_row and not stated:
                live.drop_capture()
                return None
            opt_in.learn(
                live,
                settled,
                proven=self.seen.proven,
                doubted=self.seen.doubted,
                ledger=self.ledger,
            )
            if live.is_recorded and flows.is_of_har(live.flow):
                settled = Settled(without_upstream_bytes(settled.exchange), settled.reading)
            elif self.captures is not None and not (live.is_recorded and live.capture is None):
                at = settled.exchange.settled_at or live.opened.opened_at
                place = live.write_capture(self.captures, end=end, cause=cause, at=at)
                settled = Settled(replace(settled.exchange, capture=place), settled.reading)
                stated = [
                    one._replace(exchange=replace(one.exchange, capture=place)) for one in stated
                ]
            is_final = settled.reading.usage_source is not UsageSource.PARTIAL
            if is_final and settled.reading.usage_json is not None:
                self.seen.remember_booked(settled.exchange)
            if live.tap is not None and logger.isEnabledFor(logging.DEBUG):
                self.seen.log_unknown_keys(live.tap.meter.unknown_keys)
            if self.settings.log is Log.EXCHANGES:
                logger.info("tokentee: %s", line_of(live.noted(settled), self.price))
        except Exception as failure:  # noqa: BLE001  # beside the figures, which are kept
            live.troubles.add_failure(failure, "the traffic goes on")
        receipt = None
        for one in stated:  # first: a replay takes an order that has a row for read
            receipt = self.ledger.settle(*live.noted(one))
        if not has_row:
            return receipt
        try:
            return self.ledger.settle(*live.noted(settled))
        except Exception as failure:  # noqa: BLE001  # as the first
            live.troubles.add_failure(failure, "its row is without figures")
            settled = result_unread(live.opened, end=end, status=live.status, now=live.clock.now())
            return self.ledger.settle(*live.noted(settled))

    # A stop

    def end_all(self, cause: str) -> None:
        """Settle every exchange and end every WebSocket session that is under way. `cause` goes
        into the rows of those that had not ended by themselves."""
        self.is_over = True
        while self.sessions:
            self.sessions.popitem()[1].close(End.STOPPED, None, self.captures)
        for flow_id, live in list(self.live.items()):
            if live.stage is Stage.OPENING:
                continue  # it is killed when it is read
            if live.moves(Event.STOPPED):
                self.settle(live, *(live.end or (End.STOPPED, cause)))
            del self.live[flow_id]


def _booked_as(exchange: Exchange) -> tuple[str, str | None, str] | None:
    if exchange.response_id is None:
        return None
    return exchange.origin, exchange.key_fingerprint, exchange.response_id
