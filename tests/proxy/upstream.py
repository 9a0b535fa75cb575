"""An upstream on loopback that does what a test tells it, byte for byte.

It runs in a thread with a loop of its own. Every request is kept as it came; what to answer is
asked of one function, so that a test script is plain code. An answer is a list of pieces: each
goes out alone (one write, one HTTP chunk, one DATA frame), and with a gate a piece waits for its
release. Whoever starts it stops it, and stopping ends every connection.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import h2.config
import h2.connection
import h2.events
from h2.errors import ErrorCodes

HEAD_BYTES_MAX = 256 * 1024
WAIT_SECONDS_MAX = 60
"""Bound on every wait for the other side; a test that meets it has failed."""
LATE_SECONDS = 0.2


class Framing(StrEnum):
    """How an HTTP/1.1 answer says where it ends."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


class End(StrEnum):
    """What happens after the last piece."""

    PROPER = "proper"
    """The terminator, the full length, the close, END_STREAM: as it should be."""
    FIN = "fin"
    """The connection is closed early (HTTP/2: too, without END_STREAM)."""
    RST = "rst"
    """The connection is reset (HTTP/2: RST_STREAM)."""
    LATE_RST = "late rst"
    """HTTP/1.1: the whole answer, and a reset when the other side has had time to read it."""
    GOAWAY = "goaway"
    """HTTP/2: GOAWAY, then closed."""
    HELD = "held"
    """Nothing, until the other side leaves."""


class Gate:
    """Lets one piece through for each `release`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._released = asyncio.Semaphore(0)

    def release(self, count: int = 1) -> None:
        for _ in range(count):
            self._loop.call_soon_threadsafe(self._released.release)

    async def wait(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self._released.acquire()


def header_of(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name), None)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    """In wire order and spelling."""
    body: bytes
    """Transfer-encoding undone, content-encoding not."""
    raw: bytes
    """HTTP/1.1: every byte from the request line to the end of the body."""
    http: str

    def header(self, name: str) -> str | None:
        return header_of(self.headers, name)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to answer."""

    pieces: tuple[bytes, ...]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: tuple[tuple[str, str], ...] = ()
    framing: Framing = Framing.CHUNKED
    end: End = End.PROPER
    gate: Gate | None = None
    trailers: tuple[tuple[str, str], ...] = ()
    """HTTP/2: after the last piece."""

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


def document(body: bytes, status: int = 200) -> Answer:
    """A JSON answer with a content-length."""
    return Answer(
        pieces=(body,), status=status, content_type="application/json", framing=Framing.LENGTH
    )


type Raw = Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Takes an HTTP/1.1 connection over, which is closed after it."""
type Script = Callable[[Request], Answer | Raw]


@dataclass
class Upstream:
    """`with Upstream(script) as upstream:`; the script may be changed at any time."""

    script: Script
    tls: ssl.SSLContext | None = None
    address: tuple[str, int] = ("127.0.0.1", 0)
    """Where it listens."""
    answered_early: tuple[str, ...] = ()
    """HTTP/2: ends of paths that are answered when the head has come."""
    requests: list[Request] = field(default_factory=list)
    sent_count: int = 0
    """HTTP/1.1: answers of which every piece was written."""
    peer_left: threading.Event = field(default_factory=threading.Event)
    """Set when the other side went away while an answer was held."""

    def __enter__(self) -> "Upstream":
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="upstream", daemon=True)
        self._thread.start()
        assert self._ready.wait(WAIT_SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def gate(self) -> Gate:
        return Gate(self._loop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        connections: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                # A peer that goes away is part of many tests.
                # Cancelled is how `stop` ends what is held; asyncio would log it.
                with contextlib.suppress(
                    ConnectionError,
                    asyncio.IncompleteReadError,
                    ssl.SSLError,
                    asyncio.CancelledError,
                ):
                    await self._connection(reader, writer)
                await _close(writer)
            finally:
                connections.discard(task)
                writer.transport.abort()

        server = await asyncio.start_server(
            connected, *self.address, ssl=self.tls, limit=HEAD_BYTES_MAX, backlog=2048
        )
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        running = list(connections)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()
        for _ in range(3):
            await asyncio.sleep(0)  # transports, TLS on top of TCP, report their end a round later

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = writer.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            await _Http2(self, reader, writer).serve()
            return
        while (request := await _read_request(reader, writer)) is not None:
            self.requests.append(request)
            answer = self.script(request)
            if not isinstance(answer, Answer):
                await answer(request, reader, writer)
                return
            if not await self._send(answer, request, reader, writer):
                return

    async def _send(
        self,
        answer: Answer,
        request: Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Send an answer; whether the connection can carry another."""
        head = f"HTTP/1.1 {answer.status} Scripted\r\ncontent-type: {answer.content_type}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        match answer.framing:
            case Framing.CHUNKED:
                head += "transfer-encoding: chunked\r\n"
            case Framing.LENGTH:
                missing = 0 if answer.end in (End.PROPER, End.LATE_RST) else 64
                head += f"content-length: {len(answer.body) + missing}\r\n"
            case Framing.CLOSE:
                head += "connection: close\r\n"
        writer.write(head.encode("latin-1") + b"\r\n")
        for piece in answer.pieces:
            if answer.gate is not None:
                await answer.gate.wait()
            if answer.framing is Framing.CHUNKED:
                piece = b"%x\r\n%s\r\n" % (len(piece), piece)  # noqa: PLW2901
            writer.write(piece)
            await writer.drain()
        self.sent_count += 1
        match answer.end:
            case End.PROPER:
                if answer.framing is Framing.CHUNKED:
                    writer.write(b"0\r\n\r\n")
                    await writer.drain()
                return answer.framing is not Framing.CLOSE
            case End.HELD:
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    await reader.read(1)
                self.peer_left.set()
            case End.LATE_RST:
                if answer.framing is Framing.CHUNKED:
                    writer.write(b"0\r\n\r\n")
                await asyncio.sleep(LATE_SECONDS)
                reset(writer)
            case End.RST | End.GOAWAY:
                reset(writer)
        return False


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with a RST."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *fields = head[:-4].decode("latin-1").split("\r\n")
    method, target, _version = line.split(" ")
    headers = tuple(
        (name, value.strip()) for name, _, value in (field.partition(":") for field in fields)
    )
    lower = {name.lower(): value for name, value in headers}
    if lower.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body, raw = b"", head
    if lower.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size_line = await reader.readuntil(b"\r\n")
            piece = await reader.readexactly(int(size_line, 16) + 2)
            raw += size_line + piece
            if piece == b"\r\n":
                break
            body += piece[:-2]
    elif length := int(lower.get("content-length", "0")):
        body = await reader.readexactly(length)
        raw += body
    return Request(method=method, target=target, headers=headers, body=body, raw=raw, http="1.1")


class _Http2:
    """One HTTP/2 connection; each stream is answered by a task of its own."""

    def __init__(
        self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._upstream = upstream
        self._reader = reader
        self._writer = writer
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self._bodies: dict[int, bytearray] = {}
        self._heads: dict[int, tuple[tuple[str, str], ...]] = {}
        self._answers: dict[int, asyncio.Task[None]] = {}
        self._window_grew = asyncio.Event()

    async def serve(self) -> None:
        self._h2.initiate_connection()
        self._flush()
        try:
            while (data := await self._reader.read(65536)) and not self._writer.is_closing():
                for event in self._h2.receive_data(data):
                    self._see(event)
                self._flush()
        finally:
            self._upstream.peer_left.set()
            for answer in self._answers.values():
                answer.cancel()
            await asyncio.gather(*self._answers.values(), return_exceptions=True)

    def _begin_answer(self, stream_id: int) -> None:
        self._answers[stream_id] = asyncio.create_task(self._answer(stream_id))

    def _see(self, event: h2.events.Event) -> None:
        early = self._upstream.answered_early
        match event:
            case h2.events.RequestReceived():
                self._heads[event.stream_id] = tuple(
                    (str(name), str(value)) for name, value in event.headers
                )
                self._bodies[event.stream_id] = bytearray()
                if dict(self._heads[event.stream_id])[":path"].endswith(early):
                    self._begin_answer(event.stream_id)
            case h2.events.DataReceived():
                self._bodies[event.stream_id] += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                if event.stream_id not in self._answers:
                    self._begin_answer(event.stream_id)
            case h2.events.WindowUpdated():
                self._window_grew.set()
            case h2.events.StreamReset():
                self._upstream.peer_left.set()
                if event.stream_id in self._answers:
                    self._answers[event.stream_id].cancel()

    async def _answer(self, stream_id: int) -> None:
        head = dict(self._heads[stream_id])
        request = Request(
            method=head[":method"],
            target=head[":path"],
            headers=self._heads[stream_id],
            body=bytes(self._bodies[stream_id]),
            raw=b"",
            http="2",
        )
        self._upstream.requests.append(request)
        answer = self._upstream.script(request)
        assert isinstance(answer, Answer), "an HTTP/2 connection cannot be taken over"
        self._h2.send_headers(
            stream_id,
            [
                (":status", str(answer.status)),
                ("content-type", answer.content_type),
                *answer.headers,
            ],
        )
        self._flush()
        for piece in answer.pieces:
            if answer.gate is not None:
                await answer.gate.wait()
            await self._send(stream_id, piece)
        match answer.end:
            case End.PROPER if answer.trailers:
                self._h2.send_headers(stream_id, answer.trailers, end_stream=True)
            case End.PROPER:
                self._h2.end_stream(stream_id)
            case End.RST:
                self._h2.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
            case End.GOAWAY:
                self._h2.close_connection(ErrorCodes.NO_ERROR, last_stream_id=0)
                self._flush()
                self._writer.close()
            case End.FIN:
                self._writer.close()
        if answer.end is not End.FIN:
            self._flush()

    async def _send(self, stream_id: int, piece: bytes) -> None:
        while piece:
            window = min(
                self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size
            )
            if window <= 0:
                self._window_grew.clear()
                await self._window_grew.wait()
                continue
            self._h2.send_data(stream_id, piece[:window])
            piece = piece[window:]
            self._flush()
            await self._writer.drain()

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
