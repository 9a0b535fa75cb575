"""Ports that open late, and are closed at once."""

import asyncio
import os
import socket

import pytest

from addon.run.ports import ListeningPort, Ports
from tests.proxy.mitmdump import free_port


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    writer.close()


async def ask(port: int, host: str = "127.0.0.1") -> bytes:
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"hello\n")
        answered = await reader.read()
        writer.close()
        return answered


async def test_what_one_process_does_not_accept_another_one_does():
    sockets = (
        socket.create_server(("127.0.0.1", 0)),
        socket.create_server(("::1", 0), family=socket.AF_INET6),
    )
    port = sockets[0].getsockname()[1]
    one, two = (
        Ports(
            [
                ListeningPort(
                    host="", port=port, descriptors=tuple(os.dup(each.fileno()) for each in sockets)
                )
            ]
        )
        for _ in range(2)
    )
    loop = asyncio.get_running_loop()
    create = loop.create_server
    for process in (one, two):
        process.load(None)
        await asyncio.start_server(echo, "", port)
        loop.create_server = create  # type: ignore[method-assign]
    waiting = socket.create_connection(("127.0.0.1", port), 60)
    waiting.sendall(b"waited\n")
    await asyncio.sleep(0.1)
    waiting.setblocking(False)
    with pytest.raises(BlockingIOError):  # nobody accepts before `serve`
        waiting.recv(99)
    waiting.settimeout(60)
    await one.serve()
    assert await asyncio.to_thread(waiting.recv, 99) == b"waited\n"
    waiting.close()

    await two.serve()
    one.close()
    assert await ask(port) == b"hello\n"
    assert await ask(sockets[1].getsockname()[1], "::1") == b"hello\n"
    two.close()
    for each in sockets:
        each.close()
    with pytest.raises(ConnectionRefusedError):
        await ask(port)


async def test_the_queue_is_emptied_at_the_end():
    ports = Ports()
    ports.load(None)
    port = free_port()
    await asyncio.start_server(echo, "127.0.0.1", port)
    # Connections that wait in the queue, since the loop did not turn.
    clients = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(20)]
    ports.close()
    for client in clients:
        client.sendall(b"waited\n")
    for client in clients:
        with client:
            assert await asyncio.to_thread(client.recv, 99) == b"waited\n"
    with pytest.raises(ConnectionRefusedError):
        await ask(port)


async def test_a_port_of_one_process_is_open_until_the_proxy_stops():
    ports = Ports()
    ports.load(None)
    port = free_port()
    await asyncio.start_server(echo, "127.0.0.1", port)
    assert await ask(port) == b"hello\n"
    ports.done()
    with pytest.raises(ConnectionRefusedError):
        await ask(port)
