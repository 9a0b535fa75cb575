"""Edge (the event loop). The TCP ports that mitmproxy listens on: handed on to workers by their
supervisor, and closed as soon as the proxy stops, so that a load balancer takes another one."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterable
from typing import Any

import msgspec


class ListeningPort(msgspec.Struct, frozen=True, kw_only=True):
    """The sockets of one address, as a process that inherits them is told."""

    host: str
    """As mitmproxy's options have it; empty for all interfaces, which are two sockets."""
    port: int
    descriptors: tuple[int, ...]


class Ports:
    """mitmproxy's addon. mitmproxy opens its ports with the loop's `create_server`, before addons
    run."""

    name = "tokentee-ports"

    def __init__(self, handed_on: Iterable[ListeningPort] = ()) -> None:
        """`handed_on`: ports that other processes accept from, too; nothing is accepted from them
        before `serve`."""
        self._handed_on = {(port.host, port.port): port.descriptors for port in handed_on}
        self._servers: list[tuple[Any, asyncio.Server]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def load(self, _: object) -> None:
        """mitmproxy's hook, before it opens its ports."""
        loop = asyncio.get_running_loop()
        create: Any = loop.create_server

        async def create_server(factory: Any, host: str, port: int, **more: Any) -> asyncio.Server:
            descriptors = self._handed_on.get((host, port))
            if descriptors is None:
                servers = [await create(factory, host, port, **more)]
            else:
                more["start_serving"] = False
                sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
                servers = [await create(factory, sock=each, **more) for each in sockets]
            self._servers += [(factory, server) for server in servers]
            first: asyncio.Server = servers[0]
            return first

        loop.create_server = create_server  # type: ignore[method-assign, assignment]

    async def serve(self) -> None:
        """Accept connections from ports that were handed on."""
        for _, server in self._servers:
            await server.start_serving()

    def done(self) -> None:
        """mitmproxy's hook: accept no more connections, which would not be answered."""
        self.close()

    def close(self) -> None:
        """Stop listening. The kernel resets connections that wait in the queue of a closed socket,
        so they are accepted first."""
        loop = asyncio.get_running_loop()
        for factory, server in self._servers:
            for listening in server.sockets:
                queue = socket.socket(fileno=os.dup(listening.fileno()))
                queue.setblocking(False)
                with queue, contextlib.suppress(OSError):  # it is empty
                    while True:
                        connection, _ = queue.accept()
                        connection.setblocking(False)
                        accepted = loop.connect_accepted_socket(factory, connection)
                        self._tasks.add(loop.create_task(accepted))
            server.close()
        self._servers.clear()
