"""What proxies of other makers do alike: they listen on loopback and relay between two sockets."""

import contextlib
import socket
import threading
from typing import Self

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
