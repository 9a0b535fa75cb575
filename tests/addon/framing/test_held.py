"""The bytes of an incomplete frame: all of them, or what a parser needs of them."""

import pytest

from addon.framing.document import NDJSON, Document, JsonArray
from addon.framing.eventstream import EventStream
from addon.framing.frame import LARGE_BYTES, Held
from addon.framing.sse import SSE
from tests.addon.linear import assert_linear

PICTURE = b'{"id":"x","image":"' + b"A" * 300_000 + b'","usage":{"n":1}}'
SHORT = b'{"id":"x","image":"' + b"A" * 4_096 + b'","usage":{"n":1}}'


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_all_bytes_are_held_unless_asked_otherwise():
    held = Held()
    assert not held
    for piece in cut(PICTURE, 1_000):
        held.add(piece)
    assert held.peek() == PICTURE
    assert len(held) == len(PICTURE)
    assert not held.is_shortened
    assert not held.is_lost
    assert held.take() == PICTURE
    assert not held


def test_a_large_frame_is_shortened_and_counts_as_long_as_it_came():
    held = Held(shortens=True)
    for piece in cut(b"data: " + PICTURE, 1_000):
        held.add(piece)
    assert held.is_shortened
    assert len(held) == len(PICTURE) + 6
    assert held.take() == b"data: " + SHORT
    held.add(b"{}")
    assert held.take() == b"{}"


def test_of_a_frame_without_an_object_the_beginning_is_kept():
    held = Held(shortens=True)
    for piece in cut(b":" + b"x" * 4 * LARGE_BYTES, 60_000):
        held.add(piece)
    assert len(held) == 4 * LARGE_BYTES + 1
    assert len(held.peek()) < LARGE_BYTES
    held.add(b'\ndata: {"usage":1}')
    assert held.take().endswith(b'{"usage":1}')


@pytest.mark.large
def test_a_frame_of_too_many_values_is_lost():
    held = Held(shortens=True)
    held.add(b"{" + b'"key":1,' * 200_000)
    assert held.is_lost


@pytest.mark.parametrize("size", [7, 1_000, 65_536, 10**7])
def test_every_framing_shortens_large_frames_and_not_their_neighbours(size: int):
    small = b'{"n":1}'
    for framing, before, after in (
        (SSE(shortens=True), b"event: x\ndata: ", b"\n\n"),
        (NDJSON(shortens=True), b"", b"\n"),
        (JsonArray(shortens=True), b",", b""),
    ):
        blocks = [before + body + after for body in (small, PICTURE, small, small)]
        given = b"".join(framing.feed(piece) for piece in cut(b"".join(blocks), size))
        given += framing.end()
        is_whole = size > len(PICTURE)
        expected = [before + (PICTURE if is_whole else SHORT) + after]
        assert given == b"".join([blocks[0], *expected, *blocks[2:]])
        assert framing.lost is None
        assert [frame.data for block in framing.split(given) if (frame := framing.parse(block))]


@pytest.mark.large
@pytest.mark.parametrize(
    ("framing", "before"),
    [
        pytest.param(SSE(shortens=True), b"data: ", id="sse"),
        pytest.param(NDJSON(shortens=True), b"", id="ndjson"),
        pytest.param(JsonArray(shortens=True), b"[", id="json-array"),
        pytest.param(Document(shortens=True), b"", id="document"),
    ],
)
def test_a_frame_that_cannot_be_shortened_is_reported(framing, before: bytes):
    for piece in cut(before + b"{" + b'"key":1,' * 200_000, 60_000):
        framing.feed(piece)
    framing.end()
    assert "too many values" in framing.lost


def test_a_large_document_is_one_short_frame():
    framing = Document(shortens=True)
    for piece in cut(PICTURE, 10_000):
        assert framing.feed(piece) == b""
    assert framing.is_holding
    assert framing.held.startswith(b'{"id"')
    rest = framing.end()
    assert rest == SHORT
    assert framing.parse(rest) is not None


def test_a_long_body_of_lines_is_framed_by_lines():
    framing = Document(shortens=True)
    lines = b"".join(b'{"n":%d}\n' % n for n in range(20_000))
    given = b"".join(framing.feed(piece) for piece in cut(lines + b'{"last":1}', 10_000))
    assert framing.is_holding
    assert framing.held == b'{"last":1}'
    given += framing.end()
    assert given == lines + b'{"last":1}'
    assert len(framing.split(given)) == 20_001
    assert framing.lost is None


@pytest.mark.large
def test_the_work_for_a_frame_in_small_chunks_is_linear():
    def feed(size: int) -> None:
        for framing in (
            SSE(shortens=True),
            NDJSON(shortens=True),
            JsonArray(shortens=True),
            Document(shortens=True),
            EventStream(),
            SSE(),
        ):
            framing.feed(b'{"a":"' + b"x" * 300 * size)
            for _ in range(size):
                framing.feed(b"x")

    assert_linear(feed, 1_000)
