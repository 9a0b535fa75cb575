import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.framing import json_array
from addon.framing.frame import Frame
from addon.framing.json_array import JsonArray
from tests.addon.feeding import cuts_of, frame, frame_every_way, pieces


def test_elements_are_frames() -> None:
    body = b'[{"a": [1, {"b": 2}]}\n,\r\n{"c": "]},{"}\n]\n'
    framed = frame_every_way(JsonArray, body)
    assert framed.frames == [Frame("", b'{"a": [1, {"b": 2}]}'), Frame("", b'{"c": "]},{"}')]
    assert framed.blocks == [b'[{"a": [1, {"b": 2}]}', b'\n,\r\n{"c": "]},{"}', b"\n]\n"]


@pytest.mark.parametrize(
    "text", [r"quote \" in it", r"backslash \\", r"both \\\" ends \\", r"\u007d", "…"]
)
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
    assert framing.held == b"]"


def test_elements_that_are_no_objects_are_no_frames() -> None:
    """Feature extraction answers with numbers, or lists of them."""
    assert frame_every_way(JsonArray, b'[0.1, -2, [3, 4], "x", null]').frames == []


def test_an_array_that_is_cut_gives_what_it_has() -> None:
    assert frame_every_way(JsonArray, b'[{"a":1},{"b":').frames == [Frame("", b'{"a":1}')]


def test_counting_needs_no_memory_of_the_run() -> None:
    framing = JsonArray()
    assert framing.count(b'[{"a":1},{"b":2}') == 2
    assert framing.count(b',{"c":3}') == 1
    assert framing.split(b'\n,{"c":3},{"d":4}') == [b'\n,{"c":3}', b',{"d":4}']


def test_an_oversize_element_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "ELEMENT_BYTES_MAX", 100)
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
def test_cuts_mean_nothing(parts: list[bytes], data: st.DataObject) -> None:
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


def test_a_brace_that_closes_nothing_is_passed_over() -> None:
    assert frame_every_way(JsonArray, b'[}{"a":1}]').frames == [Frame("", b'{"a":1}')]


def test_an_empty_object_is_an_element_and_within_one_it_is_none() -> None:
    body = b'[{},{"a":{}},{ }]'
    assert frame_every_way(JsonArray, body).frames == [
        Frame("", b"{}"),
        Frame("", b'{"a":{}}'),
        Frame("", b"{ }"),
    ]
