"""Edge (files). Flow files, which mitmproxy saves with `-w`, `save.file` and in its own windows.

A file is a sequence of tnetstrings. mitmproxy's own reader stops at the first damaged record,
trusts a length before it knows that the file is that long, and takes 0.4 ms for the connections of
a flow, which we do not need. So this module scans the records and parses only the needed fields.
Records of an older mitmproxy go through its migration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from addon.metering.requests.messages import End
from addon.recordings.formats.lines import OpenFile
from addon.recordings.formats.recorded import (
    Item,
    Message,
    Origin,
    Recorded,
    RecordedEntry,
    RecordingError,
    Skipped,
    Unreadable,
    Why,
    fields_of,
    known_time,
    message_time,
    split_url,
)

RECORD_BYTES_MAX = 512 * 1024 * 1024
"""Size of one flow; its bodies are in memory while it is read."""
FLOW_VERSION = 21
"""The flow format of mitmproxy 12, which is read without mitmproxy's code."""
RECORD_DEPTH_MAX = 32
"""Nesting of values; mitmproxy's own records have 6 levels."""
_LENGTH_DIGITS_MAX = 12
_BEGINS_MEMBER = re.compile(rb"([0-9]{1,3}):([a-z_]{1,40});([0-9]{1,12}):")
"""The name of a member as text, and the length of its value."""
_TAIL = re.compile(
    rb"2:id;([0-9]{1,3}):([A-Za-z0-9_./-]{1,200});4:type;4:http;7:version;2:%d#\}" % FLOW_VERSION
)
"""The end of a record as mitmproxy writes it. The id stands there, so of a flow that the ledger has
nothing else is read."""
TAIL_BYTES = 256
"""Read of a record at first; its end matches within this."""
_RECORD_ENDS = re.compile(rb"7:version;[12]:[0-9]{1,2}#\}")
_TAGS = frozenset([bytes((tag,)) for tag in b",;#^!~]}"])
SEARCH_BYTES = 1024 * 1024
"""Searched at a time for the end of a damaged record."""
BUFFER_BYTES = 64 * 1024
"""Read of the file at once, where short records follow each other."""
_PAST_ITS_END = "a length in its record reaches past its end"
_NEEDED = frozenset({"version", "type", "id", "error", "request", "response", "websocket"})
_KILLED = "Connection killed."
"""mitmproxy's text for a flow that was killed (`mitmproxy.flow.Error.KILLED_MESSAGE`)."""
_CLIENT_LEFT = "Client disconnected."
"""mitmproxy's text for a client that closed its connection."""

_RECORD_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors of a record whose values are of other types."""

type _Value = Any
"""A value of a tnetstring: text, bytes, numbers, lists and dicts of these."""

type _Members = dict[str, tuple[int, int]]
"""The start and the end of the content of each member of a record, by name."""


def entries(path: Path, *, part: int = 0, parts: int = 1) -> Iterator[RecordedEntry]:
    """The entries of a file; for a part of a file only every N-th record. Raises OSError."""
    size = path.stat().st_size
    number = at = 0
    # The same file for the records that are parsed: each is read when it is asked for.
    records = OpenFile(path)
    with path.open("rb", buffering=BUFFER_BYTES) as file:
        while at < size:
            number += 1
            where = f"{path}, flow {number}"
            try:
                start, length = _next_record(file, at, size)
            except RecordingError as error:
                # The end of the record is not known. The next one begins behind the end of any.
                at = _after_any_record(file, at, size)
                if number % parts == part:
                    yield RecordedEntry.of(Unreadable(where, str(error)), at)
                continue
            at = end = start + length + 1
            if number % parts != part:
                continue
            file.seek(max(start, end - TAIL_BYTES))
            found = _id_at_end_of(file.read(end - file.tell()))
            if found is None:
                # A record with another end: the id may be anywhere in it. A fault of it is reported
                # when it is parsed.
                with suppress(OSError, RecordingError, ValueError, RecursionError):
                    record = _record(records, start, length)
                    members = _members(record)
                    value = _content(record, *members["id"], 1) if "id" in members else None
                    found = value if isinstance(value, str) else None
            parse = partial(_item_at, records, start, length, where)
            yield RecordedEntry(end, length, found, parse, where)


def _next_record(file: BinaryIO, at: int, size: int) -> tuple[int, int]:
    """Start and length of the content of the record at `at`, whose tag is there."""
    file.seek(at)
    digits = b""
    while (char := file.read(1)) != b":" or not digits:
        if not char:
            raise RecordingError("cut short")
        if not char.isdigit() or len(digits) >= _LENGTH_DIGITS_MAX:
            raise RecordingError("no flow file of mitmproxy, or damaged from here on")
        digits += char
    length, start = int(digits), file.tell()
    if length >= size - start:
        raise RecordingError("cut short, or no flow file of mitmproxy: restore the file")
    if length > RECORD_BYTES_MAX:
        raise RecordingError(f"a flow of {length} bytes: {RECORD_BYTES_MAX} are the most")
    file.seek(start + max(0, length + 1 - TAIL_BYTES))
    content = file.read(min(length + 1, TAIL_BYTES))
    follows = file.read(1)
    is_tag = content[-1:] in _TAGS and (follows.isdigit() or not follows)
    if not is_tag and _id_at_end_of(content) is None:
        raise RecordingError("no flow file of mitmproxy, or damaged: a length in it is wrong")
    return start, length


def _after_any_record(file: BinaryIO, at: int, size: int) -> int:
    """Where the next record begins, after a damaged one at `at`; the file's end if there is none.

    mitmproxy writes the members of a record in the order of their names, so that all records end
    in their version.
    """
    while at < size:
        file.seek(at)
        piece = file.read(SEARCH_BYTES)
        for found in _RECORD_ENDS.finditer(piece):
            try:
                if at + found.end() < size:
                    _next_record(file, at + found.end(), size)
                return at + found.end()
            except RecordingError:
                continue
        at += max(1, len(piece) - TAIL_BYTES) if at + len(piece) < size else len(piece)
    return size


def _id_at_end_of(tail: bytes) -> str | None:
    """The id of a flow whose record ends as mitmproxy writes it."""
    at = tail.rfind(b"2:id;")
    found = _TAIL.fullmatch(tail, at) if at >= 0 else None
    return found[2].decode() if found and int(found[1]) == len(found[2]) else None


def _record(file: OpenFile, start: int, length: int) -> bytes:
    """A record with its tag. Raises OSError; RecordingError if the file has become shorter."""
    record = file.read(start, length + 1)
    if len(record) <= length:
        raise RecordingError("cut short")
    return record


def end_of_error(message: str) -> End:
    """Which side ended a flow, by mitmproxy's error text."""
    if message == _KILLED:
        return End.STOPPED
    return End.CLIENT_LEFT if message == _CLIENT_LEFT else End.UPSTREAM_BROKE


def _item_at(file: OpenFile, start: int, length: int, where: str) -> Item:
    try:
        record = _record(file, start, length)
        spans = _members(record)
        state: Mapping[str, _Value] = {
            name: _content(record, *span, 1) for name, span in spans.items() if name in _NEEDED
        }
        if state.get("version") != FLOW_VERSION:
            # Half a second of imports, which current files do not need.
            from mitmproxy.io import compat

            older: dict[bytes | str, Any] = {
                name: _content(record, *span, 1) for name, span in spans.items()
            }
            state = {str(name): value for name, value in compat.migrate_flow(older).items()}
        if state.get("type") != "http":
            return Skipped(where, Why.NOT_HTTP)
        return _exchange(state, where)
    except RecordingError as error:
        return Unreadable(where, f"not a flow: {error}")
    except _RECORD_FAULTS as error:
        return Unreadable(where, f"not a flow of mitmproxy 12 or older ({type(error).__name__})")


def _exchange(state: Mapping[str, _Value], where: str) -> Item:
    request, response, error = state["request"], state["response"], state["error"]
    message = str(error["msg"]) if error else ""
    if response is None and error is None:
        return Skipped(where, Why.NO_ANSWER)
    websocket = state["websocket"]
    lacks_body = response is not None and response["content"] is None and websocket is None
    if lacks_body and error is None:
        return Skipped(where, Why.NO_BODY)
    if response is not None and response["status_code"] == 101 and websocket is None:
        return Skipped(where, Why.NO_MESSAGES)
    opened_at = known_time(_seconds(request["timestamp_start"]))
    if opened_at is None:
        raise RecordingError("its start is no time of the years 1970 to 9998")
    scheme = request["scheme"].decode("ascii")
    host, port = str(request["host"]), int(request["port"])
    target = request["path"].decode("utf-8", "surrogateescape")
    _, path = split_url(f"https://h{target if target.startswith('/') else '/'}")
    end = end_of_error(message) if message else End.FINISHED
    messages = None
    if websocket is not None:
        end = End.CLIENT_LEFT if websocket["closed_by_client"] else End.UPSTREAM_BROKE
        messages = tuple(
            Message(
                from_client=bool(from_client),
                is_text=opcode == 1,
                content=_data(content),
                at=message_time(_seconds(seconds)),
            )
            for opcode, from_client, content, seconds, *_ in websocket["messages"]
        )
    return Recorded(
        name=str(state["id"]),
        where=where,
        id=str(state["id"]),
        method=request["method"].decode("ascii", "replace"),
        origin=Origin(scheme=scheme, host=host, port=port),
        path=path,
        request_headers=fields_of(request["headers"]),
        request_body=_data(request["content"] or b""),
        opened_at=opened_at,
        status=int(response["status_code"]) if response else None,
        response_headers=fields_of(response["headers"]) if response else (),
        response_body=_data(response["content"] or b"") if response else b"",
        responded_at=known_time(_seconds(response["timestamp_start"])) if response else None,
        ended_at=known_time(_seconds(response["timestamp_end"])) if response else None,
        end=end,
        cause=message or None,
        messages=messages,
        is_exact=not lacks_body,
        lacks_body=lacks_body,
    )


def _data(value: _Value) -> bytes:
    if not isinstance(value, bytes):
        raise RecordingError("a body or message is not bytes")
    return value


def _seconds(value: _Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


# tnetstrings: LENGTH ":" DATA TAG


def _members(record: bytes) -> _Members:
    """Where the content of each member of a record is."""
    end = len(record) - 1
    if record[end:] != b"}":
        raise RecordingError("its record is no dictionary")
    found: _Members = {}
    at = 0
    while at < end:
        key, start, stop = _member(record, at, end, 1)
        name = key.decode() if isinstance(key, bytes) else key
        if not isinstance(name, str):
            raise RecordingError("a name in its record is no text")
        found[name] = (start, stop)
        at = stop + 1
    return found


def _member(data: bytes, at: int, limit: int, depth: int) -> tuple[_Value, int, int]:
    """The name of a dictionary's member at `at`, and start and end of its value's content."""
    # One match for what mitmproxy writes: a flow has some fifty members.
    if (found := _BEGINS_MEMBER.match(data, at, limit)) is not None:
        size, name, length = found.groups()
        if int(size) == len(name):
            start = found.end()
            end = start + int(length)
            if end >= limit:
                raise RecordingError(_PAST_ITS_END)
            return name.decode(), start, end
    key, at = _value(data, at, limit, depth)
    return key, *_span(data, at, limit)


def _span(data: bytes, at: int, limit: int) -> tuple[int, int]:
    """Start and end of the content of the value at `at`; its tag follows."""
    colon = data.find(b":", at, at + _LENGTH_DIGITS_MAX + 1)
    digits = data[at:colon] if colon > at else b""
    if not digits.isdigit():
        raise RecordingError("a length in its record is no number")
    end = colon + 1 + int(digits)
    if end >= limit:
        raise RecordingError(_PAST_ITS_END)
    return colon + 1, end


def _value(data: bytes, at: int, limit: int, depth: int) -> tuple[_Value, int]:
    """The value at `at`, and the start of the next."""
    start, end = _span(data, at, limit)
    return _content(data, start, end, depth), end + 1


def _content(data: bytes, start: int, end: int, depth: int) -> _Value:
    """The value whose content is there; its tag is at `end`."""
    tag = data[end]
    if tag == 0x2C:  # ,
        return data[start:end]
    if tag == 0x3B:  # ;
        return data[start:end].decode()
    if tag not in (0x5D, 0x7D):  # ] }
        if end - start > 64:
            raise RecordingError("a number in its record is too long")
        match tag:
            case 0x23:  # "#"
                return int(data[start:end])
            case 0x5E:  # ^
                return float(data[start:end])
            case 0x21:  # !
                return data[start:end] == b"true"
            case 0x7E:  # ~
                return None
        raise RecordingError("a value in its record has no known type")
    if depth >= RECORD_DEPTH_MAX:
        raise RecordingError(f"its record has more than {RECORD_DEPTH_MAX} levels")
    if tag == 0x5D:
        values = []
        while start < end:
            value, start = _value(data, start, end, depth + 1)
            values.append(value)
        return values
    members = {}
    while start < end:
        key, inner, stop = _member(data, start, end, depth + 1)
        members[key] = _content(data, inner, stop, depth + 1)
        start = stop + 1
    return members
