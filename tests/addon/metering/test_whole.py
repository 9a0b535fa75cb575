"""A body that is there as a whole is read as one that passes piece by piece."""

import gzip
import json
from dataclasses import replace

import pytest

from addon.dialects.openai import chat as openai_chat
from addon.metering import meter as meter_module
from addon.metering.meter import Meter
from addon.metering.settlement import Passed
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from addon.metering.whole import WholeAnswer
from tests.addon.metering.test_meter import END, STREAM, USAGE, chunk

LONG = b"".join([*(chunk(f" word{n % 7}") for n in range(3_000)), END])
ONE_LARGE = b"".join([chunk("a"), chunk("x" * 200_000), *[chunk("b")] * 900, END])
DOCUMENT = json.dumps(
    {"id": "a", "object": "chat.completion", "model": "m", "choices": [], "usage": USAGE}
).encode()


def through_tap(body: bytes, size: int, **given: str) -> tuple[Meter, Passed]:
    meter = Meter(openai_chat.CHAT, **given)
    tap = Tap(meter, stripper=None, clock=lambda: 0.0, troubles=Troubles())
    for start in range(0, len(body), size):
        tap.callable(body[start : start + size])
    tap.callable(b"")
    while tap.read_some():
        pass
    tap.end()
    return meter, replace(tap.passed(), first_byte_at=None, first_token_at=None)


@pytest.mark.parametrize(
    ("body", "content_type", "encoding"),
    [
        pytest.param(STREAM, "text/event-stream", "", id="short"),
        pytest.param(LONG, "text/event-stream", "", id="long"),
        pytest.param(LONG.replace(b"\n", b"\r\n"), "text/event-stream", "", id="long-crlf"),
        pytest.param(ONE_LARGE, "text/event-stream", "", id="one-large-event"),
        pytest.param(gzip.compress(LONG), "text/event-stream", "gzip", id="gzip"),
        pytest.param(gzip.compress(LONG)[:-20], "text/event-stream", "gzip", id="gzip-cut"),
        pytest.param(LONG[:-700], "text/event-stream", "", id="cut-inside"),
        pytest.param(DOCUMENT, "application/json", "", id="document"),
        pytest.param(b"", "text/event-stream", "", id="empty"),
    ],
)
def test_facts_figures_and_digests_are_those_of_the_tap(
    body: bytes, content_type: str, encoding: str
) -> None:
    given = {"content_type": content_type, "content_encoding": encoding}
    by_pieces, passed = through_tap(body, 1_700, **given)
    meter = Meter(openai_chat.CHAT, **given)
    whole = WholeAnswer(meter, body, troubles=Troubles())
    whole.end()
    assert meter.facts == by_pieces.facts
    assert meter.usage() == by_pieces.usage()
    assert meter.usage_json == by_pieces.usage_json
    assert meter.frames == by_pieces.frames
    assert meter.trouble == by_pieces.trouble
    assert meter.estimated_output_tokens() == by_pieces.estimated_output_tokens()
    assert whole.passed() == passed


def test_a_bug_in_reading_leaves_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(meter_module.Meter, "feed_whole", fail)
    troubles = Troubles()
    whole = WholeAnswer(
        Meter(openai_chat.CHAT, content_type="text/event-stream"), STREAM, troubles=troubles
    )
    whole.end()
    assert whole.passed() == Passed(is_whole=False)
    assert "ZeroDivisionError" in (troubles.text or "")
