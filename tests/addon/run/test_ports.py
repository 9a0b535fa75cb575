"""Ports that open late, and are closed at once."""

import asyncio
import socket

import pytest

from addon.run.ports import Ports
from tests.proxy.mitmdump import free_port


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    writer.close()


async def ask(port: int) -> bytes:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        answered = await reader.read()
        writer.close()
        return answered


async def test_nothing_listens_before_it_is_open_and_the_queue_is_emptied_at_the_end():
    ports = Ports(are_shared=True)
    ports.load(None)
    port = free_port()
    await asyncio.start_server(echo, "127.0.0.1", port)
    await asyncio.start_server(echo, "127.0.0.1", port)  # as another process would
    with pytest.raises(ConnectionRefusedError):
        await ask(port)
    await ports.serve()
    assert await ask(port) == b"hello\n"
    # Connections that wait in the queues, since the loop did not turn.
    clients = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(20)]
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
