"""Long JSON is read in one turn: its figures, wherever they stand, and none of its pictures."""

import json
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from addon.framing import json_values, long_json
from tests.addon.linear import assert_linear
from tests.named import for_each

KEYS = frozenset(
    ["id", "model", "usage", "choices", "message", "content", "finish_reason", "data", "b64_json"]
)
USAGE = {"prompt_tokens": 7, "details": {"cached_tokens": 3}}
LONG = "x" * 100_000


def read(value: Any, keys: frozenset[str] = KEYS) -> dict[str, Any] | None:
    return long_json.read(json.dumps(value, separators=(",", ":")).encode(), keys)[0]


@for_each(
    "value, expected",
    [
        pytest.param(
            {"data": [{"b64_json": LONG}], "usage": USAGE, "other": LONG},
            {"data": [{"b64_json": LONG[: long_json.TEXT_BYTES_MAX - 1]}], "usage": USAGE},
            id="a-picture",
        ),
        pytest.param(
            {"data": list(range(100_000)), "usage": USAGE}, {"data": [], "usage": USAGE}, id="numbers"
        ),
        pytest.param(
            {"data": [LONG, "b", None]}, {"data": [LONG[:4095], "b", None]}, id="pictures"
        ),
        pytest.param({"data": ["text"] * 10_000}, {"data": []}, id="texts"),
        pytest.param(
            {"choices": [{"message": {"content": LONG}, "finish_reason": "stop", "x": 1}]},
            {
                "choices": [
                    {
                        "finish_reason": "stop",
                        "message": {"content": LONG[: long_json.TEXT_BYTES_MAX - 1]},
                    }
                ]
            },
            id="nested",
        ),
        pytest.param({"choices": [{"x": 1}, LONG], "id": "i"}, {"choices": [{"x": 1}], "id": "i"}, id="mixed"),
        pytest.param({"message": {"message": LONG}}, {"message": {"message": LONG[:4095]}}, id="depth"),
        pytest.param([{"id": LONG}], None, id="no-object"),
    ],
)  # fmt: skip
def test_members_with_a_name_are_read(value: Any, expected: dict[str, Any] | None) -> None:
    assert read(value) == expected


def test_a_usage_object_is_read_whole_with_keys_that_nobody_has_named() -> None:
    usage = {**USAGE, "hologram_tokens": 5}
    assert (read({"data": LONG, "usage": usage}) or {})["usage"] == usage


def test_of_a_list_with_too_many_objects_the_first_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_json, "OBJECTS_MAX", 10)
    short = [{"id": str(number), "x": "y" * 10_000} for number in range(11)]
    assert read({"data": short, "id": "i"}) == {"data": [short[0]], "id": "i"}
    assert read({"data": [{"id": LONG}] * 11, "id": "i"}) == {"data": [], "id": "i"}


def test_of_a_list_with_too_many_elements_the_first_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_json, "ELEMENTS_MAX", 2)
    value = [{"id": "1"}, {"id": LONG}, {"id": "3"}]
    assert read({"data": value[:2]}) == {"data": [{"id": "1"}, {"id": LONG[:4095]}]}
    assert read({"data": value}) == {"data": [{"id": "1"}]}


def test_of_many_nested_members_the_outermost_and_what_they_name_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_json, "MEMBERS_MAX", 10)
    monkeypatch.setattr(long_json, "DECODED_MAX", 4)
    monkeypatch.setattr(long_json, "END_BYTES", 100)
    short, long = {"id": "i"}, [{"id": "1", "x": 1}] * 6
    value = {"x": LONG, "message": short, "": 1, "choices": long, "usage": {"n": 1}, "y": LONG}
    expected = {"message": short, "choices": [{"id": "1"}] * 6, "usage": {"n": 1}}
    assert read(value) == expected
    outer = {"x": LONG, "message": value, "y": LONG}
    assert read(outer) == {"message": expected}
    first = {**expected, "choices": long[:1]}
    assert read({**value, "choices": [*long, 1]}) == first
    monkeypatch.setattr(long_json, "ELEMENTS_MAX", 5)
    assert read(value) == first
    monkeypatch.setattr(long_json, "PASSED_MAX", 30)
    assert (read(value), read(outer)) == (first, None)
    monkeypatch.setattr(long_json, "UNKNOWN_MAX", 1)
    assert read(value) is None


def test_the_ends_of_one_with_too_many_members_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("MEMBERS_MAX", "PASSED_MAX"):
        monkeypatch.setattr(long_json, bound, 2)
    assert read({"id": "i", "usage": {"n": 1}}) == {"id": "i", "usage": {"n": 1}}


@for_each("body", [{"x": LONG, "id": "i"}, {"id": "i"}], ids=["whole", "short"])
def test_a_byte_order_mark_hides_nothing(body: Any) -> None:
    for blank in (b"", b" \n"):
        data = blank + b"\xef\xbb\xbf" + blank + json.dumps(body).encode()
        assert long_json.read(data, KEYS) == ({"id": "i"}, None)


def test_containers_beyond_the_depth_are_left_out() -> None:
    value: Any = {"id": LONG}
    for _ in range(long_json.DEPTH_MAX + 2):
        value = {"message": value}
    found: Any = read(value)
    for _ in range(long_json.DEPTH_MAX):
        found = found["message"]
    assert found is None


LOGPROB = {"token": " the", "logprob": -0.25, "bytes": [32, 116]}


@for_each(
    "body, expected",
    [
        pytest.param({"choices": [{"logprobs": {"content": [{**LOGPROB, "top": [LOGPROB] * 20}] * 1_200}, "finish_reason": "stop"}], "usage": USAGE},
                     {"choices": [{"finish_reason": "stop"}], "usage": USAGE}, id="top-logprobs"),
        pytest.param({"choices": [{"message": {"content": '{"a":"b"}' * 100_000}, "finish_reason": "stop"}]},
                     {"choices": [{"message": {"content": ('{\\"a\\":\\"b\\"}' * 400)[:4095]}, "finish_reason": "stop"}]}, id="json-in-a-text"),
    ],
)  # fmt: skip
def test_values_that_are_passed_over_hide_no_member(body: Any, expected: Any) -> None:
    found = read(body, frozenset(["choices", "finish_reason", "usage", "message", "content"]))
    assert found == expected


@pytest.mark.large
@pytest.mark.parametrize(
    "unit",
    [b'"%07d":1', b'"%07d" :1', b'"\\\\%d":1', b'"%07d":[]', b'"%07d":{"%07d":1}'],
    ids=["names", "blanks", "escapes", "lists", "objects"],
)
@pytest.mark.parametrize(
    "around",
    [b'{%s,"id":"i"}', b'{"data":[{%s}],"id":"i"}', b'{"data":[{%s,"id":"i"}]}'],
    ids=["outer", "list", "inner"],
)
def test_an_object_of_any_number_of_members_is_read_in_bounded_work(
    unit: bytes, around: bytes
) -> None:
    """Whole up to a count of members, by its ends from then on: 700 000 of them took 600 ms."""
    count = unit.count(b"%")

    def body(size: int) -> bytes:
        return around % b",".join(unit % ((number,) * count) for number in range(size))

    few, many = body(20_000), body(400_000)
    slow = min(cpu_ns(few) for _ in range(5))
    assert min(cpu_ns(many) for _ in range(3)) < 10 * slow
    assert (long_json.read(few, KEYS)[0] or {}).keys() & {"id", "data"}


@pytest.mark.large
@pytest.mark.parametrize("around", [b"{%s}", b'{"id":{%s}}', b'{"data":[{%s}]}', b'{"data":[%s]}'])
def test_many_objects_are_passed_over(around: bytes) -> None:
    """They took half the time of making values of all of them."""
    unit = b'{"%07d":{}}' if around.endswith(b"[%s]}") else b'"%07d":{"a":1}'
    body = around % b",".join(unit % number for number in range(290_000))
    whole = min(cpu_ns(body, json_values.loads) for _ in range(2))
    assert 4 * min(cpu_ns(body) for _ in range(3)) < whole


def cpu_ns(
    body: bytes, parse: Callable[[bytes], Any] = lambda body: long_json.read(body, KEYS)
) -> int:
    before = time.thread_time_ns()
    parse(body)
    return time.thread_time_ns() - before


def ends(body: bytes, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    monkeypatch.setattr(long_json, "WHOLE_BYTES_MAX", 200)
    monkeypatch.setattr(long_json, "END_BYTES", 100)
    return long_json.read(body, KEYS)[0]


@for_each(
    "head, tail, expected",
    [
        (b'{"id":"i","data":["', b'"],"usage":{"n":1},"model":"m"}', {"id": "i", "usage": {"n": 1}, "model": "m"}),
        (b'{"id":"i","usage":{"n":1},"data":["', b'"]}', {"id": "i", "usage": {"n": 1}}),
        (b' {"other":1,"id":"i" , "data":["', b'"] , "usage":{"n":1} } ', {"id": "i", "usage": {"n": 1}}),
        (b'{"data":{"x":["', b'"],"usage":{"n":1}}}', {}),
        (b'{"id":"i","data":[ {"id":"j"},"', b'"],"model":"m"}', {"id": "i", "data": [{"id": "j"}], "model": "m"}),
        (b'{"id":"i","data":[[1],"', b'"],"model":"m"}', {"id": "i", "model": "m"}),
        (b'{"id":12', b'3,"model":"m"}', {"model": "m"}),
        (b"", b"", {}),
        (b"[" * 60, b"]" * 60, {}),
        (b'{"id":' + b"[" * 60, b"", {}),
    ],
    ids=["tail", "head", "blanks", "inner", "first-object", "no-objects", "a-number-that-goes-on", "nothing", "no-object", "deep"],
)  # fmt: skip
def test_of_a_longer_one_the_ends_are_read(
    head: bytes, tail: bytes, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    filler = b"1" if head.endswith(b"12") else b"y"
    assert ends(head + filler * 300 + tail, monkeypatch) == (expected or None)


def test_the_ends_of_a_damaged_one_are_read() -> None:
    body = b'{"id":"i","data":"' + LONG.encode() + b'\x01","usage":{"n":1}}'
    assert long_json.read(body, KEYS) == ({"id": "i", "usage": {"n": 1}}, None)


def test_the_last_of_many_places_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = b"[" + b",".join(b'{"n":1,"id":2}' for _ in range(500)) + b"]"
    monkeypatch.setattr(long_json, "WHOLE_BYTES_MAX", 200)
    monkeypatch.setattr(long_json, "END_BYTES", 1_000)
    assert long_json.read(b'{"data":' + inner + b',"usage":{"n":1}}', KEYS) == (
        {"data": [{"n": 1, "id": 2}], "usage": {"n": 1}},
        None,
    )
    assert long_json.read(b'{"id":"i","data":' + inner + b"}", KEYS) == (
        {"id": "i", "data": [{"n": 1, "id": 2}]},
        long_json.UNREAD,
    )


@pytest.mark.nightly
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
        pytest.param(lambda n: b"," * n, id="commas"),
        pytest.param(lambda n: b" " * n, id="blanks"),
        pytest.param(lambda n: b',"id":{' * n, id="members"),
    ],
)
@pytest.mark.parametrize("start", [b"", b'{"data":', b'{"data":"x",'], ids=["outer", "a", "a key"])
@pytest.mark.parametrize("beyond", [False, True], ids=["whole", "ends"])
def test_the_work_is_linear(
    body: Callable[[int], bytes], start: bytes, beyond: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a body is made of, and wherever its end is missing."""
    monkeypatch.setattr(long_json, "LONG_BYTES", 16)
    monkeypatch.setattr(long_json, "WHOLE_BYTES_MAX", 16 if beyond else 2**30)
    monkeypatch.setattr(long_json, "END_BYTES", 2**30)

    @lru_cache
    def bodies(size: int) -> tuple[bytes, bytes]:
        begun = start + body(size)
        return begun, begun + b'],"usage":{"n":1}}'

    def work(size: int) -> None:
        for each in bodies(size):
            long_json.read(each, KEYS)

    assert_linear(work, 2_500)
