"""Spans of members: what editing stands on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.usage_opt_in.json_members import last_named, members, spans_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b'{"a":1}', [(b"a", b"1")], id="one"),
        pytest.param(b"{}", [], id="empty"),
        pytest.param(
            b' { "a" : "x,}" , "b":[1,{"a":2}] } ',
            [(b"a", b'"x,}"'), (b"b", b'[1,{"a":2}]')],
            id="nested-and-spaced",
        ),
        pytest.param(
            b'{"a":"\\"b\\":1","c":null}',
            [(b"a", b'"\\"b\\":1"'), (b"c", b"null")],
            id="escaped-quotes",
        ),
        pytest.param(b'{"a":1,"a":2}', [(b"a", b"1"), (b"a", b"2")], id="duplicate-keys"),
        pytest.param(b'[{"a":1}]', [], id="an-array-is-no-object"),
        pytest.param(b'{"a":1', [], id="not-whole"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_members_stand_where_they_are_written(data: bytes, expected: list[tuple[bytes, bytes]]):
    assert [(m.key, data[m.value : m.end]) for m in members(data)] == expected


@given(st.dictionaries(st.text(), JSON, max_size=5), st.sampled_from([None, 1, "\t"]))
def test_every_member_of_any_object_is_found(value: dict[str, object], indent):
    data = json.dumps(value, indent=indent).encode()
    found = members(data)
    assert [json.loads(b'"' + m.key + b'"') for m in found] == list(value)
    assert [json.loads(data[m.value : m.end]) for m in found] == list(value.values())


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), JSON), min_size=1, max_size=6))
def test_an_object_without_its_members_of_a_name_is_the_rest_of_it(pairs):
    inside = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in pairs)
    data = f"{{ {inside} }}".encode()
    at, rest = 0, b""
    for start, end in spans_of(b"a", members(data)):
        assert at <= start < end
        rest += data[at:start]
        at = end
    rest += data[at:]
    expected = [(key, value) for key, value in pairs if key != "a"]
    assert json.loads(rest, object_pairs_hook=list) == json.loads(
        json.dumps(expected), object_pairs_hook=list
    ) or json.loads(rest) == dict(expected)


def test_a_key_is_known_however_it_is_written():
    found = members(b'{"\\u0061":1,"a\\n":2,"a":3,"\\u0061":4,"\\ud800":5}')
    last = last_named(found, b"a")
    assert last is not None
    assert last.key == b"\\u0061"
    assert last.start > 20
    assert last_named(found, b"b") is None


@given(st.binary(max_size=60))
def test_garbage_gives_spans_inside_the_bytes(data: bytes):
    for member in members(data):
        assert 0 <= member.start <= member.value <= member.end <= len(data)


@pytest.mark.parametrize("data", [b'"text"', b'"a":1', b": {", b'{"a":1', b"", b"]{}"])
def test_what_is_no_whole_object_has_no_members(data: bytes):
    assert members(data) == []


def test_a_comma_without_a_value_makes_no_member():
    assert [each.key for each in members(b'{,"a",,"b":1,}')] == [b"b"]
