"""Edge. Captures of live flows: collects the bytes of an exchange, and queues them at its end."""

from __future__ import annotations

from datetime import datetime

from addon.metering.messages import End
from addon.proxy.live import Live
from addon.recordings.capture import Capture, CapturedExchange, CaptureFiles
from addon.recordings.formats.recorded import RequestEdit


def begin(files: CaptureFiles, live: Live) -> Capture | None:
    """The capture of an exchange that begins; None of one that is recorded already."""
    if live.is_recorded:
        return None
    capture = files.begin(request_bytes=len(live.flow.request.raw_content or b""))
    if (response := live.flow.response) is not None:
        # Before we take a content-encoding out of the head that the client gets.
        capture.head = response.status_code, tuple(response.headers.items(multi=True))
    return capture


def discard(live: Live) -> None:
    """Keep nothing of an exchange that gets no row, or whose request is sent again."""
    if live.capture is not None:
        live.capture.drop("not kept")
        live.capture = None


def finish(
    files: CaptureFiles, live: Live, *, end: End, cause: str | None, at: datetime
) -> str | None:
    """Queue the capture of an exchange that has ended, or of a WebSocket; where it goes. None if it
    was dropped, which is noted for the row."""
    sent, opened, original = live.flow.request.raw_content or b"", live.opened, live.original
    # A request that failed before any response headers has no tap, and no capture yet.
    capture = live.capture or files.begin(request_bytes=len(sent))
    if capture.overflow is not None:
        live.troubles.add(capture.overflow)
        return None
    if files.failure is not None:
        live.troubles.add(files.failure)
    status, headers = capture.head or (None, ())
    request = live.flow.request
    captured = CapturedExchange(
        id=opened.id,
        started_at=opened.opened_at,
        ended_at=at,
        end=end,
        cause=cause,
        usage_injected=opened.usage_injected,
        method=request.method,
        url=request.url,
        request_headers=tuple(request.headers.items(multi=True)),
        request_body=sent,
        client_edit=RequestEdit.between_bodies(sent, original.body or b"") if original else None,
        status=status,
        response_headers=headers,
        capture=capture,
    )
    return f"{files.write(captured)}#{captured.id}"
