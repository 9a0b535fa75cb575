"""JSON as it comes through; a large value made short: still JSON, every figure in it, the same for any
cut."""

import json
import time
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.framing import json_values, large_json
from addon.framing.large_json import Shortener
from tests.addon.feeding import cuts_of, pieces
from tests.addon.linear import assert_linear

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
    st.sampled_from(["x" * 25, 'q"\\\n' * 8, "é😀" * 9, "\ud83d\ude00" * 5]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=24), st.dictionaries(st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=25,
)


def short_form(data: bytes, *, tokens_max: int) -> bytes:
    return large_json.without_pauses(large_json.shortened_in_steps(data, tokens_max=tokens_max))


OUTER_ALWAYS = large_json.TOKENS_MAX + 1
"""Only outer values are kept, from the first byte on."""


def shortened(
    data: bytes,
    cuts: list[int] | range = range(0),
    *,
    outer_tokens: int = 0,
    keys: frozenset[bytes] | None = None,
) -> Shortener:
    shortener = Shortener(outer_tokens=outer_tokens, keys=keys)
    for piece in pieces(data, cuts):
        shortener.feed(piece)
    return shortener


def value_of(data: bytes) -> object:
    return json.loads(shortened(data).peek())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "STRING_BYTES_MAX", 20)
    monkeypatch.setattr(large_json, "SCALAR_BYTES_MAX", 15)
    monkeypatch.setattr(large_json, "SOFT_BYTES_MAX", 200)
    monkeypatch.setattr(large_json, "DEPTH_MAX", 5)
    monkeypatch.setattr(large_json, "MEMBERS_MAX", 2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("keys", [None, frozenset({b"a", b""})], ids=["any", "named"])
@pytest.mark.parametrize("outer_tokens", [0, OUTER_ALWAYS], ids=["all", "outer"])
@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.data())
def test_what_is_kept_is_json_and_cuts_mean_nothing(
    outer_tokens: int, keys, value, is_ascii, indent, data: st.DataObject
):
    text = json.dumps([value], ensure_ascii=is_ascii, indent=indent)
    body = b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"
    whole = shortened(body, outer_tokens=outer_tokens, keys=keys).peek()
    assert whole.startswith(b"data: [")
    assert whole.endswith(b"]\n\n")
    json.loads(whole[6:])
    cuts = data.draw(cuts_of(body))
    for cut in (cuts, range(len(body))):
        assert shortened(body, cut, outer_tokens=outer_tokens, keys=keys).peek() == whole


INNER = {"role": "user", "content": [{"type": "text", "more": {"quote": '"]}\\'}}, [[]], "x"]}


def test_outer_values_are_kept_once_tokens_are_short_and_cuts_mean_nothing():
    body = json.dumps(
        {"messages": [INNER] * 3, "wide": {"a": {"b": {"c": {"d": 1, "e": 2}, "f": 3}}}, "model": 7}
    ).encode()
    whole = shortened(body, outer_tokens=OUTER_ALWAYS).peek()
    assert json.loads(whole) == {
        "messages": [{"role": "user", "content": [{}]}],
        "wide": {"a": {"b": {"c": {}, "f": 3}}},
        "model": 7,
    }
    for cut in range(len(body)):
        assert shortened(body, [cut], outer_tokens=OUTER_ALWAYS).peek() == whole, cut


def test_objects_end_once_tokens_are_short():
    """As one that is being read then does."""
    inner = b"[[[[{" + b'"key":1,' * 60 + b'"key":{}}]]]]'
    shortener = Shortener(outer_tokens=large_json.TOKENS_MAX - 60)
    shortener.feed(b'{"a":' + inner + b',"model":7}')
    value = json.loads(shortener.peek())
    assert value == {"a": [[[[{"key": 1}]]]], "model": 7}
    assert 10 < shortener.peek().count(b"key") < 30


def test_skipped_runs_count_as_tokens():
    shortener = Shortener(tokens_max=1_000, outer_tokens=1_000)
    shortener.feed(b'{"a":1,"b":[[')
    for _ in range(100):
        shortener.feed(b"[],[" * 1_000)
    assert shortener.overflowed
    assert shortener.outer_members() == b'{"a":1}'


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        pytest.param(b'{"a":{"b":1},"c":[2', b'{"a":{"b":1}}', id="in-a-member"),
        pytest.param(b' {"a":1 , "c"', b' {"a":1 }', id="in-a-key"),
        pytest.param(b'{"a":[1,2', b"", id="in-the-first"),
        pytest.param(b'[{"a":1,"b":2', b"", id="no-object"),
        pytest.param(b"", b"", id="nothing"),
    ],
)
def test_the_outer_members_before_a_cut_are_an_object(body: bytes, kept: bytes):
    assert shortened(body, outer_tokens=1).outer_members() == kept


@given(st.binary(max_size=80), st.data())
def test_no_bytes_raise_and_cuts_mean_nothing(body: bytes, data: st.DataObject):
    body = b"{" + body
    assert shortened(body, data.draw(cuts_of(body))).peek() == shortened(body).peek()


@given(st.dictionaries(st.text(max_size=8), SCALARS, max_size=8))
def test_a_short_object_is_kept_whole(value):
    body = json.dumps(value).encode()
    assert value_of(body) == json.loads(body)


def test_of_a_long_string_the_beginning_is_kept():
    long = "é" * 4_000
    value = value_of(json.dumps({"a": long, "b": 1}, ensure_ascii=False).encode())
    assert value == {"a": long[:2047], "b": 1}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param(b"a" * 17 + b"\\u00e9b", b"a" * 17, id="half-an-escape"),
        pytest.param(b"a" * 14 + b"\\u00e9b", b"a" * 14, id="an-escape-at-the-end"),
        pytest.param(b"a" * 10 + b"\\ud83d\\ude00", b"a" * 10, id="half-a-pair"),
        pytest.param(b"a" * 8 + b"\\ud83d\\ude00b", b"a" * 8, id="a-pair-at-the-end"),
        pytest.param(b"a" * 13 + b"\\ud83d\\ude00", b"a" * 13, id="a-pair-and-one-byte"),
        pytest.param(b"\\\\" * 14, b"\\\\" * 4, id="backslashes"),
        pytest.param(b"a" + b"\\\\" * 14, b"a" + b"\\\\" * 3, id="odd-backslashes"),
        pytest.param(b"a" * 19 + "😀".encode(), b"a" * 19, id="half-a-character"),
        pytest.param(b"a" * 16 + "😀".encode() + b"b", b"a" * 16, id="a-character-at-the-end"),
        pytest.param(b"a" * 16 + b"\x80" * 9, b"a" * 16 + b"\x80" * 4, id="no-character"),
        pytest.param(b"a" * 20, b"a" * 20, id="just-short-enough"),
    ],
)
@pytest.mark.usefixtures("small")
def test_a_long_string_is_cut_between_characters(text: bytes, kept: bytes):
    body = b'{"a":"' + text + b'"}'
    assert shortened(body).peek() == b'{"a":"' + kept + b'"}'


def test_of_a_long_number_nothing_is_kept():
    digits = b"1" * 5_000
    assert value_of(b'{"a":' + digits + b',"b":[' + digits + b',2],"c":3}') == {
        "a": None,
        "b": [None, 2],
        "c": 3,
    }


def test_numbers_that_blanks_cut_stay_wrong():
    """What is no JSON does not become a figure."""
    for text in (b'{"a":1 2}', b'{"a":1\n \n2}'):
        for cuts in (range(0), range(len(text))):
            kept = shortened(text, cuts).peek()
            with pytest.raises(ValueError):
                json.loads(kept)


def test_of_an_array_of_scalars_the_first_are_kept():
    numbers = list(range(1_000))
    body = json.dumps({"a": [*numbers, {"b": 1}, "x" * 99, {"c": 2}], "u": 1}).encode()
    assert value_of(body) == {"a": [*numbers[:16], {"b": 1}, "x" * 99, {"c": 2}], "u": 1}
    body = json.dumps({"a": [*numbers, "x", [], 7], "u": 1}).encode()
    assert value_of(body) == {"a": [*numbers[:16], [], 7], "u": 1}
    assert value_of(b'["' + b'","' * 40 + b'"]') == [""] * 16


def test_members_are_kept_when_elements_are_dropped():
    item = {"type": "message", "content": [{"text": "x" * 500}, [[[[{}]]]]]}
    value = value_of(json.dumps({"output": [item] * 2_000, "usage": {"input_tokens": 5}}).encode())
    assert isinstance(value, dict)
    assert value["usage"] == {"input_tokens": 5}
    assert 200 < len(value["output"]) < 300


def test_what_is_nested_too_deeply_becomes_null():
    body = b'{"a":' * 200 + b"1" + b"}" * 200
    assert b"null" in shortened(body).peek()
    json.loads(shortened(body).peek())
    assert value_of(b"[" * 200 + b"[],1" + b"]" * 200 + b"\n") is not None


@pytest.mark.usefixtures("small")
def test_an_empty_container_nested_too_deeply_becomes_null():
    assert shortened(b"[[[[[[],{},1],2]]]]").peek() == b"[[[[[null,null,1],2]]]]"


@pytest.mark.usefixtures("small")
def test_strings_of_a_dropped_container_may_be_cut_anywhere():
    body = b'[[[[[{"key":"a]}\\"b","more":["c"]},1]]]],7'
    whole = shortened(body).peek()
    assert whole.startswith(b"[[[[[null,1]]]]")
    for cut in range(len(body)):
        assert shortened(body, [cut]).peek() == whole, cut


def test_too_many_values_are_given_up():
    shortener = shortened(b"{" + b'"key":1,' * 100_000, range(0, 800_000, 65_536))
    assert shortener.overflowed
    assert len(shortener.peek()) < large_json.KEPT_BYTES_MAX + 5_000


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" + b'"",[[1]],' * 500, id="dropped"),
        pytest.param(b"{" + b'"a":{},' * 500, id="kept"),
    ],
)
def test_too_many_tokens_are_given_up(body: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(large_json, "SOFT_BYTES_MAX", 20)
    assert short_form(body, tokens_max=100) == b""
    assert short_form(b'{"a":[1]}', tokens_max=100) == b'{"a":[1]}'


def test_what_stands_around_is_bounded_too():
    shortener = shortened(b"x" * 1_000_000)
    assert shortener.overflowed
    assert shortened(b"x" * 1_000_000 + b"{").overflowed


@pytest.mark.large
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda n: b"[" * n, id="open"),
        pytest.param(lambda n: b"[" + b"[]," * n, id="empty"),
        pytest.param(lambda n: b"[" + b"[[[[[]]]]]," * n, id="nested"),
        pytest.param(lambda n: b"[" + b"[1," * n, id="begun"),
        pytest.param(lambda n: b'{"a":"' + b'\\"' * n, id="escapes"),
        pytest.param(lambda n: b"[" + b'"",' * n, id="strings"),
        pytest.param(lambda n: b"[" + b"0.12345678," * n, id="numbers"),
        pytest.param(lambda n: b"[" + b'{"k":{"k":1}},' * n, id="objects"),
        pytest.param(lambda n: b"[" + b'"' * n, id="quotes"),
        pytest.param(lambda n: b"[" + b"\\" * n, id="backslashes"),
    ],
)
@pytest.mark.parametrize("outer_tokens", [0, OUTER_ALWAYS], ids=["all", "outer"])
def test_the_work_is_linear(body, outer_tokens: int):
    def work(size: int) -> None:
        data = body(size)
        shortened(data, range(0, len(data), 8_192), outer_tokens=outer_tokens)

    assert_linear(work, 2_500)


def test_a_long_value_is_shortened_in_steps_with_the_same_result():
    body = json.dumps({"a": "x" * 300_000, "b": ['"\\' * 20_000, 1], "c": {"usage": 7}}).encode()
    steps = large_json.shortened_in_steps(body, tokens_max=30_000)
    found: list[bytes] = []

    def run() -> Generator[None, None, None]:
        found.append((yield from steps))

    assert len(list(run())) == -(-len(body) // large_json.STEP_BYTES)
    assert found == [short_form(body, tokens_max=30_000)]
    assert json.loads(found[0])["c"] == {"usage": 7}


def test_text_without_escapes_is_searched_and_not_matched():
    """15 MB of it take milliseconds: the regular expression would take 70."""
    body = b'{"a":"' + b"x" * 15_000_000 + b'"}'
    began = time.thread_time()
    short_form(body, tokens_max=30_000)
    assert time.thread_time() - began < 0.05


OTHERS = {f"k{n}": n for n in range(400)} | {f"o{n}": {"x": [n, "]"]} for n in range(400)}


@pytest.mark.parametrize("size", [10**9, 1, 7])
def test_an_object_of_many_members_keeps_its_first_and_the_named_ones(size: int):
    body = json.dumps({"usage": OTHERS | {"tokens": 5, "list": [1], "text": "t"}, "id": 1}).encode()
    keys = frozenset({b"tokens", b"list", b"id"})
    kept = shortened(body, range(0, len(body), size), keys=keys).peek()
    first = dict(list(OTHERS.items())[: large_json.MEMBERS_MAX])
    assert json.loads(kept) == {"usage": first | {"tokens": 5, "list": [1]}, "id": 1}


def test_keys_with_escapes_are_kept():
    body = json.dumps(OTHERS).encode()[:-1] + b', "\\u0075sage": 1}'
    kept = json.loads(shortened(body, keys=frozenset()).peek())
    assert list(kept)[large_json.MEMBERS_MAX :] == ["usage"]


@pytest.mark.parametrize(
    ("data", "expected"),
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
    assert json_values.loads(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b'{"a":[1,"\xc3\xa9"]}', True, id="json"),
        pytest.param(b'{"a":NaN}', False, id="nan"),
        pytest.param(b'{"a":-Infinity}', False, id="infinity"),
        pytest.param(b'{"a":"\\ud800"}', False, id="lone-surrogate"),
        pytest.param(b'{"a":', False, id="cut"),
    ],
)
def test_strict_json_is_told_apart(data: bytes, expected: bool) -> None:
    assert (json_values.strict_loads(data) is not None) is expected


def test_digits_are_kept_behind_an_ordinary_float() -> None:
    value = json_values.loads(b'{"a":0.5,"b":{"c":0.25,"d":36893488147419103232}}')
    assert value == {"a": 0.5, "b": {"c": 0.25, "d": 2**65}}


def test_dumps_keeps_order_letters_and_digits() -> None:
    value = {"b": 1, "a": {"é": 123456789012345678901234}}
    assert json_values.dumps(value) == '{"b":1,"a":{"é":123456789012345678901234}}'


@given(st.binary(max_size=100))
def test_no_bytes_raise(data: bytes) -> None:
    json_values.loads(data)


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
    got = json_values.loads(json.dumps(value).encode())
    assert got is not None
    assert json.loads(json_values.dumps(got), parse_int=float) == json.loads(
        json.dumps(value), parse_int=float
    )


def test_keys_written_with_escapes_are_noticed() -> None:
    assert json_values.has_escaped_key(b'{"\\u0075sage":1}')
    assert json_values.has_escaped_key(b'{"finish\\u005Freason":1}')
    assert json_values.has_escaped_key(b'{"type":"response\\u002ecompleted"}')
    assert not json_values.has_escaped_key(b'{"usage":"\\u003cb\\u003e \\u4f60 \\u00e9"}')
