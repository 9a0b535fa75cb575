"""Server-sent events: WHATWG's rules, after the web-platform-tests' EventSource format cases.

https://github.com/web-platform-tests/wpt/tree/master/eventsource (format-*.any.js): each case
there is a row here, with bytes of our own. One rule is left on purpose: an event that the body's
end cuts before its blank line is read, where a browser drops it.
"""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addon.framing import sse
from addon.framing.frame import Frame
from addon.framing.sse import SSE
from tests.addon.feeding import Framed, cuts_of, frame, frame_every_way, pieces
from tests.named import for_each, named

BOM = b"\xef\xbb\xbf"


def messages(*data: bytes) -> list[Frame]:
    return [Frame("", one) for one in data]


CASES = named(
    {
        "one-event": (b"data: a\n\n", messages(b"a")),
        "byte-order-mark": (BOM + b"data:1\n\ndata:2\n\n", messages(b"1", b"2")),
        "byte-order-mark-only-once": (
            BOM + b"data:1\n\n" + BOM + b"data:2\n\ndata:3\n\n",
            messages(b"1", b"3"),
        ),
        "bom-twice": (BOM + BOM + b"data:1\n\ndata:2\n\ndata:3\n\n", messages(b"2", b"3")),
        "comments-between-data-lines": (
            b"data:1\r:\x00\n:\r\ndata:2\n:"
            + b"x" * 2049
            + b"\rdata:3\n:data:fail\r:\x00\ndata:4\n\n",
            messages(b"1\n2\n3\n4"),
        ),
        "comment-alone": (b": a comment: with colons 12:34\n\n", []),
        "nul-is-data": (b"data:1\x00\n\n\x00", messages(b"1\x00")),
        "data-without-a-colon": (b"data: x\ndata\n\n", messages(b"x\n")),
        "data-lines": (b"data\n\ndata\ndata\n\ndata:t\n\n", messages(b"", b"\n", b"t")),
        "field-names": (b"data:\x00 1\rData:2\ndata\x00:3\rdata:4\n\n", messages(b"\x00 1\n4")),
        "field-without-value": (b"data\n\ndata:\n\n", messages(b"", b"")),
        "one-space": (b"data: a\n\ndata:b\n\ndata:  c\n\n", messages(b"a", b"b", b" c")),
        "cr": (b"data: a\rdata: b\r\r", messages(b"a\nb")),
        "crlf": (b"data: a\r\ndata: b\r\n\r\n", messages(b"a\nb")),
        "mixed-line-ends": (b"data: a\rdata: b\r\ndata: c\n\r\n", messages(b"a\nb\nc")),
        "mixed-blanks": (b"data: a\n\r\ndata: b\r\n\ndata: c\r\r", messages(b"a", b"b", b"c")),
        "event-name": (b"event: x\ndata: a\n\n", [Frame("x", b"a")]),
        "event-names": (
            b"event: x\ndata: a\n\nevent: x\ndata: a\ndata: b\n\nevent: x\ndata:a\n\n"
            b"event:  \xffx\ndata:  a\n\n",
            [Frame("x", b"a"), Frame("x", b"a\nb"), Frame("x", b"a"), Frame(" \ufffdx", b" a")],
        ),
        "event-name-and-cr": (
            b"event: x\rdata: a\n\nevent: x\ndata: a\rdata: b\n\n",
            [Frame("x", b"a"), Frame("x", b"a\nb")],
        ),
        "last-event-name-wins": (b"event: x\nevent: y\ndata: a\n\n", [Frame("y", b"a")]),
        "event-name-is-forgotten": (b"event: x\n\ndata: a\n\n", messages(b"a")),
        "event-name-empty": (b"event:\ndata: a\n\n", messages(b"a")),
        "id": (b"id: 1\nevent: message\ndata: a\n\n", [Frame("message", b"a")]),
        "retry": (b"retry: 3000\ndata: a\n\n", messages(b"a")),
        "retry-alone": (b"retry: 3000\n\n", []),
        "unknown-field": (b"unknown: x\ndata: a\n\n", messages(b"a")),
        "utf-8": ("data: ok…\n\n".encode(), messages("ok…".encode())),
        "not-utf-8": (b"data: \xff\xfe\n\n", messages(b"\xff\xfe")),
        "leading-tab-is-kept": (b"data:\ta\n\n", messages(b"\ta")),
        "leading-blank-lines": (b"\n\n\ndata: a\n\n", messages(b"a")),
        "many-blank-lines": (b"data: a\n\n\n\ndata: b\n\n", messages(b"a", b"b")),
        "many-blank-crlf": (b"data: a\r\n\r\n\r\ndata: b\r\n\r\n", messages(b"a", b"b")),
        "no-end-at-all": (b"data: a\n\ndata: b", messages(b"a", b"b")),
        "no-blank-line-at-the-end": (b"data: a\n\ndata: b\n", messages(b"a", b"b")),
        "no-blank-crlf-at-the-end": (b"data: a\r\n\r\ndata: b\r\n", messages(b"a", b"b")),
        "nothing": (b"", []),
    }
)


@for_each("body, expected", CASES)
def test_what_a_stream_dispatches(body: bytes, expected: list[Frame]) -> None:
    assert frame_every_way(SSE, body).frames == expected


@for_each("body, expected", CASES)
def test_what_a_stream_dispatches_with_bytes_behind_it(body: bytes, expected: list[Frame]) -> None:
    """A cut event behind it changes nothing about the events before."""
    if not body.endswith((b"\n\n", b"\n\r\n", b"\r\r")):
        body += b"\n\n"
    framed = frame_every_way(SSE, body + b"data: trailing")
    assert framed.frames == [*expected, Frame("", b"trailing")]


def test_blocks_hold_all_their_bytes() -> None:
    body = b": hi\n\nevent: x\ndata: a\n\ndata: b\r\n\r\ndata: c"
    assert frame_every_way(SSE, body).blocks == [
        b": hi\n\n",
        b"event: x\ndata: a\n\n",
        b"data: b\r\n\r\n",
        b"data: c",
    ]


def test_a_complete_event_is_given_out_at_once() -> None:
    framing = SSE()
    assert framing.feed(b"data: a\n\ndata") == b"data: a\n\n"
    assert framing.feed(b": b\r\r") == b"data: b\r\r"
    assert framing.feed(b"data: c\r\n\r") == b""
    assert framing.feed(b"\n") == b"data: c\r\n\r\n"


def test_an_oversize_event_is_skipped_and_later_ones_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """praxis-proxy/ai#674: one event of 64 KiB ended the accounting of a stream."""
    monkeypatch.setattr(sse, "BLOCK_BYTES_MAX", 100)
    body = b'data: {"x":"' + b"y" * 1000 + b'"}\n\ndata: {"usage":1}\n\n'
    for size in (10, 64, 99):
        framed = frame(SSE, pieces(body, range(0, len(body), size)))
        assert framed.frames[-1] == Frame("", b'{"usage":1}')
        assert framed.lost is not None
        assert "not read" in framed.lost


def test_events_are_counted_by_their_data_lines() -> None:
    framing = SSE()
    assert framing.count(b": comment\n\ndata: a\n\nevent: x\ndata: b\n\n") == 2
    assert framing.count(b"data: a\r\n\r\ndata: b\r\n\r\n") == 2
    assert framing.count(b"data: a\r\rdata: b\r\r") == 2
    assert framing.count(BOM + b"data: a\n\n") == 1


LINES = st.lists(
    st.sampled_from(
        [b"data: x", b"data:", b"data: a: b", b"event: e", b"id: 1", b": c", b"", b"junk", b"\xff"]
    ),
    max_size=12,
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def with_blanks_joined(framed: Framed) -> Framed:
    """Blank blocks are one where they come in one run, so their number depends on the cuts."""
    blocks: list[bytes] = []
    for block in framed.blocks:
        if blocks and not block.strip(b"\r\n") and not blocks[-1].strip(b"\r\n"):
            blocks[-1] += block
        else:
            blocks.append(block)
    return framed._replace(blocks=blocks)


BODIES = st.one_of(
    st.lists(st.tuples(LINES, ENDS), max_size=4).map(
        lambda parts: b"".join(end.join([*lines, b""]) for lines, end in parts)
    ),
    st.binary(max_size=60),
    st.text(alphabet="\r\n\nd:a ", max_size=40).map(str.encode),
)


@given(BODIES, st.data())
@settings(max_examples=300)
def test_no_bytes_raise_and_cuts_mean_nothing(body: bytes, data: st.DataObject) -> None:
    whole = with_blanks_joined(frame(SSE, [body]))
    assert with_blanks_joined(frame(SSE, pieces(body, data.draw(cuts_of(body))))) == whole


@for_each("length", [2, 4, 6])
def test_every_short_body_cut_once(length: int):
    for letters in itertools.product(b"\r\nd", repeat=length):
        body = bytes(letters)
        whole = with_blanks_joined(frame(SSE, [body]))
        for cut in range(1, length):
            assert with_blanks_joined(frame(SSE, [body[:cut], body[cut:]])) == whole


@for_each("ends", [b"\n", b"\r", b"\r\n", b"\r\n\r\r\n\n"])
def test_blank_lines_cost_one_block_and_not_one_each(ends: bytes) -> None:
    blanks = ends * 5_000
    framing = SSE()
    run = framing.feed(b"data: a\n\n" + blanks + b"data: b\n\n")
    blocks = framing.split(run)
    assert b"".join(blocks) == run
    assert [block for block in blocks if block.startswith(b"data: a")] == [b"data: a\n\n"]
    assert len(blocks) <= 5
    frames = [framing.parse(block) for block in blocks]
    assert [each for each in frames if each] == [Frame("", b"a"), Frame("", b"b")]


@given(st.text("\r\nx", max_size=24))
def test_block_ends_are_those_of_blank_lines_in_a_row(text: str) -> None:
    """The fast pattern says what the plain one does."""
    plain = re.compile(sse._BLANK_LINE + sse._BLANK_BLOCKS + b"*+")
    data = text.encode()
    assert [found.end() for found in sse._BLOCK_ENDS.finditer(data)] == [
        found.end() for found in plain.finditer(data)
    ]
