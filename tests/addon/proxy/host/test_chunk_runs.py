"""Chunks that came in one read go on together, cut where they were cut."""

import itertools
from typing import Any

import h11
import pytest
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http
from mitmproxy.connection import Client, ConnectionState, Server
from mitmproxy.options import Options
from mitmproxy.proxy import commands, context, events
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import ResponseData, ResponseEndOfMessage
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server
from mitmproxy.proxy.mode_specs import ProxyMode

from addon.proxy.host import chunk_runs
from addon.proxy.host.chunk_run import ChunkRun, chunks_of
from addon.proxy.host.chunk_runs import take_chunks
from tests.addon.proxy.host.layers import place


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
