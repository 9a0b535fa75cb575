"""Edge. The state of exchanges under way.

It is not in `flow.metadata`, because mitmproxy copies and saves that.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from mitmproxy import http

from addon.metering.exchange import MeteredExchange
from addon.metering.opening import Rules
from addon.metering.session import MeteredSession
from addon.proxy.display.content_view import FlowNotes
from addon.proxy.display.exchange_log import Price
from addon.proxy.display.watching import Watching
from addon.proxy.held_end import HeldEnd, StreamCallable
from addon.proxy.host.bodies import Bodies
from addon.proxy.options import Settings
from addon.recordings.capture import Capture
from addon.recordings.capture_files import CaptureFiles
from ledger.model.exchange import Exchange
from ledger.store.writing.writer import Ledger

PROVEN_MAX = 10_000
"""Upstreams and paths that answered a question for usage; bounded, since a client can invent
paths without end."""


BOOKED_MAX = 10_000
"""Responses remembered as booked, about 2 MB: a result is fetched within hours as a rule."""


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


@dataclass(slots=True, eq=False)
class Running:
    """The state that outlives a reload of the script: the ledger, and the exchanges under way."""

    settings: Settings
    rules: Rules
    ledger: Ledger
    price: Price
    """For log lines; the ledger prices on its own thread."""
    captures: CaptureFiles | None = None
    """None: nothing is captured."""
    live: dict[str, Live] = field(default_factory=dict)
    """By flow id."""
    own_headers: dict[str, tuple[tuple[bytes, bytes], ...]] = field(default_factory=dict)
    """Headers for us that were taken out of requests whose bodies are still read, by flow id."""
    sessions: dict[str, MeteredSession] = field(default_factory=dict)
    """Open WebSockets, by flow id."""
    session_captures: dict[str, Capture] = field(default_factory=dict)
    """Of open WebSockets, by flow id."""
    watching: Watching | None = None
    """Health, metrics and spans, where the options ask for them."""
    notes: FlowNotes | None = None
    """For mitmweb and mitmproxy, which show flows."""
    bodies: Bodies = field(default_factory=Bodies)
    """Whether other addons want plain answers whole."""
    held_ends: dict[str, HeldEnd] = field(default_factory=dict)
    """Last chunks of bodies under a content-length that wait for a commit, by flow id."""
    can_hold_end: bool = False
    """The patch that sends a held last chunk is in place."""
    proven: set[tuple[str, str]] = field(default_factory=set)
    """(origin, path) that have answered a request with our question in it."""
    booked: dict[tuple[str, str | None, str], None] = field(default_factory=dict)
    """(origin, key fingerprint, response id) of answers with usage that have a row, the oldest
    first."""

    unknown_keys: set[str] = field(default_factory=set)
    """Unknown usage keys that have been logged."""

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
    fingerprint = exchange.key_fingerprint
    # One text for all exchanges of an origin or a key, not one each.
    return (
        sys.intern(exchange.origin),
        None if fingerprint is None else sys.intern(fingerprint),
        exchange.response_id,
    )
