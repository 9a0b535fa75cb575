"""Content types lie in both directions; the first bytes tell."""

import pytest

from addon.framing.choice import FRAMINGS, framing_of
from addon.framing.document import Document, Opaque
from addon.framing.eventstream import EventStream
from addon.framing.json_array import JsonArray
from addon.framing.ndjson import NDJSON
from addon.framing.sse import SSE
from tests.addon.framing.test_eventstream import event

SSE_BODY = b'data: {"id":1}\n\n'


@pytest.mark.parametrize(
    ("content_type", "begun", "expected"),
    [
        pytest.param("text/event-stream", SSE_BODY, SSE, id="sse"),
        pytest.param(
            "text/event-stream;charset=UTF-8", b": OPENROUTER PROCESSING\n", SSE, id="comment"
        ),
        pytest.param("TEXT/EVENT-STREAM", b"\n\nevent: x\ndata: y\n", SSE, id="blank-lines-first"),
        pytest.param(
            "text/event-stream", b"\xef\xbb\xbfdata: something", SSE, id="byte-order-mark"
        ),
        pytest.param("text/event-stream", b'{\n  "error": {', Document, id="error-under-sse"),
        pytest.param("text/event-stream", b'[{"error": {', JsonArray, id="array-under-sse"),
        pytest.param("application/json", SSE_BODY, SSE, id="sse-under-json"),
        pytest.param("application/json", b"id: 1\nevent: m", SSE, id="sse-by-its-id-field"),
        pytest.param("", b"retry: 10\ndata: x", SSE, id="sse-without-a-type"),
        pytest.param("application/json", b'{"a":1}', Document, id="json"),
        pytest.param("application/json", b'\n\n  {"a":1}', Document, id="json-after-blanks"),
        pytest.param("application/json; charset=UTF-8", b'[{"a":1}', JsonArray, id="array"),
        pytest.param("application/x-ndjson", b'{"a":1}\n', NDJSON, id="ndjson"),
        pytest.param("application/stream+json", b'{"a":1}\n', NDJSON, id="stream-json"),
        pytest.param("application/jsonl", b'{"a":1}\n', NDJSON, id="jsonl"),
        pytest.param("application/vnd.amazon.eventstream", b"", EventStream, id="eventstream"),
        pytest.param(
            "application/json", event("chunk", b"{}"), EventStream, id="eventstream-under-json"
        ),
        pytest.param("audio/mpeg", b"{\xff\xfb", Opaque, id="speech"),
        pytest.param("text/html", b"<html><body>Bad Gateway", Document, id="html"),
        pytest.param("text/plain", b"data is not a field here", Document, id="text"),
    ],
)
def test_what_a_body_is(content_type: str, begun: bytes, expected: type) -> None:
    assert type(framing_of(content_type, begun, is_over=False)) is expected


@pytest.mark.parametrize("begun", [b"", b"\n\n", b"data", b"\x00\x00\x00\x10"])
def test_more_is_waited_for_where_it_cannot_be_told(begun: bytes) -> None:
    assert framing_of("text/event-stream", begun, is_over=False) is None


def test_at_the_end_of_the_body_something_is_chosen() -> None:
    assert type(framing_of("text/event-stream", b"", is_over=True)) is SSE
    assert type(framing_of("", b"OK", is_over=True)) is Document


def test_every_framing_has_a_name() -> None:
    every = {SSE, NDJSON, JsonArray, EventStream, Document, Opaque}
    assert {type(make(frozenset)) for make in FRAMINGS.values()} == every


def test_a_body_that_goes_on_with_blanks_is_what_its_type_says() -> None:
    assert framing_of("text/event-stream", b"\n" * 100, is_over=False) is None
    assert isinstance(framing_of("text/event-stream", b"\n" * 5_000, is_over=False), SSE)
