"""An HTTP proxy that tunnels: what stands between a company's machines and the internet."""

import base64
import socket
from dataclasses import dataclass, field

from tests.proxy.relaying import RelayingProxy, relay


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
