"""Edge. The chunks of an HTTP/1.1 answer that came in one read go through mitmproxy together.

Why: mitmproxy takes each chunk by itself through h11 and four layers, and writes it with a system
call of its own: nine tenths of what a chunk costs (measured). An upstream or a network that sends
faster than the proxy reads has many chunks in one read. Here they are cut in one go, become one
`ChunkRun`, pass `flow.response.stream` in one call, and are written in one. What the client gets
stays the same to the byte, the borders of its chunks included. The callable of another addon gets
chunk by chunk, as without us.

A chunk that is not there to its end goes on at once, as mitmproxy does it; so does everything with
chunk extensions, and every answer for an HTTP/2 client. An error in the body comes after the chunks
before it.

Without it nothing but CPU differs: a burst takes 3.1 times as much (`tests/bench`, interleaved).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any

from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import (
    Http1Client,
    Http1Server,
    HttpStream,
    ReceiveHttp,
    ResponseData,
)

from addon.parts.fast.mechanisms import InstallContext
from addon.proxy.answers import ChunkRun
from addon.proxy.sources import UnknownSourceError, replace_methods

RELIES_ON = {
    "h11._readers:ChunkedReader": "4d2629eeaaf366b6",
    "h11._receivebuffer:ReceiveBuffer": "108c4355eb3b1717",
    "mitmproxy.proxy.layers.http._http1:Http1Connection.read_body": "aece271029af36e4",
    "mitmproxy.proxy.layers.http._http1:Http1Client.send": "35d961e20d481204",
    "mitmproxy.proxy.layers.http._http1:Http1Server.send": "cc218a1337c0f5cf",
    "mitmproxy.proxy.layers.http:HttpStream.state_stream_response_body": "3fb6320300d3ddd5",
}
"""Functions that are replaced, or whose behaviour is taken over."""

type Commands = Generator[commands.Command, Any, None]

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
"""A chunk's size as everybody writes it. h11 reads the others."""


def take_chunks(reader: ChunkedReader, buffer: ReceiveBuffer) -> list[bytes]:
    """Take the complete chunks from the beginning of the buffer, as the reader would; it goes on
    behind them."""
    left = reader._bytes_in_chunk
    if reader._reading_trailer or not buffer or left > len(buffer):
        return []
    data = bytes(buffer)
    at = len(reader._bytes_to_discard)
    if at and not data.startswith(reader._bytes_to_discard):
        return []
    chunks = []
    if left:  # of a chunk that has begun
        end = at + left
        if not data.startswith(b"\r\n", end):
            return []
        chunks.append(data[at:end])
        at = end + 2
    while found := _SIZE_LINE.match(data, at):
        start = found.end()
        end = start + int(found[1], 16)
        if start == end or not data.startswith(b"\r\n", end):
            break
        chunks.append(data[start:end])
        at = end + 2
    if chunks:
        buffer.maybe_extract_at_most(at)
        reader._bytes_in_chunk = 0
        reader._bytes_to_discard = b""
    return chunks


def install(place: InstallContext) -> Callable[[], None]:
    """Put the wrappers on; returns what takes them off."""
    if "read_body" in vars(Http1Client):
        raise UnknownSourceError("Http1Client.read_body is not inherited")
    takes_runs = place.takes_runs
    read_body, send = Http1Client.read_body, Http1Server.send
    stream_body = HttpStream.state_stream_response_body

    def read_run(client: Http1Client, event: events.Event) -> Commands:
        reader = client.body_reader
        if type(reader) is not ChunkedReader or type(event) is not events.DataReceived:
            return read_body(client, event)
        request = client.request
        if request is None or request.is_http2 or request.is_http3:
            return read_body(client, event)
        chunks = take_chunks(reader, client.buf)
        if not chunks:
            return read_body(client, event)
        data = chunks[0] if len(chunks) == 1 else ChunkRun.of(chunks)
        return _read(client, data, read_body(client, event))

    def send_run(server: Http1Server, event: Any) -> Commands:
        response = server.response
        if (
            type(event) is ResponseData
            and type(event.data) is ChunkRun
            and response is not None
            and event.stream_id == server.stream_id
            and "chunked" in response.headers.get("transfer-encoding", "").lower()
        ):
            return _send(server, event.data)
        return send(server, event)

    def stream_run(stream: HttpStream, event: Any) -> Commands:
        if (
            type(event) is ResponseData
            and type(event.data) is ChunkRun
            and stream.flow.response is not None
            and callable(stream.flow.response.stream)
            and not takes_runs(stream.flow)
        ):
            for chunk in event.data.chunks:
                yield from stream_body(stream, ResponseData(event.stream_id, chunk))
            return
        yield from stream_body(stream, event)

    undo = (
        replace_methods(HttpStream, state_stream_response_body=stream_run),
        replace_methods(Http1Client, read_body=read_run),
        replace_methods(Http1Server, send=send_run),
    )

    def uninstall() -> None:
        for restore in undo:
            restore()

    return uninstall


def _read(client: Http1Client, data: bytes, rest: Commands) -> Commands:
    assert client.stream_id is not None
    yield ReceiveHttp(ResponseData(client.stream_id, data))
    yield from rest


def _send(server: Http1Server, run: ChunkRun) -> Commands:
    written = b"".join([b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in run.chunks])
    yield commands.SendData(server.conn, written)
