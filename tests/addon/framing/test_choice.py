"""Content types lie in both directions; the first bytes tell."""

import pytest

from addon.framing.choice import FRAMINGS, framing_of
from addon.framing.document import NDJSON, Document, Opaque
from addon.framing.eventstream import EventStream
from addon.framing.json_array import JsonArray
from addon.framing.sse import SSE
from tests.addon.framing.test_eventstream import event
from tests.named import named

SSE_BODY = b'data: {"id":1}\n\n'


@pytest.mark.parametrize(
    ("content_type", "begun", "expected"),
    named(
        {
            "sse": ("text/event-stream", SSE_BODY, SSE),
            "comment": ("text/event-stream;charset=UTF-8", b": OPENROUTER PROCESSING\n", SSE),
            "blank-lines-first": ("TEXT/EVENT-STREAM", b"\n\nevent: x\ndata: y\n", SSE),
            "byte-order-mark": ("text/event-stream", b"\xef\xbb\xbfdata: something", SSE),
            "error-under-sse": ("text/event-stream", b'{\n  "error": {', Document),
            "array-under-sse": ("text/event-stream", b'[{"error": {', JsonArray),
            "sse-under-json": ("application/json", SSE_BODY, SSE),
            "sse-by-its-id-field": ("application/json", b"id: 1\nevent: m", SSE),
            "sse-without-a-type": ("", b"retry: 10\ndata: x", SSE),
            "json": ("application/json", b'{"a":1}', Document),
            "json-after-blanks": ("application/json", b'\n\n  {"a":1}', Document),
            "array": ("application/json; charset=UTF-8", b'[{"a":1}', JsonArray),
            "ndjson": ("application/x-ndjson", b'{"a":1}\n', NDJSON),
            "stream-json": ("application/stream+json", b'{"a":1}\n', NDJSON),
            "jsonl": ("application/jsonl", b'{"a":1}\n', NDJSON),
            "eventstream": ("application/vnd.amazon.eventstream", b"", EventStream),
            "eventstream-under-json": ("application/json", event("chunk", b"{}"), EventStream),
            "speech": ("audio/mpeg", b"{\xff\xfb", Opaque),
            "html": ("text/html", b"<html><body>Bad Gateway", Document),
            "text": ("text/plain", b"data is not a field here", Document),
        }
    ),
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
