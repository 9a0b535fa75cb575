"""Recorded answers: read and hashed in one go, as the tap reads them piece by piece."""

import gzip
import hashlib
import json

import pytest

from addon.dialects.routes import DIALECTS
from addon.metering.answers.meter import STEP_BYTES_MAX, Meter
from addon.metering.troubles import Troubles
from addon.metering.whole import WholeAnswer
from ledger.model.usage import NO_USAGE

WORD = b'data: {"id":"c1","model":"m","choices":[{"delta":{"content":"hi there"}}]}\n\n'
LAST = b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'


def meter(encoding: str = "") -> Meter:
    return Meter(
        DIALECTS["openai.chat"], content_type="text/event-stream", content_encoding=encoding
    )


def stream_of(size: int) -> bytes:
    return WORD * (size // len(WORD) + 1) + LAST


@pytest.mark.parametrize(
    "size", [0, STEP_BYTES_MAX, 8 * STEP_BYTES_MAX, 24 * STEP_BYTES_MAX + 7], ids=lambda n: f"{n}"
)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_it_reads_as_if_it_had_come_in_pieces(size: int, encoding: str, line_end: bytes):
    body = stream_of(size).replace(b"\n", line_end)
    sent = gzip.compress(body) if encoding else body
    in_pieces = meter(encoding)
    for at in range(0, len(sent), 1_000):
        in_pieces.feed(sent[at : at + 1_000])
    in_pieces.end()
    answer = WholeAnswer(meter(encoding), sent, troubles=Troubles())
    answer.end()
    assert answer.meter.usage() == in_pieces.usage() != NO_USAGE
    assert answer.meter.frames == in_pieces.frames == body.count(2 * line_end)
    assert answer.meter.facts.response_id == "c1"
    passed = answer.passed()
    assert passed.response_bytes == passed.client_bytes == len(sent)
    assert passed.upstream_digest == passed.client_digest == hashlib.sha256(sent).hexdigest()
    assert passed.removed_bytes == 0


def test_an_answer_without_a_body():
    answer = WholeAnswer(meter(), b"", troubles=(troubles := Troubles()))
    answer.end()
    assert answer.meter.usage() == NO_USAGE
    assert answer.passed().response_bytes == 0
    assert troubles.text is None


def test_a_bug_while_reading_costs_the_figures_and_is_noted(monkeypatch: pytest.MonkeyPatch):
    metered = meter()
    monkeypatch.setattr(metered, "_frame", lambda _data: 1 / 0)
    answer = WholeAnswer(metered, stream_of(100), troubles=(troubles := Troubles()))
    answer.end()
    assert not answer.passed().is_whole
    assert answer.passed().upstream_digest is None
    assert "ZeroDivisionError" in str(troubles.text)


def test_pieces_of_a_decoder_that_hold_nothing_are_work_too():
    """Each member of a gzip body gives one piece, and an empty member an empty one."""
    document = json.dumps({"usage": {"prompt_tokens": 3}}).encode()
    metered = Meter(
        DIALECTS["openai.chat"], content_type="application/json", content_encoding="gzip"
    )
    assert sum(1 for _ in metered.steps(gzip.compress(b"") * 2_000)) > 10
    assert sum(1 for _ in metered.steps(gzip.compress(document))) <= 1
    metered.end()
    assert metered.usage().input_tokens == 3
