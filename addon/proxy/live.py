"""Edge. One flow whose exchange is under way: the exchange, and what mitmproxy's side adds to it.

It is not in `flow.metadata`, because mitmproxy copies and saves that. Its state is the exchange's
(`metering/exchange.py`); once that is settled, nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mitmproxy import http

from addon.metering.exchange import MeteredExchange
from addon.metering.messages import End
from addon.recordings.capture import Capture

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
        "original",
        "stream",
    )

    def __init__(self, *args: Any, flow: http.HTTPFlow, **more: Any) -> None:
        super().__init__(*args, **more)
        self.flow = flow
        self.original: OriginalRequest | None = None
        """The client's own request, where we asked for usage: it is sent again if upstream refuses
        that, and a capture has it. None: we did not ask."""
        self.capture: Capture | None = None
        self.stream: StreamCallable | None = None
        """The callable that was set as `flow.response.stream`."""
        self.broken_by_client: bool | None = None
        """Which side broke it first; None if neither has."""
        self.end: tuple[End, str | None] | None = None
        """What ended it, and the error's text; None while it runs."""
