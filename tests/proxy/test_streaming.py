"""Each piece arrives before the next one is sent, and encoded answers are metered as they pass."""

import asyncio
import gzip
import itertools
import random
from collections.abc import Callable, Iterator

import brotli
import pytest
import zstandard

from tests.proxy.client import Ending, Http1, Received
from tests.proxy.pair import (
    ANTHROPIC,
    BY_NAME,
    OPENAI,
    Pair,
    exchange,
    headers_for,
    new_tag,
    pair,
    post,
)
from tests.proxy.upstream import Answer, Framing, Request
from tests.proxy.wire import ASKED, Ask, Wire, asks
from tests.proxy.wires import EVERY_ASK

pytestmark = pytest.mark.proxy


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("streaming"), with_bare=False) as made:
        yield made


@pytest.mark.parametrize(("wire", "ask"), EVERY_ASK)
def test_no_frame_waits_for_a_later_one(running: Pair, wire: Wire, ask: Ask) -> None:
    """Upstream sends a frame only when the client has had all of the frame before.

    A frame that was held back would never come, and the client's wait would run out.
    """
    gate = running.upstream.gate()
    running.upstream.script = lambda request: Answer(
        pieces=wire.answer(asked=asks(request.body)), content_type=wire.content_type, gate=gate
    )
    with Http1(running.tee.address()) as client:
        post(client, wire, new_tag(), asked=ASKED[ask])
        received = client.head()
        for due in due_after_each(wire, ask):
            assert client.is_quiet()
            gate.release()
            read_to(client, received, due)
        assert client.more(received) == b""
        assert client.is_quiet()
    assert received.body == b"".join(wire.answer(asked=ask is Ask.ASKED))
    assert received.ending is Ending.TERMINATED


def due_after_each(wire: Wire, ask: Ask) -> list[int]:
    """How many bytes the client must have after each frame that upstream sends."""
    sent = wire.answer(asked=wire.is_opt_in or ask is Ask.ASKED)
    due = list(itertools.accumulate(len(frame) for frame in wire.answer(asked=ask is Ask.ASKED)))
    if len(sent) > len(due):
        due.insert(-1, due[-2])  # the usage chunk before the end mark brings the client nothing
    return due


def read_to(client: Http1, received: Received, size: int) -> None:
    """Read until the body has just that size."""
    while len(received.body) < size:
        assert client.more(received), f"ended {received.ending} at {len(received.body)} of {size}"
    assert len(received.body) == size


@pytest.mark.parametrize("wire", [OPENAI, BY_NAME["chuizi"]], ids=lambda wire: wire.name)
@pytest.mark.parametrize("seed", range(4))
def test_when_editing_only_the_incomplete_frame_is_held(
    running: Pair, wire: Wire, seed: int
) -> None:
    """For pieces cut anywhere: what is complete has gone on before the next piece is sent."""
    frames = wire.answer(asked=True)
    body = b"".join(frames)
    cuts = sorted(random.Random(seed).sample(range(1, len(body)), 15))
    pieces = [body[start:end] for start, end in itertools.pairwise([0, *cuts, len(body)])]
    gate = running.upstream.gate()
    running.upstream.script = lambda _: Answer(pieces=tuple(pieces), gate=gate)
    ends = list(itertools.accumulate(len(frame) for frame in frames))
    due = [0, *due_after_each(wire, Ask.NOT_ASKED)]
    with Http1(running.tee.address()) as client:
        post(client, wire, new_tag(), asked=None)
        received = client.head()
        for sent in itertools.accumulate(len(piece) for piece in pieces):
            gate.release()
            read_to(client, received, due[sum(end <= sent for end in ends)])
        assert client.more(received) == b""
    assert received.body == b"".join(wire.answer(asked=False))
    assert received.ending is Ending.TERMINATED


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "not-streamed"])
@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("gzip, zstd", lambda data: zstandard.compress(gzip.compress(data))),
        ("identity", bytes),
    ],
    ids=["gzip", "two", "identity"],
)
def test_encoded_answers_are_metered_and_untouched(
    running: Pair, encoding: str, encode: Callable[[bytes], bytes], *, is_streamed: bool
) -> None:
    """`test_decoding` has every encoding, whole, cut off and broken."""
    frames = b"".join(ANTHROPIC.frames)
    document = (
        b'{"id":"msg_w7","type":"message","role":"assistant","model":"claude-sonnet-4-6",'
        b'"content":[{"type":"text","text":"In the"}],"stop_reason":"end_turn","usage":'
        b'{"input_tokens":25,"cache_creation_input_tokens":200,"cache_read_input_tokens":1000,'
        b'"output_tokens":17}}'
    )
    packed = encode(frames if is_streamed else document)
    pieces = tuple(packed[at : at + 97] for at in range(0, len(packed), 97))
    running.upstream.script = lambda _: Answer(
        pieces=pieces,
        content_type="text/event-stream" if is_streamed else "application/json",
        headers=(("content-encoding", encoding),),
        framing=Framing.CHUNKED if is_streamed else Framing.LENGTH,
    )
    tag = new_tag()
    received = exchange(running.tee, ANTHROPIC, tag, ("accept-encoding", encoding))
    assert received.body == packed
    assert received.header("content-encoding") == encoding
    row = running.row(tag)
    assert (row["outcome"], row["degraded"]) == ("complete", None)
    assert (row["input_tokens"], row["output_tokens"]) == (1225, 17)
    assert row["response_bytes"] == len(packed)


@pytest.mark.parametrize("second", ["identity", "br"])
def test_encodings_in_two_header_lines_are_one_list(running: Pair, second: str) -> None:
    """RFC 9110 5.3; the client gets both lines."""
    packed = gzip.compress(b"".join(ANTHROPIC.frames))
    packed = brotli.compress(packed) if second == "br" else packed
    lines = ("content-encoding", "gzip"), ("content-encoding", second)
    running.upstream.script = lambda _: Answer(pieces=(packed,), headers=lines)
    tag = new_tag()
    received = exchange(running.tee, ANTHROPIC, tag, ("accept-encoding", f"gzip, {second}"))
    assert received.body == packed
    assert [each for each in received.headers if each[0].lower() == lines[0][0]] == [*lines]
    row = running.row(tag)
    assert (row["outcome"], row["degraded"], row["output_tokens"]) == ("complete", None, 17)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("gzip", b"not gzip at all, but long enough to look like something", id="lie"),
        pytest.param("x-own", b"".join(ANTHROPIC.frames), id="unknown"),
    ],
)
def test_an_unreadable_encoding_is_told_and_passes(
    running: Pair, encoding: str, body: bytes
) -> None:
    running.upstream.script = lambda _: Answer(
        pieces=(body,), headers=(("content-encoding", encoding),)
    )
    tag = new_tag()
    assert exchange(running.tee, ANTHROPIC, tag).body == body
    row = running.row(tag)
    assert row["usage_source"] == "none"
    assert row["input_tokens"] is None
    assert row["degraded"]


def test_an_unknown_path_of_a_configured_host_has_its_row(running: Pair) -> None:
    running.upstream.script = lambda _: Answer(pieces=(b"data: {}\n\n", b"data: [DONE]\n\n"))
    tag = new_tag()
    with Http1(running.tee.address()) as client:
        client.send("POST", "/v9/brand-new", headers_for(OPENAI, tag), b'{"stream":true}')
        assert client.receive().ending is Ending.TERMINATED
    row = running.row(tag)
    assert row["dialect"] == "unknown"
    assert (row["outcome"], row["usage_source"]) == ("complete", "none")
    assert (row["input_tokens"], row["output_tokens"]) == (None, None)


@pytest.mark.parametrize("ask", [Ask.ASKED, Ask.NOT_ASKED])
def test_chunks_that_come_in_one_read_stay_apart(running: Pair, ask: Ask) -> None:
    """Some clients take each chunk for one event."""

    async def burst(
        request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        chunks = b"".join(
            b"%x\r\n%b\r\n" % (len(frame), frame)
            for frame in OPENAI.answer(asked=asks(request.body))
        )
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked"
        writer.write(head + b"\r\n\r\n" + chunks + b"0\r\n\r\n")
        await writer.drain()

    running.upstream.script = lambda _: burst
    tag = new_tag()
    with Http1(running.tee.address()) as client:
        post(client, OPENAI, tag, asked=ASKED[ask])
        received = client.receive()
    assert received.pieces == list(OPENAI.answer(asked=ask is Ask.ASKED))
    assert received.ending is Ending.TERMINATED
    row = running.settled_row(tag)
    assert (row["outcome"], row["usage_source"]) == ("complete", "reported")


def test_pipelined_reuse_of_one_connection(running: Pair) -> None:
    """Twenty exchanges on one connection, edited and not, each exactly framed."""

    def answer(request: Request) -> Answer:
        return Answer(pieces=OPENAI.answer(asked=asks(request.body)))

    running.upstream.script = answer
    with Http1(running.tee.address()) as client:
        for number in range(20):
            asked = (None, True, False)[number % 3]
            tag = new_tag()
            client.send(
                "POST", OPENAI.target, headers_for(OPENAI, tag), OPENAI.request(asked=asked)
            )
            received = client.receive()
            assert received.ending is Ending.TERMINATED
            assert client.is_quiet()
            assert received.body == b"".join(OPENAI.answer(asked=asked is True))
            assert running.row(tag)["output_tokens"] == 64
