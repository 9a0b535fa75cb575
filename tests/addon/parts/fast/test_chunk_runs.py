"""Chunks that came in one read go on together, cut where they were cut; how much is read at once follows what
passing it on takes."""

import asyncio
import itertools
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import h11
import pytest
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http, options
from mitmproxy.connection import Client, ConnectionState, Server
from mitmproxy.options import Options
from mitmproxy.proxy import commands, context, events
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import ResponseData, ResponseEndOfMessage
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server import SimpleConnectionHandler

from addon.parts.fast import chunk_runs, read_sizes
from addon.parts.fast.chunk_runs import take_chunks
from addon.parts.fast.read_sizes import (
    PIECE_BYTES,
    READ_BYTES_FIRST,
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    TURN_SECONDS_LOW,
    TURN_SECONDS_MAX,
)
from addon.proxy.answers import ChunkRun, chunks_of
from tests.addon.parts.fast.place import place


def pieces_of(reads: list[bytes], *, taken_together: bool) -> list[bytes | str]:
    """The pieces of a body that comes in these reads, and how it ends."""
    reader, buffer = ChunkedReader(), ReceiveBuffer()
    found: list[bytes | str] = []
    for read in reads:
        buffer += read
        if taken_together:
            found += take_chunks(reader, buffer)
        while True:
            try:
                event = reader(buffer)
            except h11.ProtocolError:
                return [*found, "broken"]
            if event is None:
                break
            if isinstance(event, h11.EndOfMessage):
                return [*found, "end"]
            found.append(bytes(event.data))
    return found


def cut(body: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(body), *(place % (len(body) + 1) for place in cuts)})
    return [body[a:b] for a, b in itertools.pairwise(places)]


SIZES = st.sampled_from(
    [b"%x\r\n%b\r\n", b"%X\r\n%b\r\n", b"00%x\r\n%b\r\n", b"%x;a=b\r\n%b\r\n", b"%x \r\n%b\r\n"]
)
CHUNKS = st.lists(st.tuples(SIZES, st.binary(min_size=1, max_size=40)), max_size=8)
ENDS = st.sampled_from(
    [
        b"0\r\n\r\n",
        b"0\r\nx: y\r\n\r\n",
        b"",
        b"zz\r\n",
        b"-1\r\n",
        b"5\r\nabcdefg\r\n",
        b"1\nx\r\n",
    ]
)


@given(CHUNKS, ENDS, st.lists(st.integers(0, 1_000), max_size=6))
def test_every_piece_is_the_one_that_mitmproxy_gives(chunks, end, cuts):
    body = b"".join(form % (len(data), data) for form, data in chunks) + end
    reads = cut(body, cuts)
    assert pieces_of(reads, taken_together=True) == pieces_of(reads, taken_together=False)


def test_all_chunks_of_a_read_are_taken_and_what_is_left_is_the_readers():
    reader, buffer = ChunkedReader(), ReceiveBuffer()
    buffer += b"2\r\nab\r\n3\r\ncde\r\n4\r\nfg"
    assert take_chunks(reader, buffer) == [b"ab", b"cde"]
    assert bytes(buffer) == b"4\r\nfg"


@pytest.fixture
def installed():
    uninstall = chunk_runs.install(place(takes_runs=lambda _: True))
    yield
    uninstall()


def layers(version: str = "HTTP/1.1") -> tuple[Http1Client, Http1Server]:
    """The two ends of one exchange whose response's headers have passed."""
    client = Client(
        peername=("127.0.0.1", 1),
        sockname=("127.0.0.1", 2),
        proxy_mode=ProxyMode.parse("regular"),
        state=ConnectionState.OPEN,
    )
    of = context.Context(client, Options())
    of.server = Server(address=("127.0.0.1", 3))
    upstream, downstream = Http1Client(of), Http1Server(of)
    request = http.Request.make("POST", "http://127.0.0.1:3/")
    request.http_version = version
    response = http.Response.make(200, b"", {"transfer-encoding": "chunked"})
    for one in (upstream, downstream):
        one.stream_id, one.request, one.response = 1, request, response
    upstream.body_reader = ChunkedReader()
    upstream.state = upstream.read_body
    return upstream, downstream


def received(upstream: Http1Client, read: bytes) -> list[Any]:
    """The HTTP events of one read."""
    found = upstream._handle_event(events.DataReceived(upstream.conn, read))
    return [command.event for command in found if isinstance(command, ReceiveHttp)]


def sent(downstream: Http1Server, event: Any) -> list[bytes]:
    return [
        command.data
        for command in downstream._handle_event(event)
        if isinstance(command, commands.SendData)
    ]


READ = b"2\r\nab\r\nA;x=1\r\n0123456789\r\n1\r\nc\r\n1\r\nd\r\n3\r\nef"


@pytest.mark.usefixtures("installed")
def test_a_read_is_one_event_and_one_write():
    upstream, downstream = layers()
    passed = received(upstream, b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n")
    assert [type(event) for event in passed] == [ResponseData, ResponseEndOfMessage]
    assert passed[0].data == b"abcde"
    assert chunks_of(passed[0].data) == [b"ab", b"cde"]
    assert sent(downstream, passed[0]) == [b"2\r\nab\r\n3\r\ncde\r\n"]


def test_the_client_gets_what_mitmproxy_alone_would_send():
    def written() -> bytes:
        upstream, downstream = layers()
        return b"".join(
            piece
            for read in (READ, b"g\r\n2\r\nhi\r\n1\r\nj\r\n")
            for event in received(upstream, read)
            for piece in sent(downstream, event)
        )

    alone = written()
    uninstall = chunk_runs.install(place(takes_runs=lambda _: True))
    try:
        assert written() == alone
    finally:
        uninstall()


@pytest.mark.usefixtures("installed")
def test_an_error_comes_after_the_chunks_before_it():
    upstream, _ = layers()
    first, second = received(upstream, b"2\r\nab\r\n1\r\nc\r\nzz\r\n")
    assert first.data == b"abc"
    assert "protocol error" in second.message


@pytest.mark.usefixtures("installed")
def test_the_chunks_of_an_http2_client_stay_apart():
    upstream, _ = layers("HTTP/2.0")
    assert [event.data for event in received(upstream, b"2\r\nab\r\n1\r\nc\r\n")] == [b"ab", b"c"]


@pytest.mark.usefixtures("installed")
def test_a_run_goes_to_a_client_without_chunks_as_it_is():
    _, downstream = layers()
    assert downstream.response is not None
    del downstream.response.headers["transfer-encoding"]
    assert sent(downstream, ResponseData(1, ChunkRun.of([b"ab", b"c"]))) == [b"abc"]


@pytest.mark.usefixtures("installed")
def test_what_an_addon_makes_of_a_run_is_one_chunk():
    _, downstream = layers()
    assert sent(downstream, ResponseData(1, ChunkRun.of([b"ab", b"c"]) + b"d")) == [
        b"4\r\nabcd\r\n"
    ]


SENT = bytes(1024 * 1024)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The clock of the wrappers."""
    passed = [0.0]
    monkeypatch.setattr(read_sizes, "monotonic", lambda: passed[0])
    uninstall = read_sizes.install(None)
    yield passed
    uninstall()


type SecondsOf = Callable[[int], float]
"""What passing on a piece of this size takes."""


def handler_of(
    reader: object, writer: object, passed_on: Callable[[int], None]
) -> SimpleConnectionHandler:
    """mitmproxy's handler of a client, with a layer that is told how much was read."""

    def handle_event(event: events.Event) -> list[object]:
        if isinstance(event, events.DataReceived):
            passed_on(len(event.data))
        return []

    mode = ProxyMode.parse("regular")
    handler = SimpleConnectionHandler(reader, writer, options.Options(), mode, {})
    handler.layer = SimpleNamespace(handle_event=handle_event)  # type: ignore[assignment]
    return handler


def sizes_read(seconds: list[float], seconds_of: SecondsOf) -> list[int]:
    """What a layer gets at once of `SENT`."""
    got: list[int] = []

    def passed_on(size: int) -> None:
        got.append(size)
        seconds[0] += seconds_of(size)

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        handler = handler_of(reader, writer, passed_on)
        reading = asyncio.create_task(handler.handle_connection(handler.client))
        with theirs:
            await asyncio.get_running_loop().sock_sendall(theirs, SENT)
        while sum(got) < len(SENT):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.close()
        await writer.wait_closed()

    asyncio.run(scenario())
    assert sum(got) == len(SENT)
    return got


def sizes_of_turns(seconds: list[float], seconds_of: SecondsOf) -> list[int]:
    """What a layer gets in each turn of the loop, of 256 KB that one read has brought."""
    got = [0]

    def passed_on(size: int) -> None:
        got[-1] += size
        seconds[0] += seconds_of(size)

    async def scenario() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(bytes(READ_BYTES_MAX))
        writer = SimpleNamespace(get_extra_info=lambda _name, default=None: default, close=list)
        handler = handler_of(reader, writer, passed_on)
        handler.transports[handler.client].writer = None
        reading = asyncio.create_task(handler.handle_connection(handler.client))
        while sum(got) < READ_BYTES_MAX:
            await asyncio.sleep(0)
            got.append(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(scenario())
    return [size for size in got if size]


def test_cheap_bytes_are_soon_read_in_large_parts(seconds: list[float]):
    got = sizes_read(seconds, lambda _: 0.0)
    # Two reads may be passed on together.
    assert got[0] <= 2 * READ_BYTES_FIRST
    assert max(got) > 2 * READ_BYTES_FIRST


@pytest.mark.parametrize("size", [READ_BYTES_FIRST, PIECE_BYTES + 1, READ_BYTES_MAX])
async def test_two_cheap_full_reads_double_the_next_ones_up_to_what_asyncio_reads(
    seconds: list[float], size: int
):
    transport = SimpleNamespace(max_size=size)
    writer = SimpleNamespace(get_extra_info=lambda _name, default=None: default, close=list)
    reader = SimpleNamespace(_transport=transport)
    handler = handler_of(reader, writer, lambda _: None)
    half = bytes(READ_BYTES_FIRST // 2)
    await handler.server_event(events.DataReceived(handler.client, half))
    assert transport.max_size == size
    full = bytes(min(size, PIECE_BYTES))
    for data in (full, half, full, full):  # not two in a row before the last
        assert transport.max_size == size
        await handler.server_event(events.DataReceived(handler.client, data))
    assert transport.max_size == min(2 * size, READ_BYTES_MAX)


async def test_cheap_reads_between_long_ones_do_not_make_the_next_larger(seconds: list[float]):
    """As with TLS records, of which the last part alone brings mitmproxy any frames."""
    transport = SimpleNamespace(max_size=READ_BYTES_FIRST)
    turn = [0.0]

    def passed_on(_: int) -> None:
        seconds[0] += turn[0]

    writer = SimpleNamespace(get_extra_info=lambda _name, default=None: default, close=list)
    handler = handler_of(SimpleNamespace(_transport=transport), writer, passed_on)
    for turn[0] in (0.0, 2 * TURN_SECONDS_MAX, 0.0, 2 * TURN_SECONDS_MAX, 0.0):
        data = bytes(transport.max_size)
        await handler.server_event(events.DataReceived(handler.client, data))
    assert transport.max_size == READ_BYTES_FIRST // 4


def test_a_turn_ends_with_the_piece_that_took_long(seconds: list[float]):
    """Reads had become large; mitmproxy takes what one brought in pieces of 64 KB."""
    got = sizes_of_turns(seconds, lambda _: 2 * TURN_SECONDS_MAX)
    assert got == [65535, 65535, 65535, 65535, 4]


def test_a_turn_goes_on_while_pieces_take_little(seconds: list[float]):
    assert sizes_of_turns(seconds, lambda _: 0.0) == [READ_BYTES_MAX]


def test_bytes_that_take_long_are_read_in_small_parts(seconds: list[float]):
    got = sizes_read(seconds, lambda size: size * 2 * TURN_SECONDS_MAX / 4096)
    assert got[0] <= 2 * READ_BYTES_FIRST
    assert max(got[20:]) <= 4096


def test_no_read_is_smaller_than_the_least(seconds: list[float]):
    got = sizes_read(seconds, lambda _: 2 * TURN_SECONDS_MAX)
    assert min(got[:-1]) >= READ_BYTES_MIN
    assert max(got[20:]) <= 2 * READ_BYTES_MIN


def test_what_takes_neither_long_nor_little_stays_as_it_is(seconds: list[float]):
    got = sizes_read(seconds, lambda _: (TURN_SECONDS_LOW + TURN_SECONDS_MAX) / 2)
    assert max(got) <= 2 * READ_BYTES_FIRST
    assert len(got) <= 2 * len(SENT) // READ_BYTES_FIRST


async def test_a_connection_of_another_kind_is_read_as_mitmproxy_reads_it(seconds: list[float]):
    """The streams of mitmproxy's own UDP have no transport of asyncio's."""
    read: list[object] = []

    async def ends(_bytes: int) -> bytes:
        read.append(_bytes)
        raise asyncio.CancelledError

    writer = SimpleNamespace(get_extra_info=lambda _name, default=None: default, close=list)
    handler = handler_of(SimpleNamespace(read=ends), writer, lambda _: None)
    await handler.server_event(events.DataReceived(handler.client, bytes(READ_BYTES_MAX)))
    with pytest.raises(asyncio.CancelledError):
        await handler.handle_connection(handler.client)
    assert read == [65535]
