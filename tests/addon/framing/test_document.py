import pytest

from addon.framing import document
from addon.framing.document import Document, Opaque
from addon.framing.frame import Frame
from tests.addon.feeding import frame, frame_every_way, pieces


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
