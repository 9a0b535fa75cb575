"""Edge (files). HAR, which browsers and mitmproxy export.

A HAR holds decoded bodies, as text or base64, and no id. So its exchanges get a derived id, and the
bytes that upstream sent stay unknown. mitmproxy can read HAR, too (`mitmdump -nr`), and gives new
random ids each time; `text_bytes` makes the same bytes from its flows as from the file, so that
both ways derive the same id.

An empty answer with a successful status means that the body was not saved: browsers omit bodies
that they have dropped.
"""

from __future__ import annotations

import mmap
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
from mitmproxy.net.http.headers import infer_content_encoding

from addon.framing import json_values
from addon.metering.requests.messages import End
from addon.recordings.formats.recorded import (
    Item,
    Message,
    Recorded,
    RecordedEntry,
    RecordingError,
    Skipped,
    Unreadable,
    Why,
    derived_id,
    header,
    known_moment,
    message_time,
    split_url,
    text_fields_of,
    without,
)

HAR_BYTES_MAX = 1024 * 1024 * 1024
"""The file is mapped into memory, not read."""
_MILLISECONDS_MAX = 10.0**12
_ENTRIES = (b'"log"', b'"entries"')
_JSON_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]:,]', re.DOTALL)
"""A string, or a sign of JSON's structure."""
_BOM = b"\xef\xbb\xbf"


class _Header(msgspec.Struct):
    name: str
    value: str


class _Body(msgspec.Struct):
    text: str | None = None
    encoding: str | None = None


class _HarRequest(msgspec.Struct):
    method: str
    url: str
    headers: list[_Header] = []
    post_data: _Body | None = msgspec.field(name="postData", default=None)


class _HarResponse(msgspec.Struct):
    status: int = 0
    headers: list[_Header] = []
    content: _Body | None = None
    error: str | None = msgspec.field(name="_error", default=None)


class _Message(msgspec.Struct):
    type: str
    time: float
    data: str
    opcode: int = 1


class _HarEntry(msgspec.Struct):
    request: _HarRequest
    response: _HarResponse
    started: str | None = msgspec.field(name="startedDateTime", default=None)
    time: float | None = None
    messages: list[_Message] | None = msgspec.field(name="_webSocketMessages", default=None)


class _HarLog(msgspec.Struct):
    entries: list[msgspec.Raw]


class _File(msgspec.Struct):
    log: _HarLog


_ENTRY_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError, RecordingError)
"""Errors of a damaged entry; base64 that is not ASCII raises a plain ValueError."""
_ENTRY = msgspec.json.Decoder(_HarEntry)
_FILE = msgspec.json.Decoder(_File)


def entries(path: Path, *, part: int = 0, parts: int = 1) -> Iterator[RecordedEntry]:
    """The entries of a file; for a part of a file only every N-th entry. Raises OSError."""
    size = path.stat().st_size
    if size > HAR_BYTES_MAX:
        yield RecordedEntry.of(
            Unreadable(str(path), f"larger than {HAR_BYTES_MAX >> 30} GiB: split it")
        )
        return
    if size == 0:
        yield RecordedEntry.of(Unreadable(str(path), "empty"))
        return
    with path.open("rb") as file:
        # Closed when the last entry is freed: each entry refers to a part of it.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    damage = None
    try:
        text = memoryview(data)
        if path.suffix == ".zhar":
            inflater = zlib.decompressobj()
            text = memoryview(inflater.decompress(text, HAR_BYTES_MAX))
            if not inflater.eof:
                raise RecordingError(f"cut short, or larger than {HAR_BYTES_MAX >> 30} GiB")
        text = text[len(_BOM) :] if text[:3] == _BOM else text
        try:
            found: Sequence[msgspec.Raw | memoryview] = _FILE.decode(text).log.entries
        except _ENTRY_FAULTS as error:
            found, is_whole = _split(text)
            if not found and not is_whole:
                raise
            if not is_whole:
                damage = f"cut short or damaged after entry {len(found)}: {error}"[:300]
    except (*_ENTRY_FAULTS, zlib.error) as error:
        if part == 0:
            yield RecordedEntry.of(Unreadable(str(path), f"no HAR file: {error}"[:300]))
        return
    for number, raw in enumerate(found, 1):
        if number % parts == part:
            where = f"{path}, entry {number}"
            held = memoryview(raw).nbytes
            yield RecordedEntry(
                size * number // len(found), held, None, partial(_read, raw, where), where
            )
    if damage is not None and part == 0:
        yield RecordedEntry.of(Unreadable(str(path), damage))


def _split(text: memoryview) -> tuple[list[memoryview], bool]:
    """The entries of a file that is not valid JSON as a whole, and whether their list has an end.

    msgspec refuses a whole file for one lone surrogate, one unknown escape, or one deep list. Here
    only strings, brackets and commas are read, so each entry is refused alone.
    """
    found: list[memoryview] = []
    names: dict[int, bytes] = {}
    depth = start = 0
    string = b""
    is_inside = False
    for token in _JSON_TOKEN.finditer(text):
        at, kind = token.start(), text[token.start()]
        if kind == 0x22:  # "
            string = token[0] if depth <= 2 and len(token[0]) < 32 else b""
        elif kind == 0x3A:  # :
            names[depth] = string
        elif kind == 0x2C:  # ,
            if is_inside and depth == 3:
                found.append(text[start:at])
                start = at + 1
        elif kind in b"{[":
            if depth == 2 and kind == 0x5B and (names.get(1), names.get(2)) == _ENTRIES:
                is_inside, start = True, at + 1
            depth += 1
        else:
            depth -= 1
            if is_inside and depth == 2:
                last = text[start:at]
                return found + [last] * bool(found or bytes(last).strip()), True
    return found, False


def _read(raw: msgspec.Raw | memoryview, where: str) -> Item:
    try:
        entry = _ENTRY.decode(raw)
    except msgspec.DecodeError:
        # A lone surrogate: mitmproxy exports header bytes that are no UTF-8 as such.
        value = json_values.loads(bytes(raw))
        if value is None:
            raise
        entry = msgspec.convert(value, _HarEntry)
    request, response = entry.request, entry.response
    if not 100 <= response.status <= 999:
        why = response.error or ""
        if not why:
            return Skipped(where, Why.NO_ANSWER)
        response.status = 0
    headers = text_fields_of((one.name, one.value) for one in response.headers)
    body = _bytes_of(response.content, header(headers, b"content-type"))
    is_session = entry.messages is not None
    if response.status == 101 and not is_session:
        return Skipped(where, Why.NO_MESSAGES)
    if not body and 200 <= response.status < 300 and not is_session:
        return Skipped(where, Why.NO_ANSWER if response.error else Why.NO_BODY)
    started_at = known_moment(entry.started)
    if started_at is None:
        raise RecordingError("startedDateTime is no time of the years 1970 to 9998")
    ended_at = None
    if entry.time is not None and 0 <= entry.time < _MILLISECONDS_MAX:
        with suppress(OverflowError):
            ended_at = started_at + timedelta(milliseconds=entry.time)
    origin, path = split_url(request.url)
    asked = text_fields_of((one.name, one.value) for one in request.headers)
    request_body = _bytes_of(request.post_data, header(asked, b"content-type"))
    messages = None if entry.messages is None else tuple(map(_message, entry.messages))
    exchange_id = derived_id(
        method=request.method,
        origin=origin,
        path=path,
        request_body=request_body,
        response_body=body,
        started_at=started_at,
    )
    return Recorded(
        name=exchange_id,
        where=where,
        id=exchange_id,
        has_own_id=False,
        method=request.method,
        origin=origin,
        path=path,
        request_headers=without(asked, b"content-encoding"),
        request_body=request_body,
        opened_at=started_at,
        status=response.status or None,
        response_headers=without(headers, b"content-encoding"),
        response_body=body,
        is_exact=False,
        ended_at=ended_at,
        end=End.UPSTREAM_BROKE if response.error or is_session else End.FINISHED,
        cause=response.error,
        messages=messages,
    )


def text_bytes(text: str, content_type: str) -> bytes:
    """The bytes of a body that a HAR holds as text.

    mitmproxy decodes an event stream without a charset as Latin-1, browsers as UTF-8. If the
    Latin-1 bytes of a text are valid UTF-8, mitmproxy decoded it.
    """
    if text.isascii():
        return text.encode()
    try:
        narrow = text.encode(infer_content_encoding(content_type))
        narrow.decode()
    except (UnicodeError, LookupError):
        return text.encode("utf-8", "surrogatepass")
    return narrow


def utf8(body: bytes) -> bytes:
    """The body of a flow that mitmproxy read from a HAR, with the bytes that `text_bytes` gives.

    mitmproxy encodes a browser's text as Latin-1 if it can.
    """
    try:
        body.decode()
    except UnicodeDecodeError:
        return body.decode("latin-1").encode()
    return body


def _bytes_of(body: _Body | None, content_type: str) -> bytes:
    if body is None or not body.text:
        return b""
    if body.encoding == "base64":
        return b64decode(body.text, validate=True)
    return text_bytes(body.text, content_type)


def _message(one: _Message) -> Message:
    is_text = one.opcode != 2
    content = one.data.encode() if is_text else b64decode(one.data, validate=True)
    at = message_time(one.time)
    return Message(from_client=one.type == "send", is_text=is_text, content=content, at=at)
