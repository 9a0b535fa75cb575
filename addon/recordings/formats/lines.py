"""Edge (files). One exchange a line: our captures, and test corpora.

    {"name", "id", "started_at", "ended_at", "end", "cause", "usage_injected", "masked",
     "request":   {"method", "url", "headers": {}, "body" or "body_b64", "client"},
     "response":  {"status", "headers": {}, "body_b64", "encoded", "chunks": [[bytes, µs], ...]},
     "websocket": {"closed_by_client", "messages": [[side, kind, µs since the start, base64], ...]}}

`request.client` is what makes the client's own body of the sent one, if we asked for usage: the
bytes to keep at its start and at its end, and those between. Only `request` and `response` are
required. Corpora have no `id`, and `encoded` is false where the body was decoded when it was
recorded. `masked`: the answer repeated a credential, which is overwritten, so its bytes are not
those of upstream.

msgspec parses only the fields of these types: other content of a line takes no memory.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec

from addon.metering.attribution import REDACTED
from addon.metering.messages import End
from addon.recordings.formats.recorded import (
    Fields,
    Message,
    Recorded,
    RecordedEntry,
    RecordingError,
    RequestEdit,
    Unreadable,
    derived_id,
    header,
    known_moment,
    split_url,
    text_fields_of,
    without,
)

LINE_BYTES_MAX = 96 * 1024 * 1024
"""An exchange of 32 MiB, the bound of a capture, takes 43 MiB as base64."""
PIECE_BYTES = 256 * 1024
"""Looked through at a time."""
READ_BYTES = 1024 * 1024
"""Read at a time of a gzipped file."""
HEAD_BYTES = 1024
"""What is read of a long line at first: a capture's id stands there."""
_TOO_LONG = f"longer than {LINE_BYTES_MAX >> 20} MiB: remove the line"
_MEMBER_BEGINS = b"\x1f\x8b\x08"
_GZIP = 31
"""zlib's window bits for gzip members."""

LINES_WITHOUT_MAX = 20
"""Lines at the beginning of a file that are no exchanges, after which it is a file of another
kind."""
ID_LENGTH_MAX = 200
_COUNT_MAX = 2**53
"""Of bytes and of microseconds (285 years)."""

type _Count = Annotated[int, msgspec.Meta(ge=0, le=_COUNT_MAX)]
type _Header = str | int | float | bool | list[str] | None
type _Headers = dict[str, _Header] | list[tuple[str, _Header]] | None


class _LineRequest(msgspec.Struct):
    method: str
    url: str
    headers: _Headers = None
    body: msgspec.Raw = msgspec.Raw(b"null")
    body_b64: bytes | None = None
    client: tuple[_Count, _Count, bytes] | None = None


class _LineResponse(msgspec.Struct):
    body_b64: bytes
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None
    headers: _Headers = None
    encoded: bool | None = None
    chunks: list[tuple[_Count, _Count]] | None = None


class _WebSocket(msgspec.Struct):
    messages: list[tuple[Literal["client", "server"], Literal["text", "binary"], _Count, bytes]]
    closed_by_client: bool | None = None


class _Line(msgspec.Struct):
    request: _LineRequest
    response: _LineResponse
    name: str | int | None = None
    id: str | int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    end: str | None = None
    cause: str | None = None
    usage_injected: bool | None = None
    masked: bool | None = None
    websocket: _WebSocket | None = None


class _Id(msgspec.Struct):
    """The fields of a line that identify it in the ledger; all others are skipped."""

    id: str | int | None = None


_ID = msgspec.json.Decoder(_Id)
_CAPTURE_BEGINS = re.compile(rb'\{"name":"[^"\\]{1,200}","id":"([A-Za-z0-9_./-]{1,200})",')
"""The beginning of our captures: their id is known without parsing the megabytes after it."""
_DECODER = msgspec.json.Decoder(_Line)
_JSON_TEXT = msgspec.json.Decoder(str)
_ENDS = {end.value: end for end in End}


def entries(path: Path, *, part: int = 0, parts: int = 1) -> Iterator[RecordedEntry]:
    """The entries of a file; for a part of a file only every N-th line. Raises OSError."""
    written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    strange: list[RecordedEntry] | None = []
    """The first lines, until one of them is an exchange; None: one was."""
    is_damaged = False
    for number, read_bytes, line in lines_of(path):
        where = f"{path}:{number}"
        is_damaged = is_damaged or isinstance(line, str)
        if strange is not None and isinstance(line, Text):
            # A faulty line may be meant to be an exchange, too.
            is_capture = _CAPTURE_BEGINS.match(line.head) is not None
            text = b"" if is_capture else line.read()
            if is_capture or (b'"request"' in text and b'"response"' in text):
                yield from strange
                strange = None
        if strange is not None and not is_damaged and number > LINES_WITHOUT_MAX:
            break
        if number % parts != part:
            continue
        if isinstance(line, str):
            entry = RecordedEntry.of(Unreadable(where, line), read_bytes)
        else:
            named = None
            if (begins := _CAPTURE_BEGINS.match(line.head)) and strange is None:
                named = begins[1].decode("ascii")
            elif strange is None:
                # A fault of the line is reported when it is parsed.
                with suppress(msgspec.MsgspecError, UnicodeError, RecursionError, OSError):
                    stated = _ID.decode(line.read()).id
                    named = str(stated) if stated else None
            parse = partial(_exchange, line, where, written_at)
            entry = RecordedEntry(read_bytes, line.size, named, parse, where)
            if strange is not None:
                entry = RecordedEntry.of(entry.item(), read_bytes)
        if strange is None:
            yield entry
        elif len(strange) < LINES_WITHOUT_MAX:
            strange.append(entry)
    if strange is None:
        return
    if is_damaged:
        yield from strange
    elif part == 0 and path.stat().st_size:
        other = Unreadable(str(path), "holds no recorded exchanges", is_other_kind=True)
        yield RecordedEntry.of(other, path.stat().st_size)


def _exchange(text: Text, where: str, written_at: datetime) -> Recorded:
    line = _DECODER.decode(text.read())
    request, response = line.request, line.response
    origin, path = split_url(_unredacted(request.url))
    headers = _fields(response.headers)
    is_exact = bool(response.encoded) or not header(headers, b"content-encoding")
    is_exact = is_exact and not line.masked
    if not response.encoded:
        # The body was decoded before it was recorded, but the header still names the encoding.
        headers = without(headers, b"content-encoding")
    started_at = known_moment(line.started_at)
    opened_at = started_at or _date_of(headers) or written_at
    cuts = tuple(response.chunks or ())
    raw = bytes(request.body)
    body = b"" if raw == b"null" else raw
    if request.body_b64 is not None:
        body = request.body_b64
    elif raw.startswith(b'"'):
        body = _JSON_TEXT.decode(raw).encode()
    messages = _messages(line.websocket, opened_at)
    exchange_id = "" if line.id is None else str(line.id)
    if len(exchange_id) > ID_LENGTH_MAX:
        raise RecordingError(
            f"an id of {len(exchange_id)} characters: {ID_LENGTH_MAX} are the most"
        )
    has_own_id = bool(exchange_id)
    if not has_own_id:
        exchange_id = derived_id(
            method=request.method,
            origin=origin,
            path=path,
            request_body=body,
            response_body=response.body_b64,
            started_at=started_at,
            messages=messages or (),
        )
    # The times of the first and the last piece of the answer.
    try:
        responded_at = opened_at + timedelta(microseconds=cuts[0][1]) if cuts else None
        ended_at = opened_at + timedelta(microseconds=sum(us for _, us in cuts)) if cuts else None
    except OverflowError as error:
        raise RecordingError("chunks: the times add up to more than a clock can hold") from error
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
        client_body=RequestEdit(*request.client).of(body) if request.client is not None else None,
        opened_at=opened_at,
        status=response.status,
        response_headers=headers,
        redacted_request_headers=frozenset(
            [name.lower() for name, value in _pairs(request.headers) if value == REDACTED]
        ),
        response_body=response.body_b64,
        is_exact=is_exact,
        responded_at=responded_at,
        ended_at=known_moment(line.ended_at) or ended_at,
        end=_ENDS.get(line.end or "", End.FINISHED),
        is_end_certain=line.end in _ENDS,
        cause=line.cause,
        usage_injected=bool(line.usage_injected),
        # We wrote it: a line with our id, the answer as it came, and its chunks.
        is_llm=line.id is not None
        and bool(response.encoded or line.masked)
        and response.chunks is not None,
        messages=messages,
        cuts=cuts,
    )


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


def _fields(headers: _Headers) -> Fields:
    """The recorded headers; redacted ones are treated as not sent."""
    return text_fields_of(
        [
            (name, "" if one is None else str(one))
            for name, value in _pairs(headers)
            for one in (value if isinstance(value, list) else [value])
            if one != REDACTED
        ]
    )


def _pairs(headers: _Headers) -> Iterable[tuple[str, _Header]]:
    return headers.items() if isinstance(headers, dict) else headers or ()


def _unredacted(url: str) -> str:
    """The URL without the query parameters that were redacted."""
    if REDACTED not in url:
        return url
    path, mark, query = url.partition("?")
    kept = [pair for pair in query.split("&") if not pair.endswith(REDACTED)]
    return f"{path}{mark if kept else ''}{'&'.join(kept)}"


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


# The lines of a plain or gzipped file, one at a time and bounded.
#
# A capture file is many gzip members, one for each line. A damaged member loses only its own
# lines; reading continues at the next member. A line that is too long is skipped in pieces.


class OpenFile:
    """A file that is open for as long as one of its entries may still be read."""

    __slots__ = ("descriptor",)

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def __del__(self) -> None:
        # There is none if it could not be opened.
        if (descriptor := getattr(self, "descriptor", None)) is not None:
            os.close(descriptor)

    def read(self, start: int, size: int) -> bytes:
        """So many bytes from `start` on; fewer at the end of the file."""
        os.lseek(self.descriptor, start, os.SEEK_SET)
        return os.read(self.descriptor, size)


@dataclass(frozen=True, slots=True)
class Text:
    """A line without its end. A long line of a plain file is read when it is asked for: of one
    that the ledger has, nothing but the beginning is ever copied."""

    head: bytes
    size: int
    file: OpenFile | None = None
    """Where the rest stands; None: the head is all of it."""
    start: int = 0

    def read(self) -> bytes:
        """The whole line. Raises OSError."""
        return self.head if self.file is None else self.file.read(self.start, self.size)


type Line = tuple[int, int, Text | str]
"""Number from 1, bytes of the file read so far, and the line, or why it cannot be read."""


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file; empty ones are left out. Raises OSError."""
    number = 1
    line: Text | str | None
    if path.suffix != ".gz":
        # Nothing is copied of a line that does not lie in one piece.
        file = OpenFile(path)
        start = at = 0
        while piece := file.read(at, PIECE_BYTES):
            begin = 0
            while (end := piece.find(b"\n", begin)) >= 0:
                if start >= at:
                    line = _short(piece[begin:end])
                else:
                    line = _long(file, start, at + end - start)
                if line is not None:
                    yield number, at + end + 1, line
                number += 1
                begin = end + 1
                start = at + begin
            at += len(piece)
        if start < at and (line := _long(file, start, at - start)) is not None:
            yield number, at, line
        return
    begun = bytearray()
    is_too_long = False
    with path.open("rb", buffering=READ_BYTES) as gzipped:
        for inflated in _inflated(gzipped):
            if inflated is None:
                yield number, gzipped.tell(), "cut short: the gzip data is damaged here"
                number += 1
                begun.clear()
                is_too_long = False
                continue
            first, *others = inflated.split(b"\n")
            if not is_too_long:
                begun += first
                is_too_long = len(begun) > LINE_BYTES_MAX
                if is_too_long:
                    begun.clear()
            for other in others:
                if line := _TOO_LONG if is_too_long else _short(bytes(begun)):
                    yield number, gzipped.tell(), line
                number += 1
                begun = bytearray(other)
                is_too_long = False
        if line := _TOO_LONG if is_too_long else _short(bytes(begun)):
            yield number, gzipped.tell(), line


def _short(line: bytes) -> Text | str | None:
    if len(line) > LINE_BYTES_MAX:
        return _TOO_LONG
    return Text(line, len(line)) if line and not line.isspace() else None


def _long(file: OpenFile, start: int, size: int) -> Text | str | None:
    """A line that is not read yet; None if there is nothing in it."""
    if size > LINE_BYTES_MAX:
        return _TOO_LONG
    head = file.read(start, min(size, HEAD_BYTES))
    if size <= HEAD_BYTES:
        return _short(head)
    is_empty = head.isspace() and file.read(start, size).isspace()
    return None if is_empty else Text(head, size, file, start)


def _inflated(file: BinaryIO) -> Iterator[bytes | None]:
    """The content of all members; None for one that is damaged or cut short."""
    member = zlib.decompressobj(_GZIP)
    has_begun = False
    data = b""
    while data or (data := file.read(PIECE_BYTES)):
        if not has_begun:
            data = data.lstrip(b"\0")  # padding between members is allowed
            if not data.startswith(_MEMBER_BEGINS[: len(data)]):
                yield None
                data = _next_member(file, data)
            if not data:
                continue
        has_begun = True
        try:
            while True:
                out = member.decompress(data, PIECE_BYTES)
                if out:
                    yield out
                data = member.unconsumed_tail
                # zlib may hold more output than requested, with no input left.
                if member.eof or (not data and len(out) < PIECE_BYTES):
                    break
        except zlib.error:
            yield None
            member, has_begun = zlib.decompressobj(_GZIP), False
            data = _next_member(file, data[1:])
            continue
        if member.eof:
            data = member.unused_data
            member, has_begun = zlib.decompressobj(_GZIP), False
    if has_begun:
        yield None


def _next_member(file: BinaryIO, data: bytes) -> bytes:
    """The rest of the input from the next member's first byte; empty at the end of the file."""
    while True:
        at = data.find(_MEMBER_BEGINS)
        if at >= 0:
            return data[at:]
        more = file.read(PIECE_BYTES)
        if not more:
            return b""
        data = data[-2:] + more
