"""What stands between two sockets: proxies of other makers, and a line to a database."""

import base64
import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Self

from tests.proxy.mitmdump import free_port

JOIN_SECONDS = 30


class RelayingProxy:
    """Listens while it is entered; each connection is served in a thread of its own."""

    port: int

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self.serve(client)


def relay(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes on both ways until both sides have ended."""
    back = threading.Thread(target=_pump, args=[other, one], daemon=True)
    back.start()
    _pump(one, other)
    back.join(JOIN_SECONDS)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


class Line:
    """A TCP port before a server's UNIX socket: it can be cut and mended as a network can, go silent
    (it accepts and reads, and hands nothing on), and be slow. It begins cut."""

    def __init__(self, path: str) -> None:
        self.is_silent = False
        self.delay_seconds = 0.0
        self._path = path
        self._open: list[socket.socket] = []
        self.port = free_port()  # nobody gets it while the line is cut

    def mend(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self._open.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._path)
                self._open += [client, server]
                if listener.fileno() < 0:  # it was cut meanwhile
                    client.close()
                    server.close()
                    return
                for both in ((client, server), (server, client)):
                    arguments = (*both, self.is_silent)
                    threading.Thread(target=self._copy, args=arguments, daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket, is_dead: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                # A connection that was open while it was silent stays dead.
                is_dead |= self.is_silent
                if not is_dead:
                    time.sleep(self.delay_seconds)
                    other.sendall(data)
        for each in () if is_dead else (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@dataclass
class ConnectProxy(RelayingProxy):
    """`with ConnectProxy(credentials="user:pass") as proxy:`; `proxy.seen` are its requests."""

    credentials: str | None = None
    seen: list[str] = field(default_factory=list)
    """First lines; one that showed no credential where one is wanted begins with `407 `."""

    @property
    def url(self) -> str:
        who = f"{self.credentials}@" if self.credentials else ""
        return f"http://{who}127.0.0.1:{self.port}"

    def serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(65536)
            if not data:
                return
            head += data
        first = head.split(b"\r\n", 1)[0].decode()
        if self.credentials is not None:
            wanted = base64.b64encode(self.credentials.encode())
            if b"basic " + wanted.lower() not in head.lower():
                self.seen.append(f"407 {first}")
                client.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
                return
        self.seen.append(first)
        method, target, _ = first.split(" ")
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port)), 10) as upstream:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                relay(client, upstream)
        else:
            rest = target.removeprefix("http://")
            address, _, path = rest.partition("/")
            host, _, port = address.partition(":")
            line = f"{method} /{path} HTTP/1.1\r\n".encode()
            with socket.create_connection((host, int(port or 80)), 10) as upstream:
                upstream.sendall(line + head.split(b"\r\n", 1)[1])
                relay(client, upstream)
