"""gRPC's messages and protobuf's fields: for every way of cutting them, and whatever lies."""

import gzip
import os
import zlib
from collections.abc import Callable

import pytest

from addon.framing.choice import framing_of
from addon.framing.frame import Frame
from addon.framing.grpc import (
    FIELDS_MAX,
    MESSAGE_BYTES_MAX,
    TRAILERS,
    Field,
    FieldKind,
    Grpc,
    has_first_message,
    is_grpc,
    read_message,
    read_request,
)

USAGE = {
    1: Field("a.count"),
    2: Field("number", FieldKind.NUMBER),
    3: Field("tools", FieldKind.ITEMS),
}
TABLE = {
    1: Field("id", FieldKind.TEXT),
    2: Field("usage", FieldKind.MESSAGE, USAGE),
    3: Field("outputs", FieldKind.MESSAGES, {1: Field("why", FieldKind.WORD, {3: "stop"})}),
}


def framed(data: bytes, flags: int = 0) -> bytes:
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


BODY = framed(b"\x0a\x01x") + framed(b"") + framed(b"grpc-status: 0\r\n", 0x80)


@pytest.mark.parametrize("size", [1, 3, 7, len(BODY)])
def test_messages_for_every_way_of_cutting(size: int):
    framing = framing_of("application/grpc+proto", b"", is_over=False)
    assert isinstance(framing, Grpc)
    pieces = (BODY[at : at + size] for at in range(0, len(BODY), size))
    run = b"".join(map(framing.feed, pieces)) + framing.end()
    assert run == BODY
    assert framing.count(run) == 3
    assert [framing.parse(block) for block in framing.split(run)] == [
        Frame("", b"\x0a\x01x"),
        Frame("", b""),
        Frame(TRAILERS, b"grpc-status: 0\r\n"),
    ]
    assert framing.lost is None


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_a_compressed_message_is_read_whole_or_not_at_all(compress: Callable[[bytes], bytes]):
    framing = Grpc()
    data = b"\x0a\x01x" * 5_000
    assert framing.parse(framed(compress(data), 1)) == Frame("", data)
    assert framing.parse(framed(compress(b"grpc-status: 0"), 0x81)) == Frame(
        TRAILERS, b"grpc-status: 0"
    )
    assert framing.parse(framed(b"", 1)) == Frame("", b"")
    assert framing.lost is None
    for unread in (
        compress(b"0" * MESSAGE_BYTES_MAX),  # a bomb: 4 MB of 4 kB
        compress(data)[:-9],
        compress(os.urandom(MESSAGE_BYTES_MAX + 1)),
        b"neither of both",
    ):
        framing.lost = None
        assert framing.parse(framed(unread, 1)) is None
        assert framing.lost == "a compressed gRPC message was not read"


def test_a_message_that_is_compressed_cut_or_none_is_not_read():
    framing = Grpc()
    (block,) = framing.split(framing.feed(framed(b"x", 1)))
    assert framing.parse(block) is None
    assert "compressed" in (framing.lost or "")
    assert framing.parse(b"\0\0") is None
    assert framing.parse(framed(b"abc")[:-1]) is None
    assert framing.feed(framed(b"y") + b"<html>") == framed(b"y")
    assert "no gRPC message" in (framing.lost or "")
    assert framing.feed(framed(b"z")) == b""
    assert framing.held_bytes == 0


def test_a_length_beyond_the_bound_holds_nothing():
    framing = Grpc()
    long = b"\0" + (MESSAGE_BYTES_MAX * 8).to_bytes(4, "big")
    assert framing.feed(framed(b"a") + long + b"x" * 100) == framed(b"a")
    for _ in range(100):
        framing.feed(b"x" * 100_000)
        assert framing.held_bytes == 0
    assert "beyond" in (framing.lost or "")
    framing = Grpc()
    framing.feed(b"\0" + (MESSAGE_BYTES_MAX + 1).to_bytes(4, "big"))
    assert framing.feed(b"x" * (MESSAGE_BYTES_MAX + 1) + framed(b"b")) == framed(b"b")


def test_fields_by_number():
    usage = b"\x08\x96\x01" + b"\x1a\x02\x01\x02" + b"\x18\x05" + b"\x1a\x01\x07"
    data = (
        b"\x0a\x02ab"
        b"\x12"
        + bytes([len(usage)])
        + usage
        + b"\x1a\x02\x08\x03"
        + b"\x1a\x02\x08\x09"
        + b"\x21"
        + b"8" * 8
        + b"\x2d"
        + b"4" * 4
        + b"\x48\x01"
    )
    assert read_message(data, TABLE) == {
        "id": "ab",
        "usage": {"a": {"count": 150}, "tools": 4},
        "outputs": [{"why": "stop"}, {"why": "9"}],
    }
    # Absent is 0 for a count.
    assert read_message(b"\x12\x00", TABLE) == {"usage": {"a": {"count": 0}}}
    # Of another type than the table says.
    assert read_message(b"\x08\x01\x12\x02\x0a\x00", TABLE) == {"usage": {"a": {"count": 0}}}


@pytest.mark.parametrize(
    "data",
    [
        *(b"\x0a\x05x", b"\x0a", b"\x08", b"\x0b", b"\x00\x01", b"\x21123", b"\xff" * 11),
        b"\x12\x02\x0a\x09",
        b"\x48\x01" * (FIELDS_MAX + 1),
    ],
)
def test_what_is_no_protobuf_is_none(data: bytes):
    assert read_message(data, TABLE) is None


def test_a_request_is_read_if_all_of_it_is_known():
    known = {
        1: Field("text", FieldKind.TEXT),
        3: Field("", FieldKind.ANY),
        4: Field("of", FieldKind.MESSAGE),
    }
    assert read_request(framed(b"\x0a\x02ab\x1d1234\x18\x01\x1a\x01x"), known) == {"text": "ab"}
    unknown = (b"\x10\x01", b"\x22\x02\x08\x01", b"\x22\x03\x0a\x01")
    for body in (*map(framed, unknown), framed(b"", 1), framed(b"") * 2, b""):
        assert read_request(body, known) is None


def test_when_a_first_message_is_whole():
    body = framed(b"abc")
    assert [has_first_message(body[:length]) for length in range(9)] == [*[False] * 8, True]
    endless = b"\0\xff\xff\xff\xff" + bytes(MESSAGE_BYTES_MAX)
    assert has_first_message(endless)
    assert not has_first_message(endless[:-1])


def test_grpc_in_binary_is_framed_and_in_text_is_not():
    assert is_grpc("application/grpc")
    assert is_grpc("Application/gRPC-Web+proto; charset=x")
    assert not is_grpc("application/grpc-web-text+proto")
    assert not is_grpc("Application/gRPC-Web-Text")
    assert not is_grpc("application/json")
