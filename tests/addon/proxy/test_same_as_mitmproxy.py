"""mitmproxy's HTTP layers do the same with the wrappers as without, whatever the two peers send.

mitmproxy's own tests of these layers are not in its package. So the layers are driven here as they
are there, without any socket: drawn requests and answers in drawn pieces, ends and resets at drawn
places, hooks that stream or change what passes. What is compared is everything that the layers ask
for: hooks, bytes to either side, connections opened and closed.

Over HTTP/2, on either side, several streams share a connection. Their frames come interleaved and in
drawn pieces, with trailers, resets, GOAWAY, small windows and updates of them, and frames that are
wrong.
"""

import contextlib
import itertools
import struct
from collections.abc import Callable, Iterator

import pytest
from hpack import Encoder, NeverIndexedHeaderTuple
from hyperframe.frame import (
    DataFrame,
    ExtensionFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.addon.proxy.layers import HOOKS, Holding, Step, in_a_row, play, wrapped

pytestmark = pytest.mark.large

REQUESTS = (
    b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nb",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc",
    b"GET /a HTTP/1.0\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    b"rubbish\r\n\r\n",
)
ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nx-t: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
    b"HTTP/1.1 500 No\r\ncontent-length: 99\r\n\r\nshort",
    b"rubbish\r\n\r\n",
)


@st.composite
def steps_of(draw: st.DrawFn) -> list[Step]:
    """Exchanges, one after the other, each in pieces, and perhaps an end before the end."""
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        for from_client, data in (
            (True, draw(st.sampled_from(REQUESTS))),
            (False, draw(st.sampled_from(ANSWERS))),
        ):
            cuts = sorted(draw(st.sets(st.integers(1, len(data) - 1), max_size=3)))
            places = [0, *cuts, len(data)]
            pieces = [data[a:b] for a, b in itertools.pairwise(places)]
            steps += [Step(from_client, piece) for piece in pieces]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(steps)))
        steps.insert(at, Step(draw(st.booleans()), None))
    steps.append(Step(draw(st.booleans()), None))
    return steps


@settings(max_examples=100, deadline=None)
@given(steps_of(), st.sampled_from(HOOKS))
@example([Step(True, REQUESTS[0]), Step(False, ANSWERS[2])], "marks")
def test_the_layers_ask_for_the_same(steps: list[Step], kind: str) -> None:
    theirs = play(steps, kind)
    with wrapped():
        ours = play(steps, kind)
    assert in_a_row(ours) == in_a_row(theirs)


@settings(max_examples=100, deadline=None)
@given(steps_of(), st.sampled_from(HOOKS))
@example([Step(True, REQUESTS[0]), Step(False, ANSWERS[0])], "stream")
@example([Step(True, REQUESTS[2][:-1]), Step(False, ANSWERS[0]), Step(True, b"y")], "uploads")
def test_a_held_end_moves_behind_its_hook_and_nothing_else(steps: list[Step], kind: str) -> None:
    """Client and upstream get the same, in the same order."""
    theirs = play(steps, kind)
    with wrapped(Holding()):
        ours = play(steps, kind)

    def of_client(asked: list[tuple[object, ...]], *, is_client: bool) -> list[tuple[object, ...]]:
        return in_a_row([each for each in asked if (each[1] == "client") is is_client])

    for is_client in (True, False):
        assert of_client(ours, is_client=is_client) == of_client(theirs, is_client=is_client)


@pytest.mark.parametrize("cuts", [(5,), (2, 5), (1, 2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("comes_off", [False, True])
def test_what_completes_a_body_goes_on_behind_the_hook(
    cuts: tuple[int, ...], comes_off: bool
) -> None:
    """Also if the wrappers come off before the body has ended."""
    head, body = ANSWERS[0][:-5], ANSWERS[0][-5:]
    pieces = [body[a:b] for a, b in itertools.pairwise((0, *cuts))]
    with contextlib.ExitStack() as put_on:
        put_on.enter_context(wrapped(Holding()))

        def steps() -> Iterator[Step]:
            yield Step(True, REQUESTS[0])
            yield Step(False, head)
            if comes_off:
                put_on.close()
            yield from (Step(False, piece) for piece in pieces)

        asked = play(steps(), "stream")
    hook = [each[0] for each in asked].index("response")
    after = b"".join(each[2] for each in asked[hook:] if each[:2] == ("send", "client"))  # type: ignore[misc]
    assert after == pieces[-1]


def test_an_exchange_passes_through_the_driver() -> None:
    """What is compared is no empty list."""
    asked = play([Step(True, REQUESTS[2]), Step(False, ANSWERS[2])], "callable")
    sent = [each for each in asked if each[0] == "send"]
    assert [name for name, *_ in asked if name in ("request", "response")] == [
        "request",
        "response",
    ]
    assert b"body" in b"".join(data for _, to, data in sent if to == "server 0")  # type: ignore[misc]
    assert b"hello" in b"".join(data for _, to, data in sent if to == "client").replace(  # type: ignore[misc]
        b"\r\n3\r\n", b""
    )


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HTTP1, HTTP2 = b"http/1.1", b"h2"
STREAMS_MAX = 3
BODY = b"0123456789" * 30
HTTP1_REQUEST = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"
HTTP1_ANSWER = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
)

type Frames = list[Callable[[int], bytes]]
"""Frames of one stream, for the id that it gets."""


def block(*headers: tuple[str, str]) -> bytes:
    """Headers that mean the same in whatever order the blocks come."""
    return Encoder().encode([NeverIndexedHeaderTuple(*header) for header in headers])


def headers(data: bytes, *flags: str) -> Callable[[int], bytes]:
    return lambda stream: HeadersFrame(stream, data, flags=["END_HEADERS", *flags]).serialize()


def body(data: bytes, *flags: str, pad: int = 0) -> Callable[[int], bytes]:
    def made(stream: int) -> bytes:
        padded = ["PADDED"] if pad else []
        return DataFrame(stream, data, pad_length=pad, flags=[*flags, *padded]).serialize()

    return made


def reset(code: int) -> Callable[[int], bytes]:
    return lambda stream: RstStreamFrame(stream, error_code=code).serialize()


def update(size: int) -> Callable[[int], bytes]:
    return lambda stream: WindowUpdateFrame(stream, window_increment=size).serialize()


REQUEST = block((":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "x"))
SIZED = block(
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a"),
    (":authority", "x"),
    ("content-length", "7"),
)
ANSWER = block((":status", "200"), ("content-type", "text/event-stream"))
INTERIM = block((":status", "103"), ("link", "</a>"))
EMPTY = block((":status", "204"))
TRAILERS = block(("x-checksum", "1"))
END = "END_STREAM"

HTTP2_REQUESTS: dict[str, Frames] = {
    "no body": [headers(REQUEST, END)],
    "a body": [headers(REQUEST), body(b"abc"), body(b"defg", END)],
    "a sized body": [headers(SIZED), body(b"abcdefg"), body(b"", END)],
    "a short body": [headers(SIZED), body(b"abc", END)],
    "trailers": [headers(REQUEST), body(b"abc"), headers(TRAILERS, END)],
    "padded": [headers(REQUEST), body(b"abc", END, pad=9)],
    "large": [headers(REQUEST), body(BODY), body(BODY, END)],
    "reset at once": [headers(REQUEST), reset(8)],
    "reset later": [headers(REQUEST, END), update(99), reset(8)],
    "no headers": [body(b"abc", END)],
    "bad headers": [headers(block((":method", "GET")), END)],
}
HTTP2_ANSWERS: dict[str, Frames] = {
    "a body": [headers(ANSWER), body(b"hello"), body(b" you", END)],
    "an empty end": [headers(ANSWER), body(b"hello"), body(b"", END)],
    "no body": [headers(EMPTY, END)],
    "interim": [headers(INTERIM), headers(ANSWER), body(b"hello", END)],
    "trailers": [headers(ANSWER), body(b"hello"), headers(TRAILERS, END)],
    "only trailers": [headers(ANSWER), headers(TRAILERS, END)],
    "padded": [headers(ANSWER), body(b"hello", END, pad=9)],
    "large": [headers(ANSWER), body(BODY), body(BODY), body(BODY, END)],
    "reset at once": [reset(7)],
    "reset in the body": [headers(ANSWER), body(b"hello"), reset(2)],
    "reset without error": [headers(ANSWER), body(b"hello"), reset(0)],
    "an odd reset": [headers(ANSWER), reset(0x77)],
    "HTTP/1.1 required": [reset(13)],
    "not ended": [headers(ANSWER), body(b"hello")],
    "behind the end": [headers(ANSWER, END), body(b"late")],
    "no status": [headers(block(("x-a", "1"))), body(b"hello", END)],
    "no headers": [body(b"hello", END)],
}
WHOLE_REQUESTS = ("no body", "a body", "trailers", "large")
WHOLE_ANSWERS = ("a body", "an empty end", "trailers", "large")
ANYWHERE: dict[str, bytes] = {
    "ping": PingFrame(0, b"12345678").serialize(),
    "window": WindowUpdateFrame(0, window_increment=1_000).serialize(),
    "window of a stream": WindowUpdateFrame(1, window_increment=50).serialize(),
    "small window": SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 20}).serialize(),
    "large window": SettingsFrame(
        0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 90_000}
    ).serialize(),
    "acknowledged": SettingsFrame(0, flags=["ACK"]).serialize(),
    "priority": PriorityFrame(1, depends_on=0, stream_weight=7).serialize(),
    "unknown": ExtensionFrame(type=0xEE, stream_id=1, flag_byte=1, body=b"x").serialize(),
    "goaway": GoAwayFrame(0, last_stream_id=1, error_code=0).serialize(),
    "goaway with an error": GoAwayFrame(0, last_stream_id=0, error_code=11).serialize(),
    "no window": WindowUpdateFrame(1, window_increment=1).serialize()[:9] + struct.pack(">I", 0),
    "rubbish": b"\x00\x00\x04\x08\x00\x00\x00\x00\x00zzz",
}


def first_of(*, from_client: bool, window: int) -> bytes:
    """What a side of HTTP/2 begins with."""
    values = {SettingsFrame.INITIAL_WINDOW_SIZE: window}
    return (PREFACE if from_client else b"") + SettingsFrame(0, settings=values).serialize()


@st.composite
def http2_steps_of(draw: st.DrawFn, client: bytes, server: bytes) -> list[Step]:
    """Exchanges on streams of their own, interleaved; then the cuts."""
    windows = st.sampled_from([0, 3, 20, 65_535])
    steps = []
    if client == HTTP2:
        steps.append(Step(True, first_of(from_client=True, window=draw(windows))))
    has_begun = server != HTTP2
    # Half of them whole, or most connections end with the first stream.
    requests = st.sampled_from(WHOLE_REQUESTS) | st.sampled_from(sorted(HTTP2_REQUESTS))
    answers = st.sampled_from(WHOLE_ANSWERS) | st.sampled_from(sorted(HTTP2_ANSWERS))
    waiting: list[tuple[int, list[bytes], Frames]] = []
    for number in range(draw(st.integers(1, STREAMS_MAX))):
        asked = HTTP2_REQUESTS[draw(requests)]
        sent = [frame(2 * number + 1) for frame in asked] if client == HTTP2 else [HTTP1_REQUEST]
        answer = HTTP2_ANSWERS[draw(answers)]
        waiting.append((number, sent, answer if server == HTTP2 else [lambda _: HTTP1_ANSWER]))
    upstream_id = 1
    answering: list[tuple[int, Frames]] = []
    while waiting or answering:
        at = draw(st.integers(0, len(waiting) + len(answering) - 1))
        if draw(st.integers(0, 19)) == 0:
            extra = ANYWHERE[draw(st.sampled_from(sorted(ANYWHERE)))]
            to_client = draw(st.booleans())
            if (server if to_client else client) == HTTP2 and (has_begun or not to_client):
                steps.append(Step(not to_client, extra))
        if at < len(waiting):
            number, sent, answer = waiting[at]
            steps.append(Step(True, sent[0]))
            waiting[at : at + 1] = [(number, sent[1:], answer)] if sent[1:] else []
            if not sent[1:]:
                answering.append((upstream_id, list(answer)))
                upstream_id += 2
            continue
        if not has_begun:
            steps.append(Step(False, first_of(from_client=False, window=draw(windows))))
            has_begun = True
        stream, frames = answering[at - len(waiting)]
        steps.append(Step(False, frames.pop(0)(stream)))
        if not frames:
            answering.pop(at - len(waiting))
    if draw(st.integers(0, 3)) == 0:
        steps.insert(draw(st.integers(0, len(steps))), Step(draw(st.booleans()), None))
    steps.append(Step(draw(st.booleans()), None))
    return cut(draw, steps)


def cut(draw: st.DrawFn, steps: list[Step]) -> list[Step]:
    """What one side sends in a row, in other pieces."""
    found: list[Step] = []
    for step in steps:
        before = found[-1] if found else Step(not step.from_client, None)
        data = step.data
        if before.from_client != step.from_client or before.data is None or data is None:
            found.append(step)
        elif draw(st.booleans()):
            found[-1] = Step(step.from_client, before.data + data)
        else:
            found.append(step)
    pieces: list[Step] = []
    for step in found:
        whole = step.data
        if whole is not None and len(whole) > 1 and draw(st.booleans()):
            at = draw(st.integers(1, len(whole) - 1))
            pieces += [Step(step.from_client, whole[:at]), Step(step.from_client, whole[at:])]
        else:
            pieces.append(step)
    return pieces


KINDS = (*HOOKS, "uploads")
SIDES = [
    pytest.param(HTTP2, HTTP2, id="both"),
    pytest.param(HTTP2, HTTP1, id="client"),
    pytest.param(HTTP1, HTTP2, id="server"),
]


@pytest.mark.parametrize(("client", "server"), SIDES)
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_layers_ask_for_the_same_over_http2(
    client: bytes, server: bytes, data: st.DataObject
) -> None:
    steps = data.draw(http2_steps_of(client, server))
    kind = data.draw(st.sampled_from(KINDS))
    theirs = play(steps, kind, client_protocol=client, server_protocol=server)
    with wrapped():
        ours = play(
            steps,
            kind,
            client_protocol=client,
            server_protocol=server,
        )
    assert in_a_row(ours) == in_a_row(theirs)


def steps_for(*exchanges: tuple[str, str], window: int = 65_535) -> list[Step]:
    """These exchanges over HTTP/2 on both sides, all requests before all answers."""
    steps = [Step(True, first_of(from_client=True, window=window))]
    steps += [
        Step(True, frame(2 * number + 1))
        for number, (request, _) in enumerate(exchanges)
        for frame in HTTP2_REQUESTS[request]
    ]
    steps.append(Step(False, first_of(from_client=False, window=65_535)))
    steps += [
        Step(False, frame(2 * number + 1))
        for number, (_, answer) in enumerate(exchanges)
        for frame in HTTP2_ANSWERS[answer]
    ]
    return steps


def sent_to(asked: list[tuple[object, ...]], side: str) -> list[Frame]:
    """The frames that one side got."""
    data = b"".join(
        each[2] for each in asked if each[:2] == ("send", side) and isinstance(each[2], bytes)
    )
    data = data.removeprefix(PREFACE)
    frames = []
    while data:
        frame, length = Frame.parse_frame_header(memoryview(data[:9]))
        frame.parse_body(memoryview(data[9 : 9 + length]))
        frames.append(frame)
        data = data[9 + length :]
    return frames


def test_exchanges_pass_through_the_driver() -> None:
    """What is compared is no empty list: two streams, trailers, a reset, and hooks."""
    steps = steps_for(("a body", "trailers"), ("large", "reset in the body"))
    asked = play(steps, "stream", client_protocol=HTTP2, server_protocol=HTTP2)
    names = [each[0] for each in asked if each[0] not in ("send", "open")]
    assert names.count("requestheaders") == names.count("responseheaders") == 2
    assert names.count("response") == names.count("error") == 1
    assert "raised" not in names
    to_server, to_client = sent_to(asked, "server 0"), sent_to(asked, "client")
    assert {frame.stream_id for frame in to_server if isinstance(frame, HeadersFrame)} == {1, 3}
    assert [frame.stream_id for frame in to_client if isinstance(frame, RstStreamFrame)] == [3]
    ends = [frame for frame in to_client if "END_STREAM" in frame.flags]
    assert [type(frame) for frame in ends] == [HeadersFrame]


def test_a_closed_window_holds_an_answer_until_it_opens() -> None:
    steps = steps_for(("no body", "large"), window=20)
    asked = play(steps, "stream", client_protocol=HTTP2, server_protocol=HTTP2)
    frames = [frame for frame in sent_to(asked, "client") if isinstance(frame, DataFrame)]
    assert sum(len(frame.data) for frame in frames) == 20
    steps.append(Step(True, update(5_000)(1)))
    asked = play(steps, "stream", client_protocol=HTTP2, server_protocol=HTTP2)
    frames = [frame for frame in sent_to(asked, "client") if isinstance(frame, DataFrame)]
    assert b"".join(frame.data for frame in frames) == 3 * BODY
