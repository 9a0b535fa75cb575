"""Spans of members: what editing stands on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.usage_opt_in.json_members import members, span_of

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
def test_every_member_of_any_object_is_found(value: dict, indent):
    data = json.dumps(value, indent=indent).encode()
    found = members(data)
    assert [json.loads(b'"' + m.key + b'"') for m in found] == list(value)
    assert [json.loads(data[m.value : m.end]) for m in found] == list(value.values())


@given(st.dictionaries(st.text(), JSON, min_size=1, max_size=5), st.data())
def test_an_object_without_a_member_is_the_rest_of_it(value: dict, data_source):
    data = json.dumps(value).encode()
    found = members(data)
    index = data_source.draw(st.integers(0, len(found) - 1))
    start, end = span_of(found[index], found)
    rest = dict(value)
    del rest[list(value)[index]]
    assert json.loads(data[:start] + data[end:]) == rest


@given(st.binary(max_size=60))
def test_garbage_gives_spans_inside_the_bytes(data: bytes):
    for member in members(data):
        assert 0 <= member.start <= member.value <= member.end <= len(data)
