"""Edge. `tokentee replay --serve`: recorded answers served back as an upstream.

The bytes of an answer are those that were recorded, in the pieces in which they came and at the
pace at which they came. A request gets the answer recorded for the same method, path and body; if
none has that body, those recorded for the path, in their order, then again from the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable

from addon.recordings.reading import Recorded

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024
WAIT_SECONDS_MAX = 60.0
"""A recorded pause longer than this is cut to it: a client has given up long before."""
_HOP_BY_HOP = frozenset(
    {"transfer-encoding", "connection", "keep-alive", "content-length", "trailer", "upgrade"}
)
"""Headers that say how a message is framed on one connection; this one frames anew."""


class Answers:
    """Recorded answers by what was asked."""

    def __init__(self, recorded: Iterable[Recorded]) -> None:
        self._by_body: dict[tuple[str, str, str], list[Recorded]] = defaultdict(list)
        self._by_path: dict[tuple[str, str], list[Recorded]] = defaultdict(list)
        self._served: dict[int, int] = defaultdict(int)
        for item in recorded:
            if item.flow.response is None:
                continue
            request = item.flow.request
            where = (request.method, _path_of(request.path))
            self._by_path[where].append(item)
            self._by_body[*where, _digest(request.get_content(strict=False) or b"")].append(item)

    def __len__(self) -> int:
        return sum(map(len, self._by_path.values()))

    def to(self, method: str, path: str, body: bytes) -> Recorded | None:
        """The answer to a request; None if nothing was recorded for its path."""
        where = (method, _path_of(path))
        found = self._by_body.get((*where, _digest(body))) or self._by_path.get(where)
        if not found:
            return None
        turn = self._served[id(found)]
        self._served[id(found)] += 1
        return found[turn % len(found)]


async def serve(answers: Answers, host: str, port: int, *, speed: float) -> asyncio.Server:
    """Listen. `speed`: 1 as recorded, 2 twice as fast, 0 without any pause. Raises OSError."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await _answer_one(reader, writer, answers, speed):
                pass
        writer.close()

    return await asyncio.start_server(connected, host, port, limit=HEAD_BYTES_MAX)


async def _answer_one(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers, speed: float
) -> bool:
    """Read a request and answer it; whether the connection is kept."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        return False
    line, *rest = head.split("\r\n")
    method, _, target = line.partition(" ")
    path = target.rpartition(" ")[0]
    headers = {
        name.strip().lower(): value.strip()
        for name, colon, value in (entry.partition(":") for entry in rest)
        if colon
    }
    body = await _body(reader, headers)
    if body is None:
        return False
    item = answers.to(method, path, body)
    if item is None:
        text = json.dumps({"error": {"type": "not_recorded", "message": f"nothing for {path}"}})
        writer.write(
            b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(text), text.encode())
        )
    else:
        await _send(writer, item, speed)
    await writer.drain()
    return headers.get("connection", "").lower() != "close"


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes | None:
    """A request's body; None if it is too long or not framed as HTTP."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        pieces, total = [], 0
        while True:
            size_text = (await reader.readline()).split(b";")[0].strip()
            try:
                size = int(size_text, 16)
            except ValueError:
                return None
            total += size
            if size < 0 or total > BODY_BYTES_MAX:
                return None
            pieces.append(await reader.readexactly(size))
            await reader.readline()
            if size == 0:
                return b"".join(pieces)
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > BODY_BYTES_MAX:
        return None
    return await reader.readexactly(int(length))


async def _send(writer: asyncio.StreamWriter, item: Recorded, speed: float) -> None:
    response = item.flow.response
    assert response is not None
    body = response.raw_content or b""
    has_length = "content-length" in response.headers
    writer.write(b"HTTP/1.1 %d %s\r\n" % (response.status_code, response.reason.encode("latin-1")))
    for name, value in response.headers.fields:
        if name.decode("latin-1").lower() not in _HOP_BY_HOP:
            writer.write(name + b": " + value + b"\r\n")
    framing = b"content-length: %d" % len(body) if has_length else b"transfer-encoding: chunked"
    writer.write(framing + b"\r\n\r\n")
    at = 0
    for size, wait in item.cuts or ((len(body), 0),):
        if speed and wait:
            await writer.drain()
            await asyncio.sleep(min(wait / 1_000_000 / speed, WAIT_SECONDS_MAX))
        piece = body[at : at + size]
        at += size
        if piece:
            writer.write(piece if has_length else b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
    if not has_length:
        writer.write(b"0\r\n\r\n")


def _path_of(path: str) -> str:
    return path.partition("?")[0]


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
