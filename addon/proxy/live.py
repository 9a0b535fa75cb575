"""Edge. One flow whose exchange is under way: the exchange, what mitmproxy's side adds to it, and
its capture.

It is not in `flow.metadata`, because mitmproxy copies and saves that. Its state is the exchange's
(`metering/exchange.py`); once that is settled, nothing of it is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from mitmproxy import http
from msgspec import Struct

from addon.metering.exchange import MeteredExchange
from addon.metering.messages import End, Request
from addon.metering.opening import Routes
from addon.proxy import flows
from addon.recordings.capture import Capture, CapturedExchange, CaptureFiles
from addon.recordings.formats.recorded import RequestEdit
from ledger.model.exchange import Source

type StreamCallable = Callable[[bytes], bytes | list[bytes]]


@dataclass(frozen=True, slots=True)
class OriginalRequest:
    """The parts of a client's request that were changed to ask for usage."""

    body: bytes | None
    accept_encoding: str | None


class Clock(Struct, frozen=True):
    """The instants of one exchange: the wall clock when it opened, and from then on a monotonic
    clock. A wall clock that is set meanwhile changes no difference between them."""

    opened: float
    """Seconds since the epoch."""
    began: float
    """The same moment, as `time.monotonic`."""

    def seconds(self) -> float:
        """Now, in seconds since the epoch."""
        return self.opened + (time.monotonic() - self.began)

    def now(self) -> datetime:
        """Now, UTC and aware."""
        return datetime.fromtimestamp(self.seconds(), UTC)


class Live(MeteredExchange):
    """One exchange that passes mitmproxy."""

    __slots__ = (
        "broken_by_client",
        "capture",
        "clock",
        "end",
        "flow",
        "original",
        "stream",
    )

    def __init__(
        self, routes: Routes, request: Request, flow: http.HTTPFlow, *, began: float
    ) -> None:
        """`began`: when the head of the request had come, as `time.monotonic`."""
        super().__init__(
            routes,
            exchange_id=flows.exchange_id_of(flow, request),
            source=Source.LIVE if flow.live else Source.REPLAY,
        )
        self.flow = flow
        # The times of a saved flow are its own; what it is read at is now.
        self.clock = Clock(routes.began_at.timestamp() if flow.live else time.time(), began)
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

    def begin_capture(self, files: CaptureFiles | None) -> None:
        """Capture what passes from now on, if captures are kept, unless it is recorded already."""
        if files is None or self.is_recorded:
            return
        self.capture = files.begin(request_bytes=len(self.flow.request.raw_content or b""))
        self.capture.started = self.clock.began
        if (response := self.flow.response) is not None:
            # Before we take a content-encoding out of the head that the client gets.
            self.capture.head = response.status_code, tuple(response.headers.items(multi=True))

    def drop_capture(self) -> None:
        """Keep nothing of an exchange that gets no row, or whose request is sent again."""
        if self.capture is not None:
            self.capture.drop("not kept")
            self.capture = None

    def write_capture(
        self, files: CaptureFiles, *, end: End, cause: str | None, at: datetime
    ) -> str | None:
        """Queue the capture of an exchange that has ended, or of a WebSocket; where it goes. None
        if it was dropped, which is noted for the row."""
        request, opened, original = self.flow.request, self.opened, self.original
        sent = request.raw_content or b""
        # A request that failed before any response headers has no tap, and no capture yet.
        capture = self.capture or files.begin(request_bytes=len(sent))
        if capture.overflow is not None:
            self.troubles.add(capture.overflow)
            return None
        if files.failure is not None:
            self.troubles.add(files.failure)
        status, headers = capture.head or (None, ())
        captured = CapturedExchange(
            id=opened.id,
            started_at=opened.opened_at,
            ended_at=at,
            end=end,
            cause=cause,
            usage_injected=opened.usage_injected,
            method=request.method,
            url=f"{opened.origin}{request.path}",  # mitmproxy writes IPv6 without brackets
            request_headers=tuple(request.headers.items(multi=True)),
            request_body=sent,
            client_edit=RequestEdit.between_bodies(sent, original.body or b"")
            if original
            else None,
            status=status,
            response_headers=headers,
            capture=capture,
        )
        return f"{files.write(captured)}#{captured.id}"
