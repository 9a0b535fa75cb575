"""Edge. Live flows of mitmproxy -> the values that are metered.

A flow that mitmproxy reads from a file (`mitmdump -nr`) comes this way too.
"""

from __future__ import annotations

from datetime import UTC, datetime

from mitmproxy import http

from addon.metering import attribution
from addon.metering.messages import Request
from addon.recordings import flows as saved


def request_of(flow: http.HTTPFlow) -> Request:
    """The request as the client sent it."""
    return saved.request_of(flow)


def remove_own_headers(request: http.Request) -> None:
    """Take `x-tokentee-…` out of a request: they are for us, not for upstream."""
    for name in (attribution.TAG_HEADER, attribution.SESSION_HEADER):
        if name in request.headers:
            del request.headers[name]


def now() -> datetime:
    """The time, UTC and aware."""
    return datetime.now(UTC)
