"""Sockets of another process in place of mitmproxy's own."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mitmproxy.proxy import mode_servers

from addon.proxy.host import given_sockets, sources
from addon.proxy.host.given_sockets import Acceptor, GivenSockets
from addon.proxy.host.sources import UnknownSourceError


def listening() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(16)
    made.setblocking(False)
    return made


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    writer.close()


@contextlib.asynccontextmanager
async def open_acceptor(made: socket.socket, **options) -> AsyncIterator[Acceptor]:
    acceptor = Acceptor(
        made, answer, **({"yields": lambda: False, "count": lambda _: None} | options)
    )
    acceptor.open()
    yield acceptor
    acceptor.close()


async def echo(port: int) -> bytes:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        answered = await reader.read()
        writer.close()
        return answered


async def test_nothing_is_accepted_before_it_is_opened():
    made = listening()
    port = made.getsockname()[1]
    counted: list[int] = []
    acceptor = Acceptor(made, answer, yields=lambda: False, count=counted.append)
    asked = asyncio.create_task(echo(port))
    await asyncio.sleep(0)
    assert counted == []
    acceptor.open()
    assert await asked == b"hello\n"
    assert counted == [1]
    acceptor.close()
    assert acceptor.sockets == ()
    with pytest.raises(OSError):
        await echo(port)


async def test_a_worker_that_yields_takes_what_nobody_else_took():
    made = listening()
    async with open_acceptor(made, yields=lambda: True):
        assert await echo(made.getsockname()[1]) == b"hello\n"


async def test_a_process_without_descriptors_tries_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(given_sockets, "FULL_SECONDS", 0.001)

    class Full(socket.socket):
        failures = 2

        def accept(self):
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "full")
            return super().accept()

    plain = listening()
    made = Full(fileno=plain.detach())
    async with open_acceptor(made):
        assert await echo(made.getsockname()[1]) == b"hello\n"


async def test_closed_while_it_waits():
    made = listening()
    port = made.getsockname()[1]
    async with open_acceptor(made, yields=lambda: True):
        client = socket.create_connection(("127.0.0.1", port), 5)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    client.close()
    await asyncio.sleep(2 * given_sockets.YIELD_SECONDS)


async def test_mitmproxy_listens_on_what_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        mode_servers.AsyncioServerInstance, "listen", mode_servers.AsyncioServerInstance.listen
    )
    made = listening()
    given = GivenSockets({("h", 1): [made.fileno()]})
    given.install()

    class Instance:
        handle_stream = staticmethod(answer)

    listen = mode_servers.AsyncioServerInstance.listen
    acceptors: list[Any] = await listen(Instance(), "h", 1)  # type: ignore[arg-type]
    given.open()
    assert await echo(acceptors[0].sockets[0].getsockname()[1]) == b"hello\n"
    given.close()
    with pytest.raises(OSError, match="no socket for it"):
        await listen(Instance(), "h", 2)  # type: ignore[arg-type]
    made.detach()


def test_another_mitmproxy_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sources.KNOWN, given_sockets.RELIES_ON[0], "0" * 16)
    with pytest.raises(UnknownSourceError):
        GivenSockets({}).install()
