"""JSON as it comes through: each figure as it was written, and no bytes raise."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.framing import long_json
from addon.framing.json_values import (
    dumps,
    has_escaped_key,
    is_cut,
    loads,
    repaired,
    repeated_key,
    strict_loads,
)
from tests.named import for_each


@for_each(
    "text, value",
    [
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b'{"a":"x\x01"}', {"a": "x\x01"}),
        (b'{"a":1}}', {"a": 1}),
        (b'{"a":1,,"b":[1,],}', {"a": 1, "b": [1]}),
        (b'{,"a":1}', {"a": 1}),
        (b'{"a":",}"}', {"a": ",}"}),
        (b"[1]x", None),
        (b'{"a":', None),
    ],
)
def test_damaged_json_is_read_where_it_is_certain(text: bytes, value: Any) -> None:
    assert repaired(text) == value


@for_each(
    "text, expected",
    [
        (b'{"a":"x', True),
        (b'{"a":[1', True),
        (b'{"a":1}', False),
        (b'{"a":"{"}', False),
        (b"}", False),
    ],
)
def test_whether_json_ends_before_its_end(text: bytes, expected: bool) -> None:
    assert is_cut(text) is expected


@for_each(
    "data, expected",
    [
        pytest.param(b'{"a":1}', {"a": 1}, id="object"),
        pytest.param(b"[1]", None, id="array"),
        pytest.param(b"1", None, id="number"),
        pytest.param(b"[DONE]", None, id="done"),
        pytest.param(b'{"a":', None, id="truncated"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b'{"a":"\xff"}', None, id="not-utf-8"),
        pytest.param(b'{"a":NaN,"b":-Infinity,"c":2}', {"a": "NaN", "b": "-Infinity", "c": 2}, id="nan"),
        pytest.param(b'{"a":1e999}', {"a": "1e999"}, id="beyond-float"),
        pytest.param(b'{"a":"\\ud800"}', {"a": "\ud800"}, id="lone-surrogate"),
        pytest.param(b'{"u":{"n":123456789012345678901234}}', {"u": {"n": 123456789012345678901234}}, id="beyond-64-bits"),
        pytest.param(b'{"n":18446744073709551615}', {"n": 2**64 - 1}, id="64-bits"),
        pytest.param(b"{" * 100_000, None, id="deep"),
        pytest.param(b'{"n":' + b"9" * 5_000 + b"}", None, id="beyond-pythons-limit"),
    ],
)  # fmt: skip
def test_what_comes_through(data: bytes, expected: object) -> None:
    assert loads(data) == expected


@for_each(
    "data, expected",
    [
        pytest.param(b'{"a":[1,"\xc3\xa9"]}', True, id="json"),
        pytest.param(b'{"a":NaN}', False, id="nan"),
        pytest.param(b'{"a":-Infinity}', False, id="infinity"),
        pytest.param(b'{"a":"\\ud800"}', False, id="lone-surrogate"),
        pytest.param(b'{"a":', False, id="cut"),
    ],
)
def test_strict_json_is_told_apart(data: bytes, expected: bool) -> None:
    assert (strict_loads(data) is not None) is expected


def test_digits_are_kept_behind_an_ordinary_float() -> None:
    value = loads(b'{"a":0.5,"b":{"c":0.25,"d":36893488147419103232}}')
    assert value == {"a": 0.5, "b": {"c": 0.25, "d": 2**65}}


def test_dumps_keeps_order_letters_and_digits() -> None:
    value = {"b": 1, "a": {"é": 123456789012345678901234}}
    assert dumps(value) == '{"b":1,"a":{"é":123456789012345678901234}}'


@given(st.binary(max_size=100), st.sampled_from([b"", b'{"a":', b'{"a":"', b"[{", b'{"a":[{"a":']))
def test_no_bytes_raise(data: bytes, begin: bytes) -> None:
    for each in (data, begin + data, begin + data + b"}"):
        for read in (loads, repaired, is_cut, strict_loads):
            read(each)
        for length in (1, long_json.LONG_BYTES):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(long_json, "LONG_BYTES", length)
                long_json.read(each, frozenset({"a", "b"}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_objects_come_back_as_they_were(value: dict[str, object]) -> None:
    """Integers of any size too, where a ledger could find them: in objects, not in lists."""
    got = loads(json.dumps(value).encode())
    assert got is not None
    assert json.loads(dumps(got), parse_int=float) == json.loads(json.dumps(value), parse_int=float)


def test_keys_written_with_escapes_are_noticed() -> None:
    assert has_escaped_key(b'{"\\u0075sage":1}')
    assert has_escaped_key(b'{"finish\\u005Freason":1}')
    assert has_escaped_key(b'{"type":"response\\u002ecompleted"}')
    assert not has_escaped_key(b'{"usage":"\\u003cb\\u003e \\u4f60 \\u00e9"}')


@for_each(
    "text, key",
    [
        (b'{"a":1,"b":[{"a":1}]}', None),
        (b' {"a": 1.0, "b": [{"a": "\\u003c"}]}', None),
        (b'{"a":1,"b":[{"c":1,"a":2,"c":3}]}', "c"),
        (b'{"a":1,"\\u0061":1}', "a"),
        (b'{"a":' + b"9" * 30 + b"}", None),
        (b'{"a":', None),
    ],
)
def test_a_key_that_stands_twice_is_found(text, key):
    assert repeated_key(text, loads(text)) == key
