"""Edge. Listening sockets that another process has opened, where mitmproxy would open its own.

Why: several workers accept from one socket, and their supervisor keeps it open while one worker
takes the place of another. mitmproxy has no option for a socket that is there already.

`install` replaces `AsyncioServerInstance.listen` in this process. Where that is another one it
raises, and the worker does not start. Nothing is accepted before `open`: by then every addon runs,
so that no exchange passes unrecorded while a worker takes over.

A worker that has more connections than another leaves a new one to that one for
`YIELD_SECONDS`, and takes it then if it is still there.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mitmproxy.proxy import mode_servers

from addon.proxy.host import sources

RELIES_ON = ("mitmproxy.proxy.mode_servers:AsyncioServerInstance.listen",)
YIELD_SECONDS = 0.005
"""An idle worker accepts within some 0.1 ms. One that has not by then is at work, or has no core,
and is not the better one."""
FULL_SECONDS = 1.0
"""Pause when the process has no descriptor left, as asyncio has it."""
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

type Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


class GivenSockets:
    """The sockets of this process by the host and port that mitmproxy asks for."""

    def __init__(
        self,
        descriptors: Mapping[tuple[str, int], Sequence[int]],
        *,
        yields: Callable[[], bool] = lambda: False,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`yields`: whether another process should take the next connection; `count` is called
        with 1 for each that is accepted, and with -1 if it is gone before mitmproxy has it."""
        self._descriptors = descriptors
        self._yields = yields
        self._count = count
        self._acceptors: list[Acceptor] = []

    def install(self) -> None:
        """Have mitmproxy listen on these. Raises UnknownSourceError."""
        sources.check(RELIES_ON)
        given = self

        async def listen(
            self: mode_servers.AsyncioServerInstance[mode_servers.M], host: str, port: int
        ) -> list[Acceptor]:
            return given.acceptors(self.handle_stream, host, port)

        mode_servers.AsyncioServerInstance.listen = listen  # type: ignore[assignment, method-assign]

    def acceptors(self, handle: Handler, host: str, port: int) -> list[Acceptor]:
        """What stands for mitmproxy's servers of one address; it does not accept yet."""
        if (host, port) not in self._descriptors:
            raise OSError(errno.EADDRNOTAVAIL, "the supervisor has no socket for it")
        made = [
            Acceptor(socket.socket(fileno=each), handle, yields=self._yields, count=self._count)
            for each in self._descriptors[host, port]
        ]
        self._acceptors += made
        return made

    def open(self) -> None:
        """Begin to accept."""
        for each in self._acceptors:
            each.open()

    def close(self) -> None:
        """Stop to accept; the sockets of other processes stay as they are."""
        for each in self._acceptors:
            each.close()


class Acceptor:
    """Takes connections from one listening socket, one in each turn of the event loop."""

    def __init__(
        self,
        listening: socket.socket,
        handle: Handler,
        *,
        yields: Callable[[], bool],
        count: Callable[[int], None],
    ) -> None:
        self.sockets: tuple[socket.socket, ...] = (listening,)
        """As of an `asyncio.Server`; empty when closed."""
        self._handle = handle
        self._yields = yields
        self._count = count
        self._later: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def open(self) -> None:
        """Begin to accept."""
        for each in self.sockets:
            asyncio.get_running_loop().add_reader(each.fileno(), self._on_readable)

    def close(self) -> None:
        """Stop to accept."""
        if self._later is not None:
            self._later.cancel()
        for each in self.sockets:
            asyncio.get_running_loop().remove_reader(each.fileno())
            each.close()
        self.sockets = ()

    def _on_readable(self) -> None:
        if self._yields():
            self._pause(YIELD_SECONDS)
        else:
            self._accept()

    def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.sockets[0].fileno())
        self._later = loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._later = None
        self.open()
        self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self.sockets[0].accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was first
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._pause(FULL_SECONDS)
            return
        self._count(1)
        connection.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._begin(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, connection: socket.socket) -> None:
        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._handle)

        try:
            await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)
        except OSError:  # it is gone already
            self._count(-1)
