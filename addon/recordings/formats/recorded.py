"""Pure. One recorded exchange as a value, and the reasons why an entry is not one.

A `Recorded` from any kind of file has passed the same checks: its URL names a host, its headers can
be sent over HTTP/1.1, its times are within the years that every database and clock can hold.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import MsgspecError, Struct

from addon.metering.messages import End
from ledger.model.door import YEAR_MIN
from ledger.model.exchange import DEFAULT_PORTS

YEAR_MAX = 9998
"""A time zone may turn the year 9999 into 10000."""
_DERIVED_ID_LENGTH = 32
_SCHEMES = {"ws": "http", "wss": "https"}
_NOT_IN_A_HOST = re.compile(r"[^A-Za-z0-9.:\[\]_-]")
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_A_VALUE = re.compile(rb"[\r\n\0]+[ \t]*")
_NOT_IN_A_PATH = re.compile(r"[\x00-\x20\x7f]")

type Fields = tuple[tuple[bytes, bytes], ...]
"""Headers in their order, as they were on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One whole message of a WebSocket."""

    from_client: bool
    is_text: bool
    content: bytes
    at: datetime


class RequestEdit(NamedTuple):
    """What turns a body into another one: the bytes to keep at its start and at its end, and the
    bytes to put between them."""

    start: int
    end: int
    between: bytes

    @classmethod
    def between_bodies(cls, sent: bytes, client: bytes) -> RequestEdit:
        """What turns the body that was sent into the client's."""
        most = min(len(sent), len(client))
        start = bisect(range(1, most + 1), 0, key=lambda size: sent[:size] != client[:size])
        most -= start
        end = bisect(range(1, most + 1), 0, key=lambda size: sent[-size:] != client[-size:])
        return cls(start, end, client[start : len(client) - end])

    def of(self, body: bytes) -> bytes:
        """The other body. Raises ValueError if this one is too short."""
        if self.start + self.end > len(body):
            raise ValueError("the client's body keeps more than was sent")
        return body[: self.start] + self.between + body[len(body) - self.end :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The upstream of a request."""

    scheme: str
    """`http` or `https`."""
    host: str
    port: int


class Recorded(Struct, frozen=True, kw_only=True):
    """One recorded exchange. Times are UTC."""

    name: str
    """The exchange's name in the file; the row's `capture` ends in it."""
    where: str
    """File and line, for messages."""
    id: str
    has_own_id: bool = True
    """False: the id was derived from what was recorded (`derived_id`)."""
    method: str
    origin: Origin
    path: str
    """With its query."""
    request_headers: Fields = ()
    redacted_request_headers: frozenset[str] = frozenset()
    """Request headers that were sent but whose values were not recorded, in lower case."""
    request_body: bytes = b""
    """As it went upstream."""
    client_body: bytes | None = None
    """The client's own, where we asked for usage in it; None: not recorded."""
    opened_at: datetime
    status: int | None = None
    """None: there was no answer."""
    response_headers: Fields = ()
    response_body: bytes = b""
    is_exact: bool = True
    """The body has the bytes that upstream sent. False: it was decoded before it was recorded."""
    lacks_body: bool = False
    """The answer broke off, and what had come of its body was not recorded."""
    responded_at: datetime | None = None
    ended_at: datetime | None = None
    end: End = End.FINISHED
    is_end_certain: bool = False
    """`end` was recorded, and not inferred from the end of the recording."""
    cause: str | None = None
    """The cause of an early end, in words."""
    usage_injected: bool = False
    """We injected the request for usage; the client did not ask."""
    messages: tuple[Message, ...] | None = None
    """Messages of a WebSocket; None: not a WebSocket."""
    is_llm: bool = False
    """Our own capture, of an exchange that had a row: also of a host that the operator named.
    Any other file may hold any traffic, and an LLM call in it is confirmed as in live traffic."""
    cuts: tuple[tuple[int, int], ...] = ()
    """The chunks of the answer: lengths, and microseconds since the chunk before. Empty: not
    known."""

    @property
    def is_session(self) -> bool:
        """Whether this is an accepted WebSocket: the ledger has rows for its responses, not for
        the session."""
        return self.messages is not None and self.status == 101


class Why(Enum):
    """Why an exchange in a file is not read."""

    NO_BODY = "recorded without the body of its answer"
    NO_ANSWER = "still open when it was saved"
    NOT_HTTP = "not HTTP (TCP, UDP or DNS)"
    NO_MESSAGES = "WebSockets recorded without their messages"


@dataclass(frozen=True, slots=True)
class Skipped:
    """An exchange that the file does not hold completely enough to read it."""

    where: str
    why: Why


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry of a file that is not an exchange, with the reason."""

    where: str
    why: str
    is_other_kind: bool = False
    """A file of the same name pattern that holds no recordings at all."""


type Item = Recorded | Skipped | Unreadable


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """One entry of a file before it is parsed: entries that the ledger has are never parsed."""

    read_bytes: int
    """Bytes of the file up to this entry's end."""
    size: int
    """Bytes that are held until the entry is parsed."""
    id: str | None
    """The exchange's own id; None if it has none, or if finding it needs parsing."""
    parse: Callable[[], Item]
    """Call `item` instead, which never raises."""
    where: str = ""
    """File and place in it, for messages."""

    @classmethod
    def of(cls, item: Item, read_bytes: int = 0) -> RecordedEntry:
        """The entry of what is parsed already."""
        return cls(read_bytes, 0, None, lambda: item, item.where)

    def item(self) -> Item:
        """The entry, parsed. A fault costs this entry alone."""
        try:
            return self.parse()
        except OSError as error:
            why = f"cannot be read: {error.strerror or error}"
        except (MsgspecError, ValueError, RecursionError) as error:
            why = f"not a recorded exchange: {error}"[:300]
        except Exception as error:  # noqa: BLE001  # one entry must not end the reading of all
            why = f"not a recorded exchange ({type(error).__name__})"
        return Unreadable(self.where, why)


class RecordingError(ValueError):
    """A recorded exchange that cannot be read; the text says why."""


def known_time(seconds: float | None) -> datetime | None:
    """Seconds since 1970 as a time; None if it is outside of the years 1970 to 9998."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return None
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return at if at.year <= YEAR_MAX else None


def message_time(seconds: float | None) -> datetime:
    """When a message of a WebSocket passed. Raises RecordingError."""
    if (at := known_time(seconds)) is None:
        raise RecordingError("a WebSocket message has no time of the years 1970 to 9998")
    return at


def known_moment(text: str | None) -> datetime | None:
    """An ISO 8601 text as a time in UTC; None if it is outside of the years 1970 to 9998.

    Go's zero time is the year 1: such a start was not recorded.
    """
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at if YEAR_MIN <= at.year <= YEAR_MAX else None


def fields_of(pairs: Iterable[tuple[bytes, bytes]]) -> Fields:
    """Headers that can be sent over HTTP/1.1.

    Recordings hold values with line breaks, from clients that fold long ones; a line break is read
    as a blank, as RFC 9112 (5.2) requires. Headers without a valid name are left out, also HTTP/2's
    own (`:status`), which browsers export.
    """
    return tuple(
        [
            (name, _NOT_IN_A_VALUE.sub(b" ", value) if _NOT_IN_A_VALUE.search(value) else value)
            for name, value in pairs
            if _HEADER_NAME.fullmatch(name)
        ]
    )


def text_fields_of(pairs: Iterable[tuple[str, str]]) -> Fields:
    """As `fields_of`, for headers as text."""
    return fields_of(
        [
            (name.strip().encode("latin-1", "replace"), value.encode("utf-8", "replace"))
            for name, value in pairs
        ]
    )


def header(fields: Fields, name: bytes) -> str:
    """The first value of a header, empty if there is none. `name` is in lower case."""
    for key, value in fields:
        if key.lower() == name:
            return value.decode("utf-8", "replace")
    return ""


def without(fields: Fields, name: bytes) -> Fields:
    """The headers without those of a name, which is in lower case."""
    return tuple(field for field in fields if field[0].lower() != name)


def split_url(url: str) -> tuple[Origin, str]:
    """The origin and the path of a URL. Raises RecordingError.

    Test corpora mask hosts (`<API_BASE>/chat`, `x.<REGION>.example`): characters that a host must
    not contain are left out, and without a host the origin is `masked.invalid`.
    """
    url = url.partition("#")[0]
    if "://" not in url:
        url = f"https://{url.lstrip('/')}"
    scheme, _, rest = url.partition("://")
    authority = rest.partition("/")[0].partition("?")[0]
    path = rest[len(authority) :]
    path = path if path.startswith("/") else f"/{path}"
    scheme = scheme.lower()
    if scheme not in DEFAULT_PORTS:
        raise RecordingError(f"{scheme[:20]!r} is not http, https, ws or wss")
    host = _NOT_IN_A_HOST.sub("", authority.rpartition("@")[2]) or "masked.invalid"
    try:
        parts = urlsplit(f"//{host}")
        port = parts.port or DEFAULT_PORTS[scheme]
    except ValueError as error:
        raise RecordingError(f"the URL's host is unusable: {error}") from error
    name = parts.hostname or "masked.invalid"
    origin = Origin(scheme=_SCHEMES.get(scheme, scheme), host=name, port=port)
    return origin, _NOT_IN_A_PATH.sub(lambda found: f"%{ord(found[0]):02X}", path)


def derived_id(
    *,
    method: str,
    origin: Origin,
    path: str,
    request_body: bytes,
    response_body: bytes,
    started_at: datetime | None,
    messages: Iterable[Message] = (),
) -> str:
    """The id of an exchange that was recorded without one: 32 hex digits.

    The same material gets the same id at every reading, and two requests that got the same answer
    get two. `started_at` is the start in the recording; None if there is none.
    """
    digest = hashlib.sha256()
    start = b"" if started_at is None else started_at.isoformat(timespec="microseconds").encode()
    where = f"{method} {origin.scheme}://{origin.host}:{origin.port}{path}"
    for part in (where.encode("utf-8", "surrogateescape"), request_body, response_body, start):
        # The length separates the parts: without it, bytes could move from one to the next.
        digest.update(b"%d:" % len(part))
        digest.update(part)
    for message in messages:
        side = b">" if message.from_client else b"<"
        digest.update(b"%d%b" % (len(message.content), side))
        digest.update(message.content)
    return digest.hexdigest()[:_DERIVED_ID_LENGTH]
