"""Edge. Saved mitmproxy flows -> the values that are metered."""

from __future__ import annotations

from datetime import UTC, datetime

from mitmproxy import http

from addon.metering import attribution
from addon.metering.messages import RecordedTimes, Request, Response, header_map


def request_of(flow: http.HTTPFlow) -> Request:
    """The request of a saved flow."""
    request = flow.request
    return Request(
        method=request.method,
        scheme=request.scheme,
        host=request.host,
        port=request.port,
        path=request.path,
        headers=header_map(request.headers.fields),
        tag_headers=tuple(request.headers.get_all(attribution.TAG_HEADER)),
        body=request.raw_content or b"",
        began_at=datetime.fromtimestamp(request.timestamp_start, UTC),
    )


def response_of(response: http.Response) -> Response:
    """Status and headers of a saved response."""
    return Response(status=response.status_code, headers=header_map(response.headers.fields))


def times_of(flow: http.HTTPFlow) -> RecordedTimes:
    """When a saved response passed."""
    response = flow.response
    return RecordedTimes(
        first_byte_at=_instant(response.timestamp_start if response else None),
        ended_at=_instant(response.timestamp_end if response else None),
    )


def _instant(timestamp: float | None) -> datetime | None:
    return datetime.fromtimestamp(timestamp, UTC) if timestamp else None
