"""Edge. The state of exchanges under way.

It is not in `flow.metadata`, because mitmproxy copies and saves that. An exchange is in one phase:

    opening     its large request is read in turns; nothing of it has gone upstream
    running     its request is upstream, or its WebSocket is open
    ending      its answer is over, and what came last is read in turns
    committing  settled; the end of its answer waits for the commit
    settled     no more under way: nothing of it is kept here

    opening -> running -> ending -> committing -> settled

`exchanges.begin` makes it running, the hook of its end (`traffic.py`) all that follows. A stop may
take an exchange from running or ending to settled (`lifecycle.end_all`). `exchanges.settle` alone
makes a row, and only of an exchange that is not committing yet, so it is settled once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from mitmproxy import http

from addon.metering.exchange import MeteredExchange
from addon.metering.opening import RunRules
from addon.metering.requests.messages import End
from addon.metering.session import MeteredSession
from addon.proxy.display.content_view import FlowNotes
from addon.proxy.display.watching import Watching
from addon.proxy.host.mechanisms import Host
from addon.proxy.options import Settings
from addon.proxy.wanted_bodies import Bodies
from addon.recordings.capture import Capture, CaptureFiles
from ledger.model.exchange import Exchange
from ledger.store.writing.batches import Price
from ledger.store.writing.writer import Ledger

PROVEN_MAX = 10_000
"""Upstreams and paths that answered a question for usage; bounded, since a client can invent
paths without end."""


BOOKED_MAX = 10_000
"""Responses remembered as booked, about 4 MB: a result is fetched within hours as a rule."""

type StreamCallable = Callable[[bytes], bytes | list[bytes]]


class Phase(Enum):
    """Where an exchange is that has gone upstream."""

    RUNNING = "running"
    ENDING = "ending"
    COMMITTING = "committing"


@dataclass(slots=True)
class OriginalRequest:
    """The parts of a client's request that were changed to ask for usage."""

    body: bytes | None
    accept_encoding: str | None


@dataclass(slots=True)
class Live:
    """One flow whose exchange is under way."""

    flow: http.HTTPFlow
    exchange: MeteredExchange
    original: OriginalRequest | None = None
    """The original request, if usage was asked for in the client's name."""
    capture: Capture | None = None
    stream: StreamCallable | None = None
    """The callable that was set as `flow.response.stream`."""
    broken_by_client: bool | None = None
    """Which side broke it; None if neither has."""
    held_length: int = 0
    """The content-length of an answer whose end waits for its commit; 0: it does not."""
    phase: Phase = Phase.RUNNING
    end: tuple[End, str | None] | None = None
    """What ended it, and the error's text; None while it runs."""


@dataclass(slots=True)
class Session:
    """One open WebSocket."""

    flow: http.HTTPFlow
    metered: MeteredSession
    capture: Capture | None
    messages_under_way: int = 0
    """Messages that are read, or wait for the commit of the response that they end."""


@dataclass(slots=True, eq=False)
class Running:
    """The state that outlives a reload of the script: the ledger, and the exchanges under way."""

    settings: Settings
    rules: RunRules
    ledger: Ledger
    price: Price
    """For log lines; the ledger prices on its own thread."""
    captures: CaptureFiles | None = None
    """None: nothing is captured."""
    live: dict[str, Live] = field(default_factory=dict)
    """By flow id."""
    own_headers: dict[str, tuple[tuple[bytes, bytes], ...]] = field(default_factory=dict)
    """Headers for us that were taken out of requests whose bodies are still read, by flow id."""
    opening: set[str] = field(default_factory=set)
    """Flows whose large requests are read in turns, by id."""
    sessions: dict[str, Session] = field(default_factory=dict)
    """Open WebSockets, by flow id."""
    is_ours: bool = False
    """Whether the process is ours, as far as is known."""
    host: Host | None = None
    """Mechanisms that are in, where the process is ours."""
    undo: list[Callable[[], None]] = field(default_factory=list)
    """What gives mitmproxy back as it was, the last first."""
    undo_last: list[Callable[[], object]] = field(default_factory=list)
    """The same for what stays until the ledger is closed."""
    telling: asyncio.Task[None] | None = None
    """Writes down what is answered, for `tokentee top`."""
    is_over: bool = False
    """Everything was settled: what has not opened yet must not go upstream without a row."""
    watching: Watching | None = None
    """Health, metrics and spans, where the options ask for them."""
    notes: FlowNotes | None = None
    """For mitmweb and mitmproxy, which show flows."""
    bodies: Bodies = field(default_factory=Bodies)
    """Whether other addons want plain answers whole."""
    can_hold_end: bool = False
    """The wrapper that sends a held last chunk is in place."""
    proven: set[tuple[str, str]] = field(default_factory=set)
    """(origin, path) that have answered a request with our question in it."""
    booked: dict[tuple[str, str | None, str], None] = field(default_factory=dict)
    """(origin, key fingerprint, response id) of answers with usage that have a row, the oldest
    first."""

    unknown_keys: set[str] = field(default_factory=set)
    """Unknown usage keys that have been logged."""

    @property
    def under_way(self) -> int:
        """Exchanges that are not settled. A WebSocket without an open response is none."""
        busy = sum(
            each.messages_under_way or each.metered.is_open for each in self.sessions.values()
        )
        return len(self.opening) + len(self.live) + busy

    @property
    def is_idle(self) -> bool:
        """Whether no exchange is under way and no WebSocket is open."""
        return not (self.opening or self.live or self.sessions)

    def is_new_result(self, exchange: Exchange) -> bool:
        """Whether a fetched result has no row yet, from the request that ordered it or from an
        earlier fetch."""
        return _booked_as(exchange) not in self.booked

    def remember_booked(self, exchange: Exchange) -> None:
        """Remember an answer with usage that gets a row."""
        booked_as = _booked_as(exchange)
        if booked_as is not None:
            self.booked[booked_as] = None
            if len(self.booked) > BOOKED_MAX:
                del self.booked[next(iter(self.booked))]


def _booked_as(exchange: Exchange) -> tuple[str, str | None, str] | None:
    if exchange.response_id is None:
        return None
    return exchange.origin, exchange.key_fingerprint, exchange.response_id
