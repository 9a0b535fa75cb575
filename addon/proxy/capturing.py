"""Edge. Captures of live flows: collects the bytes of an exchange, and queues them at its end."""

from __future__ import annotations

from datetime import datetime

from mitmproxy import http, websocket
from msgspec.structs import replace

from addon.metering.exchange import MeteredExchange
from addon.metering.requests.messages import End
from addon.metering.settlement import Settled
from addon.proxy.running import Live, OriginalRequest, Running, Session
from addon.recordings.capture import Capture, CapturedExchange, CaptureFiles
from addon.recordings.formats.recorded import Edit


def begin(running: Running, live: Live) -> Capture | None:
    """The capture of an exchange that begins; None if it is not captured."""
    if running.captures is None or live.exchange.is_recorded:
        return None
    capture = running.captures.begin(request_bytes=len(live.flow.request.raw_content or b""))
    if (response := live.flow.response) is not None:
        # Before we take a content-encoding out of the head that the client gets.
        capture.head = response.status_code, tuple(response.headers.items(multi=True))
    return capture


def add_message(capture: Capture, message: websocket.WebSocketMessage, at: datetime) -> None:
    """Keep one message of either side of a WebSocket."""
    capture.add_message(
        message.content, from_client=message.from_client, is_text=message.is_text, at=at
    )


def finish(running: Running, live: Live, settled: Settled, end: End, cause: str | None) -> Settled:
    """Queue the capture of an exchange that has ended; its row names the capture, or the reason
    why there is none."""
    files, capture = running.captures, live.capture
    if files is None or (capture is None and live.exchange.is_recorded):
        return settled
    exchange, reading = settled
    # A request that failed before any response headers has no tap, and no capture yet.
    capture = capture or files.begin(request_bytes=len(live.flow.request.raw_content or b""))
    at = exchange.settled_at or exchange.opened_at
    place = _write(
        files,
        live.flow,
        live.exchange,
        capture,
        end=end,
        cause=cause,
        at=at,
        original=live.original,
    )
    if place is None:
        return settled
    return Settled(replace(exchange, capture=place), reading)


def discard(live: Live) -> None:
    """Keep nothing of an exchange that gets no row, or whose request is sent again."""
    if live.capture is not None:
        live.capture.drop("not kept")
        live.capture = None


def finish_session(running: Running, session: Session, end: End, at: datetime) -> None:
    """Queue the capture of a WebSocket that has ended. Its responses are in the ledger already."""
    if running.captures is not None and session.capture is not None:
        exchange = session.metered.handshake
        _write(running.captures, session.flow, exchange, session.capture, end=end, at=at)


def _write(
    files: CaptureFiles,
    flow: http.HTTPFlow,
    exchange: MeteredExchange,
    capture: Capture,
    *,
    end: End,
    at: datetime,
    cause: str | None = None,
    original: OriginalRequest | None = None,
) -> str | None:
    """Where the capture goes; None if it was dropped, which is noted for the row."""
    if capture.overflow is not None:
        exchange.troubles.add(capture.overflow)
        return None
    if files.failure is not None:
        exchange.troubles.add(files.failure)
    status, headers = capture.head or (None, ())
    sent = flow.request.raw_content or b""
    captured = CapturedExchange(
        id=exchange.opened.id,
        started_at=exchange.opened.opened_at,
        ended_at=at,
        end=end,
        cause=cause,
        usage_injected=exchange.opened.usage_injected,
        method=flow.request.method,
        url=flow.request.url,
        request_headers=tuple(flow.request.headers.items(multi=True)),
        request_body=sent,
        client_edit=Edit.between_bodies(sent, original.body or b"") if original else None,
        status=status,
        response_headers=headers,
        capture=capture,
    )
    path = exchange.troubles.attempt(files.write, captured)
    return f"{path}#{captured.id}" if path is not None else None
