"""Bodies of JSON alone: documents, lines, arrays, and those that hold no frame; and the choice of a framing:
content types lie in both directions, and the first bytes tell."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.framing import document, long_json
from addon.framing.choice import FRAMINGS, framing_of
from addon.framing.document import NDJSON, Document, JsonArray, Opaque
from addon.framing.eventstream import EventStream
from addon.framing.frame import Frame, Framing
from addon.framing.grpc import Grpc
from addon.framing.sse import SSE
from tests.addon.feeding import cuts_of, frame, frame_every_way, pieces
from tests.addon.framing.test_eventstream import event
from tests.addon.linear import assert_linear
from tests.named import for_each, named


def test_a_body_is_one_frame_when_it_ends() -> None:
    framing = Document()
    assert framing.feed(b'{"a":') == b""
    assert framing.feed(b"1}") == b""
    assert framing._held == b'{"a":1}'
    assert frame_every_way(Document, b' {"a":\n 1}\n').frames == [Frame("", b' {"a":\n 1}\n')]


@for_each("body", [b"", b"\n \r\n"])
def test_nothing_is_no_frame(body: bytes) -> None:
    assert frame_every_way(Document, body).frames == []
    assert Document().count(body) == 0


def test_lines_of_objects_are_frames_of_their_own() -> None:
    """Ollama's stream behind a recorder that says `application/json`."""
    framed = frame_every_way(Document, b'{"a":1}\n{"b":2}\n')
    assert [one.data for one in framed.frames] == [b'{"a":1}\n', b'{"b":2}\n']
    assert Document().count(b'{"a":1}\n{"b":2}\n') == 2


def test_of_a_longer_body_the_ends_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "WHOLE_BYTES_MAX", 100)
    monkeypatch.setattr(document, "END_BYTES", 20)
    body = b'{"model":"m","a":"' + b"x" * 1_000 + b'","usage":{}}'
    framing = Document()
    for piece in pieces(body, range(0, len(body), 4)):
        assert framing.feed(piece) == b""
        assert framing.held_bytes <= 100
    assert framing.end() == body[:20] + document.GAP + body[-framing_tail(body) :]


def framing_tail(body: bytes) -> int:
    """How much of the end is held: `END_BYTES`, and what came since they were cut."""
    framing = Document()
    for piece in pieces(body, range(0, len(body), 4)):
        framing.feed(piece)
    return framing.held_bytes - 20 - len(document.GAP)


@pytest.mark.large
def test_of_a_body_of_any_length_little_is_held() -> None:
    framing = Document()
    framing.feed(b'{"a":"')
    for _ in range(1_000):
        framing.feed(b"x" * 65_536)
        assert len(framing._held) <= long_json.WHOLE_BYTES_MAX
    assert framing.held_bytes == len(framing._held)


LONG_BODIES: dict[str, tuple[type[Framing], Callable[[int], bytes]]] = {
    "a line": (NDJSON, lambda n: b'{"a":"' + b"x" * n),
    "lines": (NDJSON, lambda n: b'{"a":1}\n' * (n // 8)),
    "a document": (Document, lambda n: b'{"a":"' + b"x" * n),
    "a document of lines": (Document, lambda n: b'{"a":1}\n' * (n // 8)),
    "an element": (JsonArray, lambda n: b'[{"a":"' + b"x" * n),
    "elements": (JsonArray, lambda n: b"[" + b'{"a":1},' * (n // 8)),
    "open braces": (JsonArray, lambda n: b"[" + b"{" * n),
    "open quotes": (JsonArray, lambda n: b"[{" + b'"' * n),
    "backslashes": (JsonArray, lambda n: b'[{"' + b"\\" * n),
    "an event": (SSE, lambda n: b"data: " + b"x" * n),
    "events": (SSE, lambda n: b"data: x\n\n" * (n // 9)),
    "blank lines": (SSE, lambda n: b"data: x\n\n" + b"\r\n" * (n // 2)),
}


@pytest.mark.nightly
@pytest.mark.large
@pytest.mark.parametrize("name", LONG_BODIES)
@pytest.mark.parametrize("size", [1, 50])
def test_the_work_on_small_chunks_is_linear(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "LONG_BYTES", 64)  # from which on lines are told
    make, body = LONG_BODIES[name]

    def feed(length: int) -> None:
        framing = make()
        for piece in pieces(body(size * length), range(0, size * length, size)):
            run = framing.feed(piece)
            for block in framing.split(run):
                framing.parse(block)
        framing.parse(framing.end())

    assert_linear(feed, 2_000 if size == 1 else 250)


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


@for_each(
    "framing, body, frames",
    [
        pytest.param(NDJSON, b'{"a":\r1}\n', [b'{"a":\r1}'], id="a cr inside a line is blank"),
        # Feature extraction answers with numbers, or lists of them.
        pytest.param(JsonArray, b'[0.1, -2, [3, 4], "x", null]', [], id="elements are no objects"),
        pytest.param(JsonArray, b'[{"a":1},{"b":', [b'{"a":1}'], id="an array that is cut"),
        pytest.param(JsonArray, b'[}{"a":1}]', [b'{"a":1}'], id="a brace that closes nothing"),
        pytest.param(
            JsonArray,
            b'[{},{"a":{}},{ }]',
            [b"{}", b'{"a":{}}', b"{ }"],
            id="an empty object is an element and within one it is none",
        ),
    ],
)
def test_what_is_a_frame(framing: type[Framing], body: bytes, frames: list[bytes]) -> None:
    assert frame_every_way(framing, body).frames == [Frame("", each) for each in frames]


def test_a_line_is_given_out_when_it_is_complete() -> None:
    framing = NDJSON()
    assert framing.feed(b'{"a":') == b""
    assert framing.feed(b'1}\n{"b') == b'{"a":1}\n'
    assert framing._held == b'{"b'
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


def test_elements_are_frames() -> None:
    body = b'[{"a": [1, {"b": 2}]}\n,\r\n{"c": "]},{"}\n]\n'
    framed = frame_every_way(JsonArray, body)
    assert framed.frames == [Frame("", b'{"a": [1, {"b": 2}]}'), Frame("", b'{"c": "]},{"}')]
    assert framed.blocks == [b'[{"a": [1, {"b": 2}]}', b'\n,\r\n{"c": "]},{"}', b"\n]\n"]


@for_each("text", [r"quote \" in it", r"backslash \\", r"both \\\" ends \\", r"\u007d", "…"])
def test_strings_end_at_their_own_quote(text: str) -> None:
    element = f'{{"t":"{text}"}}'.encode()
    framed = frame_every_way(JsonArray, b"[" + element + b"," + element + b"]")
    assert framed.frames == [Frame("", element)] * 2


def test_an_element_is_given_out_when_it_is_complete() -> None:
    framing = JsonArray()
    assert framing.feed(b'[{"a":1}') == b'[{"a":1}'
    assert framing.feed(b",") == b""
    assert framing.feed(b'{"b":2') == b""
    assert framing.feed(b"}]") == b',{"b":2}'
    assert framing._held == b"]"


def test_counting_needs_no_memory_of_the_run() -> None:
    framing = JsonArray()
    assert framing.count(b'[{"a":1},{"b":2}') == 2
    assert framing.count(b',{"c":3}') == 1
    assert framing.split(b'\n,{"c":3},{"d":4}') == [b'\n,{"c":3}', b',{"d":4}']


def test_an_oversize_element_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "ELEMENT_BYTES_MAX", 100)
    body = b'[{"x":"' + b"y" * 500 + b'"},{"usage":1}]'
    framing = JsonArray()
    seen = []
    for piece in pieces(body, range(0, len(body), 40)):
        run = framing.feed(piece)
        seen += [framing.parse(block) for block in framing.split(run)]
    assert seen[-1] == Frame("", b'{"usage":1}')
    assert framing.lost is not None


@given(
    st.lists(st.sampled_from([b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"a", b" "])), st.data()
)
def test_cuts_of_an_array_mean_nothing(parts: list[bytes], data: st.DataObject) -> None:
    """Any bytes may come; whatever is made of them is the same for every cut."""
    body = b"".join(parts)
    runs = []
    for chunks in ([body], pieces(body, data.draw(cuts_of(body)))):
        framing = JsonArray()
        runs.append(b"".join([*(framing.feed(chunk) for chunk in chunks), b"|", framing.end()]))
    assert runs[0] == runs[1]


@given(
    st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=3), max_size=4),
    st.data(),
)
def test_arrays_of_objects_in_any_cut(elements: list[dict[str, str]], data: st.DataObject) -> None:
    import orjson

    body = orjson.dumps(elements)
    whole = frame(JsonArray, [body])
    assert [orjson.loads(one.data) for one in whole.frames] == elements
    assert frame(JsonArray, pieces(body, data.draw(cuts_of(body)))) == whole


SSE_BODY = b'data: {"id":1}\n\n'


@for_each(
    "content_type, begun, expected",
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


@for_each("begun", [b"", b"\n\n", b"data", b"\x00\x00\x00\x10"])
def test_more_is_waited_for_where_it_cannot_be_told(begun: bytes) -> None:
    assert framing_of("text/event-stream", begun, is_over=False) is None


def test_at_the_end_of_the_body_something_is_chosen() -> None:
    assert type(framing_of("text/event-stream", b"", is_over=True)) is SSE
    assert type(framing_of("", b"OK", is_over=True)) is Document


def test_every_framing_has_a_name() -> None:
    every = {SSE, NDJSON, JsonArray, EventStream, Grpc, Document, Opaque}
    assert {type(make()) for make in FRAMINGS.values()} == every


def test_a_body_that_goes_on_with_blanks_is_what_its_type_says() -> None:
    assert framing_of("text/event-stream", b"\n" * 100, is_over=False) is None
    assert isinstance(framing_of("text/event-stream", b"\n" * 5_000, is_over=False), SSE)
