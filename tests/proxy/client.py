"""Clients that tell exactly what came: HTTP/1.1 on a raw socket, and HTTP/2.

Both hand the body out piece by piece, so that a test can leave at any point, and both say how
it ended. The HTTP/1.1 client checks every byte of the framing itself: a stray terminator, which
a forgiving library would swallow, is what some mistakes in a proxy look like.
"""

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from h2.errors import ErrorCodes

from tests.proxy.upstream import header_of

TIMEOUT_SECONDS = 60


class Ending(StrEnum):
    """How an answer ended, as the client saw it."""

    TERMINATED = "terminated"
    """Properly: terminator, full length, or END_STREAM."""
    CLOSED = "closed"
    """By the connection's close; proper only where nothing else was announced."""
    RESET = "reset"
    """Connection reset, or RST_STREAM."""
    LEFT = "left"
    """The client went away itself."""


class BrokenHttpError(AssertionError):
    """What came is not HTTP."""


@dataclass(kw_only=True)
class Received:
    """One answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    pieces: list[bytes] = field(default_factory=list)
    """HTTP chunks, socket reads or DATA frames as they came."""
    arrived: list[float] = field(default_factory=list)
    """`time.perf_counter` of each."""
    ending: Ending | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def header(self, name: str) -> str | None:
        return header_of(self.headers, name)


class Client:
    """One connection; `close` it."""

    def head(self) -> Received:
        raise NotImplementedError

    def more(self, answer: Received) -> bytes:
        """The next piece of the body; empty at its end, and then `ending` is set."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def rest(self, answer: Received, *, until: bytes | None = None) -> Received:
        """The answer with all of its body, or what came by the time `until` had passed."""
        while (until is None or until not in answer.body) and self.more(answer):
            pass
        return answer

    def receive(self, *, until: bytes | None = None) -> Received:
        """The whole answer, or what came by the time `until` had passed."""
        return self.rest(self.head(), until=until)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Http1(Client):
    """One HTTP/1.1 connection; `close` it."""

    def __init__(
        self, address: tuple[str, int], *, tls: ssl.SSLContext | None = None, name: str = ""
    ) -> None:
        self._socket = _connect(address, tls, name)
        self._buffer = b""
        self._unsent = b""
        self.address = address

    def send(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        *,
        chunks: Iterable[bytes] | None = None,
        expect: bool = False,
    ) -> None:
        """Send a request: with a length, or as `chunks`; with `expect`, wait for 100 Continue."""
        host, port = self.address
        head = f"{method} {target} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers)
        if chunks is not None:
            head += "Transfer-Encoding: chunked\r\n"
            body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in chunks if part)
            body += b"0\r\n\r\n"
        elif body:
            head += f"Content-Length: {len(body)}\r\n"
        if expect:
            head += "Expect: 100-continue\r\n"
        data = head.encode("latin-1") + b"\r\n"
        if expect:
            self._socket.sendall(data)
            status, _ = self._read_head()
            if status != 100:
                raise BrokenHttpError(f"expected 100 Continue, got {status}")
            data = b""
        self._socket.sendall(data + body)

    def head(self) -> Received:
        status, headers = self._read_head()
        answer = Received(status=status, headers=headers)
        encoding = (answer.header("transfer-encoding") or "").lower()
        length = answer.header("content-length")
        if encoding == "chunked" and length is not None:
            raise BrokenHttpError("both transfer-encoding and content-length")
        self._chunked = encoding == "chunked"
        self._left = None if length is None else int(length)
        if status in (204, 304):
            self._left = 0
        return answer

    def more(self, answer: Received) -> bytes:
        """The next piece of the body; empty at its end, and then `ending` is set."""
        if answer.ending is not None:
            return b""
        try:
            piece = self._more_chunked() if self._chunked else self._more_plain()
        except ConnectionResetError:
            answer.ending = Ending.RESET
            return b""
        if piece is None:
            answer.ending = Ending.CLOSED
            return b""
        if not piece:
            answer.ending = Ending.TERMINATED
            return b""
        answer.pieces.append(piece)
        answer.arrived.append(time.perf_counter())
        return piece

    def is_quiet(self) -> bool:
        """No byte waits that should not be there."""
        readable, _, _ = select.select([self._socket], [], [], 0)
        return not self._buffer and not readable

    def leave(self, answer: Received | None = None, *, rst: bool = False) -> None:
        """Go away in mid-stream."""
        if answer is not None and answer.ending is None:
            answer.ending = Ending.LEFT
        _leave(self._socket, rst=rst)

    def close(self) -> None:
        self._socket.close()

    def _more_chunked(self) -> bytes | None:
        line = self._line()
        if line is None:
            return None
        if not line or line.strip(b"0123456789abcdefABCDEF"):
            raise BrokenHttpError(f"not a chunk size: {line!r}")
        size = int(line, 16)
        data = self._exactly(size + 2)
        if data is None:
            return None
        if data[-2:] != b"\r\n":
            raise BrokenHttpError(f"chunk of {size} bytes not closed: {data[-8:]!r}")
        return data[:-2]

    def _more_plain(self) -> bytes | None:
        if self._left == 0:
            return b""
        if not self._buffer and not self._fill():
            return None
        piece = self._buffer if self._left is None else self._buffer[: self._left]
        self._buffer = self._buffer[len(piece) :]
        if self._left is not None:
            self._left -= len(piece)
        return piece

    def _read_head(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        lines: list[str] = []
        while (line := self._line()) != b"":
            if line is None:
                raise BrokenHttpError(f"closed inside the head, after {lines!r}")
            lines.append(line.decode("latin-1"))
        version, status, *_ = lines[0].split(" ", 2)
        if version != "HTTP/1.1":
            raise BrokenHttpError(f"not a status line: {lines[0]!r}")
        fields = (line.partition(":") for line in lines[1:])
        return int(status), tuple((name, value.strip()) for name, _, value in fields)

    def _line(self) -> bytes | None:
        while b"\r\n" not in self._buffer:
            if not self._fill():
                if self._buffer:
                    raise BrokenHttpError(f"closed inside a line: {self._buffer!r}")
                return None
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            if not self._fill():
                return None
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _fill(self) -> bool:
        data = self._socket.recv(65536)
        self._buffer += data
        return bool(data)


class Http2(Client):
    """One HTTP/2 connection over TLS, one request at a time; `close` it."""

    def __init__(self, address: tuple[str, int], *, tls: ssl.SSLContext, name: str) -> None:
        connection = _connect(address, tls, name)
        assert isinstance(connection, ssl.SSLSocket)
        if connection.selected_alpn_protocol() != "h2":
            raise BrokenHttpError("the other side does not speak HTTP/2")
        self._socket = connection
        self.address = address
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        )
        self._h2.initiate_connection()
        self._stream_id = 0
        self._events: list[h2.events.Event] = []
        self._flush()

    def send(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        *,
        chunks: Iterable[bytes] | None = None,
        ends: bool = True,
    ) -> None:
        """Send a request; `chunks` become DATA frames without a content-length. `ends`: or more is
        to come."""
        self._stream_id = self._h2.get_next_available_stream_id()
        host, port = self.address
        fields = [
            (":method", method),
            (":scheme", "https"),
            (":authority", f"{host}:{port}"),
            (":path", target),
            *((name.lower(), value) for name, value in headers),
        ]
        parts = [body] if chunks is None else list(chunks)
        if chunks is None and body:
            fields.append(("content-length", str(len(body))))
        self._h2.send_headers(self._stream_id, fields, end_stream=not any(parts))
        for part in parts:
            for start in range(0, len(part), 16384):
                self._h2.send_data(self._stream_id, part[start : start + 16384])
                self._flush()
        if any(parts) and ends:
            self._h2.end_stream(self._stream_id)
        self._flush()

    def go_on(self, part: bytes) -> None:
        """Send more of a request that has not ended."""
        self._h2.send_data(self._stream_id, part)
        self._flush()

    def head(self) -> Received:
        event = self._next()
        if isinstance(event, h2.events.ResponseReceived):
            (_, status), *fields = _text(event.headers)
            return Received(status=int(status), headers=tuple(fields))
        raise BrokenHttpError(f"no answer but {event!r}")

    def more(self, answer: Received) -> bytes:
        """The next DATA of the body; empty at its end, and then `ending` is set."""
        while answer.ending is None:
            match self._next():
                case h2.events.DataReceived() as event:
                    self._h2.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                    self._flush()
                    if event.data:
                        answer.pieces.append(event.data)
                        answer.arrived.append(time.perf_counter())
                        return event.data
                case h2.events.StreamEnded():
                    answer.ending = Ending.TERMINATED
                case h2.events.StreamReset():
                    answer.ending = Ending.RESET
                case None:
                    answer.ending = Ending.CLOSED
        return b""

    def leave(self, answer: Received | None = None, *, rst: bool = False) -> None:
        """Go away in mid-stream: `rst` ends this stream alone, otherwise the connection goes."""
        if answer is not None and answer.ending is None:
            answer.ending = Ending.LEFT
        if rst:
            self._h2.reset_stream(self._stream_id, ErrorCodes.CANCEL)
            self._flush()
        else:
            _leave(self._socket, rst=False)

    def close(self) -> None:
        with contextlib.suppress(OSError, h2.exceptions.ProtocolError):
            self._h2.close_connection()
            self._flush()
        self._socket.close()

    def _next(self) -> h2.events.Event | None:
        """The next event of the running stream, or None at the connection's end."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, h2.events.ConnectionTerminated):
                    return None
                if getattr(event, "stream_id", None) == self._stream_id and not isinstance(
                    event, h2.events.WindowUpdated | h2.events.PriorityUpdated
                ):
                    return event
            try:
                data = self._socket.recv(65536)
            except (ConnectionResetError, ssl.SSLEOFError):
                return None
            if not data:
                return None
            self._events += self._h2.receive_data(data)
            self._flush()

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._socket.sendall(data)


def _text(headers: Iterable[tuple[str | bytes, str | bytes]]) -> list[tuple[str, str]]:
    """What h2 gives with a header encoding, and does not say so."""
    return [(str(name), str(value)) for name, value in headers]


def _connect(
    address: tuple[str, int], tls: ssl.SSLContext | None, name: str
) -> socket.socket | ssl.SSLSocket:
    connection = socket.create_connection(address, TIMEOUT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        return connection
    try:
        return tls.wrap_socket(connection, server_hostname=name or address[0])
    except BaseException:
        connection.close()
        raise


def _leave(connection: socket.socket, *, rst: bool) -> None:
    if rst:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
