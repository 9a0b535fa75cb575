"""Edge. One flow whose exchange is under way: the exchange, and what mitmproxy's side adds to it.

It is not in `flow.metadata`, because mitmproxy copies and saves that. Its state is the exchange's
(`metering/exchange.py`); once that is settled, nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mitmproxy import http

from addon.metering.exchange import MeteredExchange, Stage
from addon.metering.requests.messages import End
from addon.metering.session import MeteredSession
from addon.recordings.capture import Capture
from ledger.caps.book import Held

type StreamCallable = Callable[[bytes], bytes | list[bytes]]


@dataclass(frozen=True, slots=True)
class OriginalRequest:
    """The parts of a client's request that were changed to ask for usage."""

    body: bytes | None
    accept_encoding: str | None


class Live(MeteredExchange):
    """One exchange that passes mitmproxy."""

    __slots__ = (
        "broken_by_client",
        "capture",
        "end",
        "flow",
        "held_length",
        "held_responses",
        "messages_under_way",
        "original",
        "responses_asked",
        "session",
        "stream",
    )

    def __init__(self, *args: Any, flow: http.HTTPFlow, **more: Any) -> None:
        super().__init__(*args, **more)
        self.flow = flow
        self.original: OriginalRequest | None = None
        """The original request, as long as upstream may refuse the usage that we asked for."""
        self.capture: Capture | None = None
        self.stream: StreamCallable | None = None
        """The callable that was set as `flow.response.stream`."""
        self.broken_by_client: bool | None = None
        """Which side broke it first; None if neither has."""
        self.held_length = 0
        """The content-length of an answer whose end waits for its commit; 0: it does not."""
        self.end: tuple[End, str | None] | None = None
        """What ended it, and the error's text; None while it runs."""
        self.session: MeteredSession | None = None
        """Of an open WebSocket."""
        self.held_responses: list[Held] = []
        """Of a WebSocket: what its caps hold for responses that are asked for and not open yet."""
        self.responses_asked = 0
        """Of a WebSocket, of the caps."""
        self.messages_under_way = 0
        """Messages of it that are read, or wait for the commit of the response that they end."""

    @property
    def is_busy(self) -> bool:
        """Whether something is under way. A WebSocket without an open response is not."""
        return self.session is None or self.session.is_open or self.messages_under_way > 0

    @property
    def is_running(self) -> bool:
        """Whether its request has gone upstream, and its end has not come."""
        return self.session is None and self.stage in (Stage.ASKING, Stage.ANSWERING)
