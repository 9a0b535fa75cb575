"""Edge. What the recorder knows of exchanges under way, and the guard between our bugs and them.

Not in `flow.metadata`, which mitmproxy copies and saves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from mitmproxy import http

from addon.dialects.request import RequestFacts
from addon.dialects.routes import Route
from addon.metering.tap import Tap, place_of
from addon.metering.websocket import WebSocketSession
from addon.proxy.options import Settings
from addon.recordings.capture import Capture
from ledger.model.records import Exchange, Source
from ledger.store.writing.writer import Ledger

logger = logging.getLogger(__name__)

PROVEN_MAX = 10_000
"""Upstreams and paths remembered as answering; a client can invent paths without end."""


@dataclass(slots=True)
class Unasked:
    """A request as the client sent it, where we asked for usage in its name."""

    body: bytes | None
    accept_encoding: str | None


@dataclass(slots=True)
class Live:
    """One exchange under way."""

    flow: http.HTTPFlow
    opened: Exchange
    route: Route
    request: RequestFacts
    is_handshake: bool = False
    """Of a WebSocket: what is billed are the responses of the session it begins."""
    unasked: Unasked | None = None
    tap: Tap | None = None
    capture: Capture | None = None
    status: int | None = None
    broken_by_client: bool | None = None
    """Which side broke it; None if neither has."""
    troubles: list[str] = field(default_factory=list)
    """Steps of ours that failed, for the row's `degraded`."""

    @property
    def is_recorded(self) -> bool:
        """Read from a file, not under way. `flow.live` says so only until a flow is killed."""
        return self.opened.source is not Source.LIVE


@dataclass(slots=True)
class Session:
    """One open WebSocket."""

    handshake: Live
    wire: WebSocketSession
    open: dict[int, Exchange] = field(default_factory=dict)
    """Responses under way, by the key that `wire` gave them."""


@dataclass(slots=True)
class Running:
    """What outlives a reload of the script: the ledger, and the exchanges under way."""

    settings: Settings
    ledger: Ledger
    live: dict[str, Live] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    """Open WebSockets."""
    proven: set[tuple[str, str]] = field(default_factory=set)
    """(origin, path) that have answered a request with our question in it."""


def plain(headers: http.Headers) -> dict[str, str]:
    """Headers by lower-case name, the last of several: mitmproxy's look-up walks and decodes all
    of them each time, 5 µs apiece."""
    return {
        name.lower().decode("latin-1"): value.decode("utf-8", "surrogateescape")
        for name, value in headers.fields
    }


def attempt[**P, T](
    troubles: list[str], step: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T | None:
    """The step's result, or None where it failed: noted for the row, one line in the log."""
    try:
        return step(*args, **kwargs)
    except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the traffic
        troubles.append(f"{type(failure).__name__} in {place_of(failure)}")
        logger.warning("tokentee: %s; the traffic goes on", troubles[-1])
        return None
