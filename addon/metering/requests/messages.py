"""Pure. A request and a response as values, whatever they came from.

mitmproxy's flows, capture files and HAR entries become these at one place each; behind it nothing
depends on where an exchange came from.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as the client sent it."""

    method: str
    scheme: str
    host: str
    """The host that the client meant, lower case; an address only where no name is known."""
    address: str | None = None
    """The host that the proxy connected to, where it is not `host`."""
    port: int
    path: str
    """With the query."""
    headers: Mapping[str, str]
    """By lower-case name; of several with one name, the last."""
    tag_headers: tuple[str, ...] = ()
    """All values of `x-tokentee-tag`."""
    body: bytes
    """As on the wire: its content-encoding is not undone."""
    began_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Status and headers of one response; its body comes in pieces."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name; of several with one name, the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTimes:
    """When a recorded response passed. None: the recording does not tell."""

    first_byte_at: datetime | None = None
    ended_at: datetime | None = None


def header_map(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name, the last of several.

    mitmproxy's own look-up walks and decodes all headers each time, 5 µs apiece.
    """
    return {
        name.lower().decode("latin-1"): value.decode("utf-8", "surrogateescape")
        for name, value in fields
    }
