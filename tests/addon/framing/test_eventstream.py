"""AWS event stream, with messages built here after the published layout."""

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.framing import eventstream
from addon.framing.eventstream import CANDIDATES_MAX, EventStream, begins_message
from addon.framing.frame import Frame
from tests.addon.feeding import cuts_of, frame, frame_every_way, pieces
from tests.addon.linear import assert_linear
from tests.named import for_each


def header(name: str, value: str) -> bytes:
    return (
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
    )


def message(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return head + struct.pack(">I", crc32(head))


def event(kind: str, payload: bytes) -> bytes:
    return message(header(":event-type", kind) + header(":message-type", "event"), payload)


def test_a_message_built_by_hand() -> None:
    """The layout spelled out once in bytes, so that the builder above is not its own judge."""
    raw = bytes.fromhex("0000001d00000000fd528c5a7b27666f6f273a27626172277dc3653936")
    assert frame_every_way(EventStream, raw).frames == [Frame("", b"{'foo':'bar'}")]


def test_messages_are_frames() -> None:
    one, two = event("contentBlockDelta", b'{"a":1}'), event("metadata", b'{"usage":{}}')
    framed = frame_every_way(EventStream, one + two)
    assert framed.frames == [
        Frame("contentBlockDelta", b'{"a":1}'),
        Frame("metadata", b'{"usage":{}}'),
    ]
    assert framed.blocks == [one, two]
    assert framed.lost is None


def test_headers_of_every_type_are_passed_over() -> None:
    headers = b"".join(
        [
            b"\x01a\x00",
            b"\x01b\x01",
            b"\x01c\x02\xff",
            b"\x01d\x03\x00\x01",
            b"\x01e\x04\x00\x00\x00\x01",
            b"\x01f\x05" + bytes(8),
            b"\x01g\x06\x00\x02\xff\xfe",
            b"\x01h\x08" + bytes(8),
            b"\x01i\x09" + bytes(16),
            header(":event-type", "chunk"),
        ]
    )
    assert frame_every_way(EventStream, message(headers, b"x")).frames == [Frame("chunk", b"x")]


def test_an_exception_is_named() -> None:
    headers = header(":message-type", "exception") + header(
        ":exception-type", "throttlingException"
    )
    body = message(headers, b'{"message":"slow down"}')
    assert frame_every_way(EventStream, body).frames == [
        Frame("throttlingException", b'{"message":"slow down"}')
    ]


def test_an_error_message_says_all_in_its_headers() -> None:
    headers = (
        header(":message-type", "error")
        + header(":error-code", "InternalFailure")
        + header(":error-message", "it broke")
    )
    assert frame_every_way(EventStream, message(headers, b"")).frames == [
        Frame("error", b'{"code":"InternalFailure","message":"it broke"}')
    ]


def test_a_bad_checksum_skips_one_message_and_is_said() -> None:
    bad = bytearray(event("chunk", b'{"a":1}'))
    bad[-6] ^= 1
    framed = frame_every_way(EventStream, bytes(bad) + event("chunk", b'{"b":2}'))
    assert framed.frames == [Frame("chunk", b'{"b":2}')]
    assert framed.lost is not None
    assert "checksum" in framed.lost


def test_after_a_bad_prelude_reading_goes_on_at_the_next_message() -> None:
    bad = bytearray(event("chunk", b'{"a":1}'))
    bad[3] ^= 1
    body = bytes(bad) + event("chunk", b'{"b":2}')
    framed = frame_every_way(EventStream, body, has_rubbish=True)
    assert framed.frames == [Frame("chunk", b'{"b":2}')]
    assert EventStream().count(body) == 1
    assert framed.lost is not None
    assert "prelude" in framed.lost


def test_a_length_that_no_message_has_is_a_bad_prelude() -> None:
    prelude = struct.pack(">II", 0x7FFFFFFF, 0)
    monster = prelude + struct.pack(">I", crc32(prelude))
    framed = frame_every_way(EventStream, monster + event("chunk", b"{}"), has_rubbish=True)
    assert framed.frames == [Frame("chunk", b"{}")]


def test_a_cut_message_is_held_and_never_read() -> None:
    body = event("chunk", b'{"a":1}')
    assert frame_every_way(EventStream, body[:-1]).frames == []


def test_what_is_held_is_what_is_in_memory() -> None:
    framing = EventStream()
    whole = event("chunk", b"{}")
    assert framing.feed(whole + whole[:20]) == whole
    assert framing.held_bytes == 20
    framing.feed(whole[20:])
    assert framing.held_bytes == 0


def test_beginnings_are_told_by_their_checksum() -> None:
    assert begins_message(event("chunk", b"{}"))
    assert not begins_message(b'{"message":"no"}')
    assert not begins_message(b"\x00\x00")


@given(st.lists(st.binary(max_size=20), max_size=4), st.binary(max_size=8), st.data())
def test_cuts_mean_nothing(payloads: list[bytes], rubbish: bytes, data: st.DataObject) -> None:
    body = b"".join(event("chunk", payload) for payload in payloads) + rubbish
    whole = frame(EventStream, [body])
    assert [one.data for one in whole.frames][: len(payloads)] == payloads
    assert frame(EventStream, pieces(body, data.draw(cuts_of(body)))).frames == whole.frames


@given(st.binary(max_size=80))
def test_no_bytes_raise(body: bytes) -> None:
    frame(EventStream, [body])


@for_each("at", range(12, 60))
def test_a_flipped_bit_anywhere_never_reads_wrong(at: int) -> None:
    body = bytearray(event("chunk", b'{"usage":{"inputTokens":10}}'))
    body[at] ^= 0x10
    assert frame(EventStream, [bytes(body)]).frames == []


def test_a_message_that_is_too_long_is_passed_over() -> None:
    long = event("chunk", bytes(eventstream.READ_BYTES_MAX))
    body = event("a", b"{}") + long + event("b", b"{}")
    for size in (1_000, 65_536, 10**7):
        framing = EventStream()
        given = b"".join(framing.feed(body[at : at + size]) for at in range(0, len(body), size))
        given += framing.end()
        assert given == event("a", b"{}") + event("b", b"{}")
        assert framing.lost is not None
        assert "beyond" in framing.lost


def test_a_stream_that_has_lost_its_framing_is_given_up() -> None:
    framing = EventStream()
    for _ in range(40):
        framing.feed(bytes(65_536))
    assert framing.feed(event("chunk", b"{}")) == b""
    assert framing.lost is not None


def test_of_many_headers_the_first_are_read() -> None:
    body = message(b"\x01a\x00" * 200 + header(":event-type", "x"), b"{}")
    assert frame(EventStream, [body]).frames == [Frame("", b"{}")]


@pytest.mark.nightly
@for_each(
    "unit",
    [
        pytest.param(bytes(8), id="zeros"),
        pytest.param(b"\x00\x00\x00\x20\x00\x00\x00\x04", id="nearly-a-prelude"),
        pytest.param(b"\x01" * 8, id="ones"),
    ],
)
def test_the_search_for_a_message_is_linear(unit: bytes) -> None:
    def feed(size: int) -> None:
        framing = EventStream()
        framing.split(framing.feed(unit * size))

    assert_linear(feed, 2_000)


def test_after_too_many_beginnings_the_rest_is_not_read() -> None:
    """A prelude's checksum is tried a bounded number of times; what comes later costs nothing."""
    nearly = b"\x00\x00\x00\x20\x00\x00\x00\x04"
    framing = EventStream()
    framing.split(framing.feed(nearly * (CANDIDATES_MAX + 2_000)))
    assert framing.lost == "an event-stream message with a bad prelude was skipped"
