"""Edge. A SOCKS5 proxy as an HTTP proxy on loopback, because mitmproxy goes out through HTTP alone.

    our proxy -- CONNECT host:port, with a credential --> bridge -- SOCKS5 --> the proxy --> host

The bridge passes bytes on as they arrive, in both directions, and the end of each direction. As in
curl, the proxy resolves names with `socks5h`, and this machine does with `socks5`. If connecting
fails, the bridge answers 502 with the reason. mitmproxy shows it to the client, so it names the
proxy without its password.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import struct

from python_socks import ProxyError, ProxyType
from python_socks.async_.asyncio import Proxy as SocksProxy

from addon.run.command.connection_policy import USER, shows
from addon.run.command.outbound import Proxy
from ledger.text.printable import printable

TUNNELS_MAX = 1_000
"""At one time; each has two sockets, and a process may often have 4 096 or more."""
RELAY_BYTES = 64 * 2**10
"""Of one direction, read at once; as much again may wait to be written."""
HEAD_SECONDS_MAX = 10.0
"""mitmproxy sends the whole head at once."""
SOCKS_SECONDS_MAX = 30.0
"""The proxy, its greeting, and its connection to the host."""
REASON_CHARS_MAX = 300
SECRET_BYTES = 24


class Bridge:
    """Listens when it is made, so that its port is known; answers from `start` on."""

    def __init__(self, beyond: Proxy) -> None:
        """`beyond`: the SOCKS proxy."""
        self._beyond = beyond
        self._secret = secrets.token_urlsafe(SECRET_BYTES)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def proxy(self) -> Proxy:
        """The bridge as an HTTP proxy, with the credential that it wants."""
        return Proxy(
            scheme="http",
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            credentials=f"{USER}:{self._secret}",
            only_tunnels=True,
        )

    async def start(self) -> None:
        """Answer connections until the loop ends or `close` is called."""
        self._server = await asyncio.start_server(
            self._answer, sock=self._listener, limit=RELAY_BYTES
        )

    def close(self) -> None:
        """Accept no more."""
        if self._server is not None:
            self._server.close()
        self._listener.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            with contextlib.suppress(OSError):  # either side has gone
                await self._tunnel(reader, writer)
        finally:
            self._open -= 1
            writer.close()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        if not shows(head, self._secret):
            writer.write(_status(407, "Proxy Authentication Required"))
            return
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        is_connect = len(words) == 3 and words[0] == "CONNECT"
        host, _, port = words[1].rpartition(":") if is_connect else ("", "", "")
        is_port = port.isascii() and port.isdigit() and len(port) < 9 and 0 < int(port) < 65536
        if not (host and is_port):
            writer.write(_status(405, "This proxy answers CONNECT alone"))
            return
        if self._open > TUNNELS_MAX:
            writer.write(_status(503, f"{TUNNELS_MAX} connections are open"))
            return
        try:
            user, colon, password = (self._beyond.credentials or "").partition(":")
            socks = SocksProxy(
                ProxyType.SOCKS5,
                self._beyond.host,
                self._beyond.port,
                username=user if colon else None,
                password=password if colon else None,
                rdns=self._beyond.scheme == "socks5h",
            )
            beyond = await socks.connect(host.strip("[]"), int(port), timeout=SOCKS_SECONDS_MAX)
        except (OSError, ProxyError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            writer.write(_status(502, f"{self._beyond.url}: {reason}"))
            return
        there_reader, there_writer = await asyncio.open_connection(sock=beyond, limit=RELAY_BYTES)
        try:
            writer.write(_status(200, "Connection established"))
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, there_writer))
                both.create_task(_pass_on(there_reader, writer))
        except* OSError:
            # An ordinary close would look like the end of the data.
            for each in (writer, there_writer):
                with contextlib.suppress(OSError):
                    each.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                each.transport.abort()
        finally:
            there_writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, to its end."""
    while data := await reader.read(RELAY_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _status(code: int, reason: str) -> bytes:
    ending = "" if code == 200 else "Content-Length: 0\r\nConnection: close\r\n"
    text = printable(reason).encode("ascii", "replace").decode()[:REASON_CHARS_MAX]
    return f"HTTP/1.1 {code} {text}\r\n{ending}\r\n".encode()
