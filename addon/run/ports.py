"""Edge (the event loop). The TCP ports that mitmproxy listens on: shared by workers, and closed as
soon as the proxy stops, so that a load balancer takes another one."""

import asyncio
import contextlib
import os
import socket
from typing import Any


class Ports:
    """mitmproxy's addon. mitmproxy opens its ports with the loop's `create_server`, before addons
    run."""

    name = "tokentee-ports"

    def __init__(self, *, are_shared: bool = False) -> None:
        """`are_shared`: with other processes; nothing is accepted before `serve`."""
        self._are_shared = are_shared
        self._servers: list[tuple[Any, asyncio.Server]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def load(self, _: object) -> None:
        """mitmproxy's hook, before it opens its ports."""
        loop = asyncio.get_running_loop()
        create: Any = loop.create_server
        sharing: dict[str, Any] = (
            {"reuse_port": True, "start_serving": False} if self._are_shared else {}
        )

        async def create_server(factory: Any, *address: Any, **more: Any) -> asyncio.Server:
            server: asyncio.Server = await create(factory, *address, **more, **sharing)
            self._servers.append((factory, server))
            return server

        loop.create_server = create_server  # type: ignore[method-assign, assignment]

    async def serve(self) -> None:
        """Accept connections at shared ports."""
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
