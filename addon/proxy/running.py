"""Edge. What the recorder knows of exchanges under way.

Not in `flow.metadata`, which mitmproxy copies and saves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mitmproxy import http

from addon.metering.exchange import MeteredExchange
from addon.metering.opening import Rules
from addon.metering.session import MeteredSession
from addon.proxy.options import Settings
from addon.recordings.capture import Capture
from addon.recordings.capture_files import CaptureFiles
from ledger.store.writing.writer import Ledger

PROVEN_MAX = 10_000
"""Upstreams and paths remembered as answering; a client can invent paths without end."""


@dataclass(slots=True)
class OriginalRequest:
    """What of a client's request was changed when usage was asked for in its name."""

    body: bytes | None
    accept_encoding: str | None


@dataclass(slots=True)
class Live:
    """One flow whose exchange is under way."""

    flow: http.HTTPFlow
    exchange: MeteredExchange
    original: OriginalRequest | None = None
    """The client's request where usage was asked for in its name."""
    capture: Capture | None = None
    broken_by_client: bool | None = None
    """Which side broke it; None if neither has."""


@dataclass(slots=True)
class Running:
    """What outlives a reload of the script: the ledger, and the exchanges under way."""

    settings: Settings
    rules: Rules
    ledger: Ledger
    captures: CaptureFiles | None = None
    """None: nothing is captured."""
    live: dict[str, Live] = field(default_factory=dict)
    """By flow id."""
    sessions: dict[str, MeteredSession] = field(default_factory=dict)
    """Open WebSockets, by flow id."""
    session_captures: dict[str, Capture] = field(default_factory=dict)
    """Of open WebSockets, by flow id."""
    proven: set[tuple[str, str]] = field(default_factory=set)
    """(origin, path) that have answered a request with our question in it."""
