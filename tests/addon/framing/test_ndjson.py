import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.framing import ndjson
from addon.framing.frame import Frame
from addon.framing.ndjson import NDJSON
from tests.addon.feeding import cuts_of, frame, frame_every_way, pieces


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
    monkeypatch.setattr(ndjson, "LINE_BYTES_MAX", 100)
    body = b'{"x":"' + b"y" * 500 + b'"}\n{"usage":1}\n'
    framed = frame(NDJSON, pieces(body, range(0, len(body), 50)))
    assert framed.frames[-1] == Frame("", b'{"usage":1}')
    assert framed.lost is not None


@given(st.lists(st.sampled_from([b"{}", b"\n", b"\r", b" ", b"x", b"\xff"])), st.data())
def test_cuts_mean_nothing(parts: list[bytes], data: st.DataObject) -> None:
    body = b"".join(parts)
    assert frame(NDJSON, pieces(body, data.draw(cuts_of(body)))) == frame(NDJSON, [body])
