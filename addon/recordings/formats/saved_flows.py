"""Edge (files). Saved flows and HAR, both read by mitmproxy's own reader.

`mitmproxy.io.FlowReader` ends at the first damaged record of a flow file, and refuses a whole HAR
for one entry. So each record and each entry is handed to it alone: only where one begins and ends
is looked for here, and a fault costs one of them.

A HAR holds decoded bodies and no id: its exchanges get a derived id, and the bytes that upstream
sent stay unknown. `utf8` makes the same bytes of its flows here and in `mitmdump -nr`, so that both
ways derive the same id. Its early ends and WebSocket messages are no part of mitmproxy's flows.
"""

from __future__ import annotations

import json
import mmap
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from addon.framing import json_values
from addon.metering.messages import End
from addon.recordings.formats.lines import OpenFile
from addon.recordings.formats.recorded import (
    Fields,
    Item,
    Message,
    Origin,
    Recorded,
    RecordedEntry,
    RecordingError,
    Skipped,
    Unreadable,
    Why,
    derived_id,
    fields_of,
    known_moment,
    known_time,
    message_time,
    split_url,
    text_fields_of,
)

if TYPE_CHECKING:  # it takes half a second, and a file whose flows the ledger has needs none of it
    from mitmproxy.http import HTTPFlow

RECORD_BYTES_MAX = 512 * 1024 * 1024
"""Size of one flow; its bodies are in memory while it is read."""
HAR_BYTES_MAX = 1024 * 1024 * 1024
"""The file is mapped into memory, not read."""
NAME_SHOWN_MAX = 100
_LENGTH_DIGITS_MAX = 12
_TAIL = re.compile(
    rb"2:id;([0-9]{1,3}):([A-Za-z0-9_./-]{1,200});4:type;4:http;7:version;[12]:[0-9]{1,2}#\}"
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
_MILLISECONDS_MAX = 10.0**12
_ENTRIES = (b'"log"', b'"entries"')
_JSON_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]:,]', re.DOTALL)
"""A string, or a sign of JSON's structure."""
_BOM = b"\xef\xbb\xbf"
_KILLED = "Connection killed."
"""mitmproxy's text for a flow that was killed (`mitmproxy.flow.Error.KILLED_MESSAGE`)."""
_CLIENT_LEFT = "Client disconnected."
"""mitmproxy's text for a client that closed its connection."""


def flow_entries(path: Path, *, part: int = 0, parts: int = 1) -> Iterator[RecordedEntry]:
    """The entries of a flow file; for a part of it only every N-th record. Raises OSError."""
    size = path.stat().st_size
    number = at = 0
    # The same file for the records that are parsed: each is read when it is asked for.
    records = OpenFile(path)
    with path.open("rb", buffering=BUFFER_BYTES) as file:
        while at < size:
            number += 1
            where = f"{path}, flow {number}"
            try:
                start, end = at, _end_of_record(file, at, size)
            except RecordingError as error:
                # The end of the record is not known. The next one begins behind the end of any.
                at = _after_any_record(file, at, size)
                if number % parts == part:
                    yield RecordedEntry.of(Unreadable(where, str(error)), at)
                continue
            at = end
            if number % parts == part:
                file.seek(max(start, end - TAIL_BYTES))
                flow_id = _id_at_end_of(file.read(end - file.tell()))
                parse = partial(_read_flow, records, start, end - start, where)
                yield RecordedEntry(end, end - start, flow_id, parse, where)


def har_entries(path: Path, *, part: int = 0, parts: int = 1) -> Iterator[RecordedEntry]:
    """The entries of a HAR; for a part of it only every N-th entry. Raises OSError."""
    size = path.stat().st_size
    if not 0 < size <= HAR_BYTES_MAX:
        why = "empty" if not size else f"larger than {HAR_BYTES_MAX >> 30} GiB: split it"
        yield RecordedEntry.of(Unreadable(str(path), why))
        return
    with path.open("rb") as file:
        # Closed when the last entry is freed: each entry refers to a part of it.
        text = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    problem = None
    if path.suffix == ".zhar":
        inflater = zlib.decompressobj()
        try:
            text = memoryview(inflater.decompress(text, HAR_BYTES_MAX))
        except zlib.error as error:
            problem = f"no HAR file: {error}"
        if problem is None and not inflater.eof:
            problem = f"no HAR file: cut short, or larger than {HAR_BYTES_MAX >> 30} GiB"
    entries, is_whole = _entries_of(text) if problem is None else ([], False)
    for number, entry in enumerate(entries, 1):
        if number % parts == part:
            where = f"{path}, entry {number}"
            parse = partial(_read_har_entry, entry, where, path.parent)
            yield RecordedEntry(size * number // len(entries), entry.nbytes, None, parse, where)
    if part == 0 and not is_whole:
        if not entries:
            problem = problem or "no HAR file: it has no list of entries"
        else:
            problem = f"cut short or damaged after entry {len(entries)}"
        yield RecordedEntry.of(Unreadable(str(path), problem))


def end_of_error(message: str) -> End:
    """Which side ended a flow, by mitmproxy's error text."""
    if message == _KILLED:
        return End.STOPPED
    return End.CLIENT_LEFT if message == _CLIENT_LEFT else End.UPSTREAM_BROKE


def utf8(body: bytes) -> bytes:
    """The body of a flow that mitmproxy read from a HAR.

    A HAR holds text. mitmproxy encodes that of an event stream without a charset as Latin-1 if it
    can: so it decodes one when it exports, but browsers decode as UTF-8.
    """
    try:
        body.decode()
    except UnicodeDecodeError:
        return body.decode("latin-1").encode()
    return body


def _end_of_record(file: BinaryIO, at: int, size: int) -> int:
    """Where the record at `at` ends: tnetstrings are LENGTH ":" DATA TAG."""
    file.seek(at)
    digits = b""
    while (char := file.read(1)) != b":" or not digits:
        if not char:
            raise RecordingError("cut short")
        if not char.isdigit() or len(digits) >= _LENGTH_DIGITS_MAX:
            raise RecordingError("no flow file of mitmproxy, or damaged from here on")
        digits += char
    end = file.tell() + int(digits) + 1
    if end > size:
        raise RecordingError("cut short, or no flow file of mitmproxy: restore the file")
    if int(digits) > RECORD_BYTES_MAX:
        raise RecordingError(f"a flow of {int(digits)} bytes: {RECORD_BYTES_MAX} are the most")
    file.seek(max(at, end - TAIL_BYTES))
    tail, follows = file.read(end - file.tell()), file.read(1)
    is_record = tail[-1:] in _TAGS and (follows.isdigit() or not follows)
    if not is_record and _id_at_end_of(tail) is None:
        raise RecordingError("no flow file of mitmproxy, or damaged: a length in it is wrong")
    return end


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
                    _end_of_record(file, at + found.end(), size)
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


def _read_flow(file: OpenFile, start: int, length: int, where: str) -> Item:
    record = file.read(start, length)
    if len(record) < length:
        return Unreadable(where, "not a flow: cut short")
    flow = _flow_in(record)
    if flow is None:
        return Skipped(where, Why.NOT_HTTP)
    response, message = flow.response, flow.error.msg if flow.error else ""
    if response is None and not message:
        return Skipped(where, Why.NO_ANSWER)
    lacks_body = response is not None and response.raw_content is None and flow.websocket is None
    if lacks_body and not message:
        return Skipped(where, Why.NO_BODY)
    if response is not None and response.status_code == 101 and flow.websocket is None:
        return Skipped(where, Why.NO_MESSAGES)
    opened_at = known_time(_seconds(flow.request.timestamp_start))
    if opened_at is None:
        raise RecordingError("its start is no time of the years 1970 to 9998")
    end = end_of_error(message) if message else End.FINISHED
    messages = None
    if flow.websocket is not None:
        end = End.CLIENT_LEFT if flow.websocket.closed_by_client else End.UPSTREAM_BROKE
        messages = tuple(
            Message(
                from_client=bool(one.from_client),
                is_text=one.is_text,
                content=_data(one.content),
                at=message_time(_seconds(one.timestamp)),
            )
            for one in flow.websocket.messages
        )
    return _recorded(
        flow,
        where,
        name=str(flow.id),
        opened_at=opened_at,
        response_body=_data(response.raw_content or b"") if response else b"",
        responded_at=known_time(_seconds(response.timestamp_start)) if response else None,
        ended_at=known_time(_seconds(response.timestamp_end)) if response else None,
        end=end,
        cause=message or None,
        messages=messages,
        is_exact=not lacks_body,
        lacks_body=lacks_body,
    )


def _flow_in(data: bytes) -> HTTPFlow | None:
    """The one flow of a flow file or a HAR; None if it is not HTTP. RecordingError if mitmproxy
    cannot read it."""
    from mitmproxy.exceptions import FlowReadException
    from mitmproxy.http import HTTPFlow
    from mitmproxy.io import FlowReader

    try:
        (flow,) = FlowReader(BytesIO(data)).stream()
    except FlowReadException as error:
        raise RecordingError(f"not a flow of mitmproxy: {error.__context__ or error}") from None
    return flow if isinstance(flow, HTTPFlow) else None


def _recorded(flow: HTTPFlow, where: str, *, name: str, **facts: Any) -> Recorded:
    """What flow files and HAR have alike."""
    request = flow.request
    target = request.data.path.decode("utf-8", "surrogateescape")
    more: dict[str, Any] = {
        "origin": Origin(scheme=request.scheme, host=str(request.host), port=int(request.port)),
        "path": split_url(f"https://h{target if target.startswith('/') else '/'}")[1],
        "request_headers": fields_of(request.headers.fields),
        "request_body": _data(request.raw_content or b""),
        "status": int(flow.response.status_code) if flow.response else None,
        "response_headers": fields_of(flow.response.headers.fields) if flow.response else (),
    }
    return Recorded(
        name=name,
        where=where,
        id=name,
        method=request.method,
        **(more | facts),
    )


def _entries_of(text: memoryview) -> tuple[list[memoryview], bool]:
    """The entries of a HAR, and whether their list has an end.

    Only strings, brackets and commas are read, so that each entry is refused alone: a reader of
    JSON refuses a whole file for one lone surrogate, one unknown escape, or one deep list.
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


def _read_har_entry(raw: memoryview, where: str, folder: Path) -> Item:
    entry = json_values.loads(bytes(raw))
    if entry is None:
        return Unreadable(where, "not a recorded exchange: no JSON object")
    response = _object(entry.get("response"))
    status, error = response.get("status"), response.get("_error") or None
    is_session = entry.get("_webSocketMessages") is not None
    if not isinstance(status, int) or not 100 <= status <= 999:
        status = 0
    if not status and error is None:
        return Skipped(where, Why.NO_ANSWER)
    if status == 101 and not is_session:
        return Skipped(where, Why.NO_MESSAGES)
    content = _object(response.get("content"))
    has_text = bool(content.get("text") or content.get("_file"))
    if 200 <= status < 300 and not has_text and not is_session:
        return Skipped(where, Why.NO_BODY if error is None else Why.NO_ANSWER)
    opened_at = known_moment(entry.get("startedDateTime"))
    if opened_at is None:
        raise RecordingError("startedDateTime is no time of the years 1970 to 9998")
    ended_at, took_ms = None, entry.get("time")
    if isinstance(took_ms, int | float) and 0 <= took_ms < _MILLISECONDS_MAX:
        with suppress(OverflowError):
            ended_at = opened_at + timedelta(milliseconds=took_ms)
    flow = _flow_in(_har_of(entry, status))
    assert flow is not None
    assert flow.response is not None
    posted = _object(_object(entry["request"]).get("postData"))
    asked = _binary(posted, folder) or utf8(flow.request.raw_content or b"")
    answer = _binary(content, folder) or utf8(flow.response.raw_content or b"")
    origin, path = split_url(_object(entry["request"])["url"])
    own_id = derived_id(
        method=flow.request.method,
        origin=origin,
        path=path,
        request_body=asked,
        response_body=answer,
        started_at=opened_at,
    )
    messages = entry.get("_webSocketMessages")
    return _recorded(
        flow,
        where,
        name=own_id,
        has_own_id=False,
        origin=origin,
        path=path,
        # mitmproxy adds a length to those of its flow.
        request_headers=_fields(entry["request"]),
        request_body=asked,
        opened_at=opened_at,
        status=status or None,
        response_headers=_fields(response),
        response_body=answer,
        is_exact=False,
        ended_at=ended_at,
        end=End.UPSTREAM_BROKE if error is not None or is_session else End.FINISHED,
        cause=None if error is None else str(error),
        messages=None if messages is None else tuple(_message(_object(one)) for one in messages),
    )


def _har_of(entry: Mapping[str, Any], status: int) -> bytes:
    """A HAR of one entry with what mitmproxy wants: what browsers leave out is empty. Bodies are
    decoded already, so that no header names a coding; times and base64 are read here."""
    request, response = _object(entry.get("request")), _object(entry.get("response"))
    posted, content = _object(request.get("postData")), _object(response.get("content"))
    one = {
        "startedDateTime": "1970-01-01T00:00:00Z",
        "time": 0,
        "request": {
            "method": request["method"],
            "url": request["url"],
            "httpVersion": "",
            "headers": _headers(request),
            "postData": {"text": _text(posted)},
        },
        "response": {
            "status": status,
            "httpVersion": "",
            "headers": _headers(response),
            "content": {"text": _text(content)},
        },
    }
    return json.dumps({"log": {"entries": [one]}}).encode()


def _text(body: Mapping[str, Any]) -> str:
    return "" if body.get("encoding") == "base64" else body.get("text") or ""


def _binary(body: Mapping[str, Any], folder: Path) -> bytes:
    """A body that the file has as base64, which mitmproxy reads with any damage, or that
    Playwright's `attach` keeps beside the HAR. RecordingError if it is not there."""
    if name := body.get("_file"):
        file = (folder / str(name)).resolve()
        if not (file.is_relative_to(folder.resolve()) and file.is_file()):
            raise RecordingError(f"its body {str(name)[:NAME_SHOWN_MAX]!r} is not beside the file")
        if file.stat().st_size > RECORD_BYTES_MAX:
            raise RecordingError(f"its body is larger than {RECORD_BYTES_MAX >> 20} MiB")
        return file.read_bytes()
    is_base64 = body.get("encoding") == "base64"
    return b64decode(body.get("text") or "", validate=True) if is_base64 else b""


def _headers(message: Mapping[str, Any]) -> list[dict[str, str]]:
    names = ((one["name"].strip(), one["value"]) for one in message.get("headers") or ())
    return [
        {"name": name, "value": value.encode("utf-8", "replace").decode()}
        for name, value in names
        if name.lower() != "content-encoding"
    ]


def _fields(message: object) -> Fields:
    return text_fields_of((each["name"], each["value"]) for each in _headers(_object(message)))


def _message(one: Mapping[str, Any]) -> Message:
    is_text = one.get("opcode", 1) != 2
    content = one["data"].encode() if is_text else b64decode(one["data"], validate=True)
    at = message_time(float(one["time"]))
    return Message(from_client=one["type"] == "send", is_text=is_text, content=content, at=at)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _data(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise RecordingError("a body or message is not bytes")
    return value


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
