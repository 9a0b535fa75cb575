"""The bridge alone, before a real SOCKS5 proxy."""

import asyncio
import base64
import contextlib
import socket
import struct

import pytest

from addon.run.command import socks_bridge
from addon.run.command.outbound import Proxy
from addon.run.command.socks_bridge import Bridge
from tests.named import for_each
from tests.proxy.relaying import SocksProxy


def beyond(proxy, scheme="socks5h"):
    return Proxy(scheme=scheme, host="127.0.0.1", port=proxy.port, credentials=proxy.credentials)


def head(bridge, target="upstream.test:80", method="CONNECT", secret=None):
    who = base64.b64encode((secret or bridge.proxy.credentials).encode()).decode()
    return f"{method} {target} HTTP/1.1\r\nProxy-Authorization: Basic {who}\r\n\r\n".encode()


@contextlib.asynccontextmanager
async def opened(bridge):
    await bridge.start()
    reader, writer = await asyncio.open_connection(*bridge.proxy.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        bridge.close()


async def answer_to(bridge, data):
    async with opened(bridge) as (reader, writer), asyncio.timeout(20):
        writer.write(data)
        return (await reader.read()).decode()


@contextlib.asynccontextmanager
async def upstream(serve):
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def test_bytes_pass_both_ways_and_so_does_the_end_of_each():
    sent = bytes(range(256)) * 4_000  # 1 MB: more than all buffers

    async def echo_then_more(reader, writer):
        data = await reader.read()  # to the end of the client's direction
        writer.write(data[::-1])
        await writer.drain()
        writer.close()

    async def go(proxy):
        bridge = Bridge(beyond(proxy))
        async with upstream(echo_then_more) as port, opened(bridge) as (reader, writer):
            async with asyncio.timeout(30):
                writer.write(head(bridge, f"upstream.test:{port}"))
                assert await reader.readuntil(b"\r\n\r\n") == (
                    b"HTTP/1.1 200 Connection established\r\n\r\n"
                )
                writer.write(sent)
                writer.write_eof()
                got = await reader.read()
            assert proxy.seen == [("upstream.test", port)]
            return got

    with SocksProxy(credentials="me:p:ss") as proxy:
        assert asyncio.run(go(proxy)) == sent[::-1]


def test_what_came_behind_the_head_is_not_lost():
    async def echo(reader, writer):
        writer.write(await reader.readexactly(5))
        writer.close()

    async def go(proxy):
        bridge = Bridge(beyond(proxy))
        async with upstream(echo) as port:
            return await answer_to(bridge, head(bridge, f"upstream.test:{port}") + b"hello")

    with SocksProxy() as proxy:
        assert asyncio.run(go(proxy)).endswith("\r\n\r\nhello")


def test_a_connection_that_breaks_off_does_not_look_complete():
    async def reset(reader, writer):
        await reader.read(1)
        writer.write(b"half")
        await writer.drain()
        writer.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()

    async def direct_socks(reader, writer):
        """A SOCKS proxy that breaks off like its upstream."""
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        await reader.readexactly(5)
        await reader.read(100)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await reset(reader, writer)

    async def go():
        async with upstream(direct_socks) as port:
            bridge = Bridge(Proxy(scheme="socks5h", host="127.0.0.1", port=port))
            return await answer_to(bridge, head(bridge) + b"x")

    with pytest.raises(ConnectionResetError):
        asyncio.run(go())


@for_each(
    "data, status",
    [
        (lambda bridge: head(bridge, secret="tokentee:wrong"), "407"),
        (lambda bridge: b"CONNECT a:1 HTTP/1.1\r\n\r\n", "407"),
        (lambda bridge: head(bridge, method="GET", target="http://a/"), "405"),
        (lambda bridge: head(bridge, target="no-port"), "405"),
        (lambda bridge: head(bridge, target="a:99999"), "405"),
    ],
    ids=["wrong-secret", "no-secret", "no-tunnel", "no-port", "no-such-port"],
)
def test_it_answers_our_proxy_alone_and_tunnels_alone(data, status):
    with SocksProxy() as proxy:
        bridge = Bridge(beyond(proxy))
        assert asyncio.run(answer_to(bridge, data(bridge))).startswith(f"HTTP/1.1 {status} ")
        assert proxy.seen == []


def test_too_many_connections_are_refused(monkeypatch):
    monkeypatch.setattr(socks_bridge, "TUNNELS_MAX", 0)
    with SocksProxy() as proxy:
        bridge = Bridge(beyond(proxy))
        assert asyncio.run(answer_to(bridge, head(bridge))).startswith("HTTP/1.1 503 ")
        assert proxy.seen == []


def test_a_head_that_does_not_come_or_has_no_end_is_dropped(monkeypatch):
    monkeypatch.setattr(socks_bridge, "HEAD_SECONDS_MAX", 0.05)
    with SocksProxy() as proxy:
        assert asyncio.run(answer_to(Bridge(beyond(proxy)), b"CONNECT")) == ""


def test_a_proxy_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(socks_bridge, "SOCKS_SECONDS_MAX", 0.05)

    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async def go():
        async with upstream(silent) as port:
            bridge = Bridge(
                Proxy(scheme="socks5", host="127.0.0.1", port=port, credentials="me:s3cret")
            )
            return await answer_to(bridge, head(bridge)), port

    answer, port = asyncio.run(go())
    assert answer.startswith(f"HTTP/1.1 502 socks5://127.0.0.1:{port}: ")
    assert "timed out" in answer
    assert "s3cret" not in answer


def test_a_name_that_this_machine_cannot_resolve():
    with SocksProxy() as proxy:
        bridge = Bridge(beyond(proxy, "socks5"))
        answer = asyncio.run(answer_to(bridge, head(bridge, "nowhere.invalid:80")))
        assert answer.startswith("HTTP/1.1 502 socks5://")
        assert proxy.seen == []
