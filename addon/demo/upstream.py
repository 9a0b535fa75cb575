"""Edge. The five systems on loopback: an HTTP/1.1 server that sends the scenes' answers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from addon.demo.scene import Scene, SceneAnswer, pieces_for

SCENE_HEADER = "x-demo-scene"
"""Holds the title of the scene; a real system would use the request's content."""
BODY_BYTES_MAX = 1 << 20
WAIT_SECONDS_MAX = 30


@contextlib.asynccontextmanager
async def serving(scenes: Mapping[str, Scene]) -> AsyncIterator[int]:
    """Answer requests by the title of their scene; yields the port."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The proxy may close its connections at any time, and one scene makes it leave early.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await _exchange(scenes, reader, writer):
                pass
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _exchange(
    scenes: Mapping[str, Scene], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """One request and its answer; whether the connection can carry another."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    fields = (line.partition(": ") for line in head.split("\r\n")[1:-2])
    headers = {name.lower(): value for name, _, value in fields}
    length = int(headers["content-length"])
    if length > BODY_BYTES_MAX:
        return False
    body = json.loads(await reader.readexactly(length))
    answer = scenes[headers[SCENE_HEADER]].answer
    await _send(answer, body, writer)
    if answer.waits_for_leave:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await reader.read(1)
    return not (answer.is_closed_after or answer.is_cut or answer.waits_for_leave)


async def _send(answer: SceneAnswer, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
    options = body.get("stream_options") or {}
    is_asked = options.get("include_usage") is True
    pieces = [piece.encode() for piece in pieces_for(answer, is_asked=is_asked)]
    writer.write(
        f"HTTP/1.1 {answer.status} Demo\r\ncontent-type: {answer.content_type}\r\n".encode()
        + b"".join(f"{name}: {value}\r\n".encode() for name, value in answer.headers.items())
    )
    if answer.is_closed_after:
        writer.write(b"connection: close\r\n\r\n")
        writer.writelines(pieces)
    elif answer.content_type == "application/json" and len(pieces) == 1:
        writer.write(b"content-length: %d\r\n\r\n%s" % (len(pieces[0]), pieces[0]))
    else:
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        writer.writelines(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        if not (answer.is_cut or answer.waits_for_leave):
            writer.write(b"0\r\n\r\n")
    await writer.drain()
