"""Edge (files). One exchange a line: our captures of every version, and test corpora.

    {"name", "id", "started_at", "ended_at", "end", "cause", "usage_injected",
     "request":   {"method", "url", "headers": {}, "body" or "body_b64"},
     "response":  {"status", "headers": {}, "body_b64", "encoded", "chunks": [[bytes, µs], ...]},
     "websocket": {"closed_by_client", "messages": [[side, kind, µs since the start, base64], ...]}}

Only `request` and `response` are required. Captures of version 0.1 have no `ended_at`, `end`,
`cause`, `usage_injected` and `websocket`; corpora have no `id`, and `encoded` is false where the
body was decoded when it was recorded.

msgspec parses only the fields of these types: other content of a line takes no memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from addon.metering.ends import End
from addon.metering.requests.redaction import REDACTED
from addon.recordings.formats import identity
from addon.recordings.formats.line_files import Text, lines_of
from addon.recordings.formats.recorded import (
    Entry,
    Fields,
    Item,
    Message,
    Recorded,
    RecordingError,
    Unreadable,
    header,
    known_moment,
    split_url,
    text_fields_of,
    without,
)

ID_LENGTH_MAX = 200
_COUNT_MAX = 2**53
"""Of bytes and of microseconds (285 years)."""

type _Count = Annotated[int, msgspec.Meta(ge=0, le=_COUNT_MAX)]
type _Header = str | int | float | bool | list[str] | None


class _Request(msgspec.Struct):
    method: str
    url: str
    headers: dict[str, _Header] | None = None
    body: msgspec.Raw = msgspec.Raw(b"null")
    body_b64: bytes | None = None


class _Response(msgspec.Struct):
    body_b64: bytes
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None
    headers: dict[str, _Header] | None = None
    encoded: bool | None = None
    chunks: list[tuple[_Count, _Count]] | None = None


class _WebSocket(msgspec.Struct):
    messages: list[tuple[Literal["client", "server"], Literal["text", "binary"], _Count, bytes]]
    closed_by_client: bool | None = None


class _Line(msgspec.Struct):
    request: _Request
    response: _Response
    name: str | int | None = None
    id: str | int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    end: str | None = None
    cause: str | None = None
    usage_injected: bool | None = None
    websocket: _WebSocket | None = None


class _Id(msgspec.Struct):
    """The fields of a line that identify it in the ledger; all others are skipped."""

    id: str | int | None = None


_ID = msgspec.json.Decoder(_Id)
_CAPTURE_BEGINS = re.compile(rb'\{"name":"[^"\\]{1,200}","id":"([A-Za-z0-9_./-]{1,200})",')
"""The beginning of our captures: their id is known without parsing the megabytes after it."""
_DECODER = msgspec.json.Decoder(_Line)
_TEXT = msgspec.json.Decoder(str)
_ENDS = {end.value: end for end in End}


def entries(path: Path, *, part: int = 0, parts: int = 1) -> Iterator[Entry]:
    """The entries of a file; for a part of a file only every N-th line. Raises OSError."""
    written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    for number, read_bytes, line in lines_of(path):
        where = f"{path}:{number}"
        if number == 1 and isinstance(line, Text) and not _is_exchange(line):
            if part == 0:
                other = Unreadable(str(path), "holds no recorded exchanges", is_other_kind=True)
                yield Entry(read_bytes, 0, None, partial(_unreadable, other))
            return
        if number % parts != part:
            continue
        if isinstance(line, str):
            yield Entry(read_bytes, 0, None, partial(_unreadable, Unreadable(where, line)))
        else:
            parse = partial(_read, line, where, written_at)
            yield Entry(read_bytes, line.size, _id_of(line), parse)


def _unreadable(item: Unreadable) -> Item:
    return item


def _id_of(line: Text) -> str | None:
    if begins := _CAPTURE_BEGINS.match(line.head):
        return begins[1].decode("ascii")
    try:
        found = _ID.decode(line.read()).id
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OSError):
        return None  # its fault is reported when it is parsed
    return str(found) if found else None


def _read(line: Text, where: str, written_at: datetime) -> Item:
    try:
        return _exchange(_DECODER.decode(line.read()), where, written_at)
    except OSError as error:
        return Unreadable(where, f"cannot be read: {error.strerror or error}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError, RecordingError) as error:
        return Unreadable(where, f"not a recorded exchange: {error}"[:300])


def _is_exchange(line: Text) -> bool:
    """Whether a faulty line was meant to be an exchange."""
    if _CAPTURE_BEGINS.match(line.head):
        return True
    text = line.read()
    return b'"request"' in text and b'"response"' in text


def _exchange(line: _Line, where: str, written_at: datetime) -> Recorded:
    request, response = line.request, line.response
    origin, path = split_url(_unredacted(request.url))
    headers = _fields(response.headers)
    is_exact = bool(response.encoded) or not header(headers, b"content-encoding")
    if not response.encoded:
        # The body was decoded before it was recorded, but the header still names the encoding.
        headers = without(headers, b"content-encoding")
    started_at = known_moment(line.started_at)
    opened_at = started_at or _date_of(headers) or written_at
    cuts = tuple(response.chunks or ())
    body = _request_body(request)
    messages = _messages(line.websocket, opened_at)
    exchange_id = "" if line.id is None else str(line.id)
    if len(exchange_id) > ID_LENGTH_MAX:
        raise RecordingError(
            f"an id of {len(exchange_id)} characters: {ID_LENGTH_MAX} are the most"
        )
    has_own_id = bool(exchange_id)
    if not has_own_id:
        exchange_id = identity.derived_id(
            method=request.method,
            origin=origin,
            path=path,
            request_body=body,
            response_body=response.body_b64,
            started_at=started_at,
            messages=messages or (),
        )
    responded_at, ended_at = _times(opened_at, cuts)
    return Recorded(
        name=str(line.name or exchange_id),
        where=where,
        id=exchange_id,
        has_own_id=has_own_id,
        method=request.method,
        origin=origin,
        path=path,
        request_headers=_fields(request.headers),
        request_body=body,
        opened_at=opened_at,
        status=response.status,
        response_headers=headers,
        redacted_headers=_redacted(response.headers),
        response_body=response.body_b64,
        is_exact=is_exact,
        responded_at=responded_at,
        ended_at=known_moment(line.ended_at) or ended_at,
        end=_ENDS.get(line.end or "", End.FINISHED),
        is_end_certain=line.end in _ENDS,
        cause=line.cause,
        usage_injected=bool(line.usage_injected),
        messages=messages,
        cuts=cuts,
    )


def _times(
    opened_at: datetime, cuts: tuple[tuple[int, int], ...]
) -> tuple[datetime | None, datetime | None]:
    """The times of the first and the last piece of the answer; None if not recorded."""
    if not cuts:
        return None, None
    try:
        first = opened_at + timedelta(microseconds=cuts[0][1])
        return first, opened_at + timedelta(microseconds=sum([wait for _, wait in cuts]))
    except OverflowError as error:
        raise RecordingError("chunks: the times add up to more than a clock can hold") from error


def _messages(websocket: _WebSocket | None, opened_at: datetime) -> tuple[Message, ...] | None:
    if websocket is None:
        return None
    try:
        return tuple(
            Message(
                from_client=side == "client",
                is_text=kind == "text",
                content=content,
                at=opened_at + timedelta(microseconds=after),
            )
            for side, kind, after, content in websocket.messages
        )
    except OverflowError as error:
        raise RecordingError("websocket: a time is more than a clock can hold") from error


def _fields(headers: Mapping[str, _Header] | None) -> Fields:
    """The recorded headers; redacted ones are treated as not sent."""
    return text_fields_of(
        [
            (name, "" if one is None else str(one))
            for name, value in (headers or {}).items()
            for one in (value if isinstance(value, list) else [value])
            if one != REDACTED
        ]
    )


def _redacted(headers: Mapping[str, _Header] | None) -> frozenset[str]:
    return frozenset(name.lower() for name, value in (headers or {}).items() if value == REDACTED)


def _unredacted(url: str) -> str:
    """The URL without the query parameters that were redacted."""
    if REDACTED not in url:
        return url
    path, mark, query = url.partition("?")
    kept = [pair for pair in query.split("&") if not pair.endswith(REDACTED)]
    return f"{path}{mark if kept else ''}{'&'.join(kept)}"


def _request_body(request: _Request) -> bytes:
    if request.body_b64 is not None:
        return request.body_b64
    raw = bytes(request.body)
    if raw == b"null":
        return b""
    return _TEXT.decode(raw).encode() if raw.startswith(b'"') else raw


def _date_of(headers: Fields) -> datetime | None:
    text = header(headers, b"date")
    if not text:
        return None
    # Only lines without their start need it.
    from email.utils import parsedate_to_datetime

    try:
        return known_moment(parsedate_to_datetime(text).isoformat())
    except (ValueError, OverflowError):
        return None
