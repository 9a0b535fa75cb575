"""Pure. A request, a response and the event that ended them as values, from any source.

One function each converts mitmproxy's flows, capture files and HAR entries to these values. The
code after it does not depend on the source.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from msgspec import Struct

TRANSPORT = "transport"
"""`error_type` of connection errors: a connection refused, reset or cut."""


class Body(Struct, frozen=True):
    """What is known of a body: all of it, its beginning, or nothing.

    `Body(b"")` is known to be empty. A body that passed unread is `NOT_KNOWN`: it may hold
    anything, so a text that could quote it is not kept, and it has no digest.
    """

    data: bytes
    is_whole: bool = True


NOT_KNOWN = Body(b"", is_whole=False)
_ENCODING = "content-encoding"
METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "CONNECT", "TRACE"})
"""Of a DELETE a body is allowed, and rare."""


def recorded_body(data: bytes, method: str) -> Body:
    """The body of a recorded request. A file that keeps no body of a POST has an empty one."""
    is_known = data or method in METHODS_WITHOUT_BODY or method == "DELETE"
    return Body(data) if is_known else NOT_KNOWN


class Request(Struct, frozen=True, kw_only=True):
    """One request as the client sent it."""

    method: str
    scheme: str
    host: str
    """The host that the client requested, lower case; an address only if no name is known."""
    address: str | None = None
    """The host that the proxy connected to, if it is not `host`."""
    port: int
    path: str
    """With the query."""
    headers: Mapping[str, str]
    """As `header_map` makes them."""
    redacted: frozenset[str] = frozenset()
    """Names of headers that were sent, and whose values a recording does not keep."""
    tag_headers: tuple[str, ...] = ()
    """All values of `x-tokentee-tag`."""
    body: Body
    """As on the wire: its content-encoding is not undone."""
    began_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Status and headers of one response; its body comes in pieces."""

    status: int
    headers: Mapping[str, str]
    """As `header_map` makes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTimes:
    """When a recorded response passed. None: the recording has no time."""

    first_byte_at: datetime | None = None
    ended_at: datetime | None = None


RECORDED_SPAN_MAX = timedelta(days=1)
"""Longest answer of a recording, whose times may be of a wall clock that was set meanwhile."""


def is_within(opened_at: datetime, at: datetime) -> bool:
    """Whether a recorded answer can have passed then: after its request, and not absurdly long."""
    return timedelta() < at - opened_at <= RECORDED_SPAN_MAX


class End(Enum):
    """The event that ended an exchange, as the proxy observed it."""

    FINISHED = "finished"
    """The body ended as its HTTP framing allows."""
    CLIENT_LEFT = "client_left"
    UPSTREAM_BROKE = "upstream_broke"
    """Reset, refused, cut inside a framed body, timed out."""
    STOPPED = "stopped"
    """The proxy ended it: shut down, or the flow was killed."""


def header_map(fields: Collection[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; of several with one name, the last, but of `content-encoding` the
    list that its lines are together (RFC 9110 §5.3).

    mitmproxy's own look-up iterates and decodes all headers each time, 5 µs per look-up.
    """
    found = {
        name.lower().decode("latin-1"): value.decode("utf-8", "surrogateescape")
        for name, value in fields
    }
    if len(found) < len(fields) and _ENCODING in found:
        found[_ENCODING] = ", ".join(
            value.decode("utf-8", "surrogateescape")
            for name, value in fields
            if name.lower() == _ENCODING.encode()
        )
    return found
