"""Bodies of JSON alone: documents, lines, and those that hold no frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.framing import document
from addon.framing.document import NDJSON, Document, Opaque
from addon.framing.frame import Frame
from tests.addon.feeding import cuts_of, frame, frame_every_way, pieces


def test_a_body_is_one_frame_when_it_ends() -> None:
    framing = Document()
    assert framing.feed(b'{"a":') == b""
    assert framing.feed(b"1}") == b""
    assert framing.held == b'{"a":1}'
    assert frame_every_way(Document, b' {"a":\n 1}\n').frames == [Frame("", b' {"a":\n 1}\n')]


@pytest.mark.parametrize("body", [b"", b"\n \r\n"])
def test_nothing_is_no_frame(body: bytes) -> None:
    assert frame_every_way(Document, body).frames == []
    assert Document().count(body) == 0


def test_lines_of_objects_are_frames_of_their_own() -> None:
    """Ollama's stream behind a recorder that says `application/json`."""
    framed = frame_every_way(Document, b'{"a":1}\n{"b":2}\n')
    assert [one.data for one in framed.frames] == [b'{"a":1}\n', b'{"b":2}\n']
    assert Document().count(b'{"a":1}\n{"b":2}\n') == 2


def test_a_body_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "DOCUMENT_BYTES_MAX", 10)
    body = b'{"a":"' + b"x" * 20 + b'"}'
    framing = Document()
    for piece in pieces(body, range(0, len(body), 4)):
        framing.feed(piece)
    assert framing.lost is not None
    assert not framing.is_holding
    assert frame(Document, [body]).frames == []


def test_of_an_opaque_body_nothing_is_kept() -> None:
    framed = frame_every_way(Opaque, bytes(100), has_rubbish=True)
    assert framed.frames == []
    assert Opaque().count(bytes(100)) == 0


def test_lines_are_frames() -> None:
    body = b'{"a":1}\n{"b":2}\r\n\n  {"c":3}\n{"d":4}'
    framed = frame_every_way(NDJSON, body)
    assert framed.frames == [
        Frame("", line) for line in (b'{"a":1}', b'{"b":2}', b'{"c":3}', b'{"d":4}')
    ]
    assert framed.blocks == [b'{"a":1}\n', b'{"b":2}\r\n', b"\n", b'  {"c":3}\n', b'{"d":4}']


def test_a_cr_inside_a_line_is_blank_space() -> None:
    assert frame_every_way(NDJSON, b'{"a":\r1}\n').frames == [Frame("", b'{"a":\r1}')]


def test_a_line_is_given_out_when_it_is_complete() -> None:
    framing = NDJSON()
    assert framing.feed(b'{"a":') == b""
    assert framing.feed(b'1}\n{"b') == b'{"a":1}\n'
    assert framing.held == b'{"b'
    assert framing.count(b'{"a":1}\n{"b":2}') == 2


def test_an_oversize_line_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "LINE_BYTES_MAX", 100)
    body = b'{"x":"' + b"y" * 500 + b'"}\n{"usage":1}\n'
    framed = frame(NDJSON, pieces(body, range(0, len(body), 50)))
    assert framed.frames[-1] == Frame("", b'{"usage":1}')
    assert framed.lost is not None


@given(st.lists(st.sampled_from([b"{}", b"\n", b"\r", b" ", b"x", b"\xff"])), st.data())
def test_cuts_mean_nothing(parts: list[bytes], data: st.DataObject) -> None:
    body = b"".join(parts)
    assert frame(NDJSON, pieces(body, data.draw(cuts_of(body)))) == frame(NDJSON, [body])
