"""A SOCKS5 proxy (RFC 1928), with or without user and password (RFC 1929)."""

import socket
import struct
from dataclasses import dataclass, field

from tests.proxy.relaying import RelayingProxy, relay

SUCCEEDED, NOT_ALLOWED = 0, 2


@dataclass
class SocksProxy(RelayingProxy):
    """`with SocksProxy(credentials="user:pass") as proxy:`; `proxy.seen` is where it was led."""

    credentials: str | None = None
    reply: int = SUCCEEDED
    """Any other: every connection is refused so."""
    seen: list[tuple[str, int]] = field(default_factory=list)
    """Name or address, and port, as they stood in the request."""
    wrong: list[str] = field(default_factory=list)
    """Credentials that were refused."""

    def url(self, scheme: str) -> str:
        who = f"{self.credentials}@" if self.credentials else ""
        return f"{scheme}://{who}127.0.0.1:{self.port}"

    def serve(self, client: socket.socket) -> None:
        with client.makefile("rb") as file:
            version, count = file.read(2)
            methods = file.read(count)
            assert version == 5
            method = 0 if self.credentials is None else 2
            if method not in methods:
                client.sendall(b"\x05\xff")
                return
            client.sendall(bytes([5, method]))
            if method == 2 and not self._knows(client, file):
                return
            request = file.read(4)
            if not request:
                return
            _, command, _, kind = request
            assert command == 1
            if kind == 3:
                host = file.read(file.read(1)[0]).decode()
            else:
                family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
                host = socket.inet_ntop(family, file.read(size))
            (port,) = struct.unpack(">H", file.read(2))
            self.seen.append((host, port))
            answer = bytes([5, self.reply, 0, 1, 0, 0, 0, 0, 0, 0])
            if self.reply != SUCCEEDED:
                client.sendall(answer)
                return
            # Every name leads to this machine.
            with socket.create_connection(("127.0.0.1", port), 10) as upstream:
                client.sendall(answer)
                relay(client, upstream)

    def _knows(self, client, file) -> bool:
        file.read(1)
        user = file.read(file.read(1)[0]).decode()
        password = file.read(file.read(1)[0]).decode()
        is_right = f"{user}:{password}" == self.credentials
        if not is_right:
            self.wrong.append(f"{user}:{password}")
        client.sendall(bytes([1, 0 if is_right else 1]))
        return is_right
