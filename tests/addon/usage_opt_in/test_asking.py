"""When to ask for usage, how by splicing at the spans of members, and telling a refusal of it from
other errors."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.usage_opt_in.asking import (
    SCANNED_BYTES_MAX,
    inject_usage_option,
    is_refusal,
    may_refuse,
    without_usage_option,
)
from addon.usage_opt_in.json_members import last_named, members, spans_of
from addon.usage_opt_in.policy import LEARNED_FOR, UsageHabit, asks_of, is_known, lesson
from ledger.model.learned import Learned
from tests.named import for_each, named


@for_each(
    "body, expected",
    named(
        {
            "not-there": (
                b'{"model":"m","stream":true,"temperature":1.0}',
                b'{"stream_options":{"include_usage":true},"model":"m","stream":true,"temperature":1.0}',
            ),
            "null": (
                b'{"stream":true,"stream_options":null}',
                b'{"stream":true,"stream_options":{"include_usage":true }}',
            ),
            "other-options-stay": (
                b'{"stream_options": {"include_obfuscation": false}, "stream": true}',
                b'{"stream_options": {"include_usage":true ,"include_obfuscation": false}, "stream": true}',
            ),
            "empty-options": (
                b'{"stream_options":{},"stream":true}',
                b'{"stream_options":{"include_usage":true },"stream":true}',
            ),
            "false-becomes-true": (
                b'{"stream_options":{"include_usage" : false},"stream":true}',
                b'{"stream_options":{"include_usage" : true },"stream":true}',
            ),
            "named-in-a-prompt": (
                b'{"messages":[{"content":"\\"stream_options\\" and \\"stream_options\\":1"}],"stream":true}',
                b'{"stream_options":{"include_usage":true},"messages":[{"content":"\\"stream_options\\" and \\"stream_options\\":1"}],"stream":true}',
            ),
            "named-deeper-down": (
                b'{"metadata":{"stream_options":{"include_usage":false}},"stream":true}',
                b'{"stream_options":{"include_usage":true},"metadata":{"stream_options":{"include_usage":false}},"stream":true}',
            ),
            "not-an-object": (b'{"stream_options":7,"stream":true}', None),
            "no-object": (b"nothing", None),
        }
    ),
)
def test_asking_splices_and_changes_nothing_else(body: bytes, expected: bytes | None):
    edited = inject_usage_option(body)
    assert edited == expected
    if edited is not None:
        asked = json.loads(edited)
        assert asked.pop("stream_options")["include_usage"] is True
        before = json.loads(body)
        before.pop("stream_options", None)
        assert asked == before


@for_each(
    "status, body, proven, expected",
    [
        (400, b'{"error":{"message":"Unknown parameter: \'stream_options\'"}}', True, True),
        (
            422,
            b'{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]}',
            False,
            True,
        ),
        (500, b"unexpected keyword argument 'stream_options'", False, True),
        (400, b'{"error":"bad request"}', False, True),
        (400, b'{"error":"no such model"}', True, False),
        (401, b'{"error":"stream_options"}', False, False),
        (429, b"slow down", False, False),
        (500, b"internal error", False, False),
    ],
)
def test_a_refusal_of_what_we_added_is_told_from_others(status, body, proven, expected):
    assert is_refusal(status, body, proven=proven) is expected
    assert may_refuse(status) is (status not in (401, 429))


def test_a_large_request_is_asked_in_unless_it_has_options_already():
    large = b'{"stream":true,"messages":[{"content":"' + b"A" * SCANNED_BYTES_MAX + b'"}]'
    asked = inject_usage_option(large + b"}")
    assert asked is not None
    assert asked.startswith(b'{"stream_options":{"include_usage":true},"stream":true')
    assert inject_usage_option(large + b',"stream_options":{}}') is None


@for_each("ahead", [b"", b'"model":"m",'])
@for_each(
    "options",
    [b"", b"null", b"{}", *(b'{"include_usage":%b}' % each for each in (b"false", b"null"))],
)
def test_the_bodys_first_form_is_told_only_where_it_is_certain(ahead: bytes, options: bytes):
    """Replay reads from it whether the client had asked."""
    option = b'"stream_options":%b,' % options if options else b""
    body = b"{" + ahead + option + b'"stream":true}'
    asked = inject_usage_option(body)
    assert asked is not None
    assert without_usage_option(asked) == (None if options else body)


def test_options_under_no_key_of_the_body_are_not_its_own():
    assert inject_usage_option(b'["stream_options"]') is None
    assert inject_usage_option(b'{"a":"stream_options"}') == (
        b'{"stream_options":{"include_usage":true},"a":"stream_options"}'
    )


NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def learned(verdict: UsageHabit, *, left: timedelta) -> Learned:
    return Learned(
        origin="https://llm.example",
        path="/v1/chat/completions",
        verdict=str(verdict),
        learned_at=NOW - timedelta(days=1),
        expires_at=NOW + left,
    )


@for_each(
    "provider, what, expected",
    [
        pytest.param("openai", None, True, id="known-opt-in"),
        pytest.param("sansa", None, False, id="known-automatic"),
        pytest.param("llm.example", None, False, id="unknown-is-watched-first"),
        # Its streams have usage unasked, on the finish chunk.
        pytest.param("together", None, False, id="known-host-that-is-watched-first"),
        pytest.param("llm.example", UsageHabit.OPT_IN, True, id="learned-opt-in"),
        pytest.param("llm.example", UsageHabit.AUTOMATIC, False, id="learned-automatic"),
        pytest.param("openai", UsageHabit.REFUSES, False, id="a-refusal-outranks-the-table"),
    ],
)
def test_auto_asks_where_it_is_known_or_learned(provider, what, expected):
    known = learned(what, left=timedelta(days=1)) if what else None
    assert asks_of(provider, known, now=NOW) is expected


@for_each(
    "provider, what, expected",
    [
        pytest.param("llm.example", None, True, id="from-the-first-stream-on"),
        pytest.param("sansa", None, False, id="known-automatic"),
        pytest.param("llm.example", UsageHabit.AUTOMATIC, False, id="learned-automatic"),
        pytest.param("llm.example", UsageHabit.REFUSES, False, id="learned-refusal"),
    ],
)
def test_auto_asks_where_the_operator_names_the_host(provider, what, expected):
    known = learned(what, left=timedelta(days=1)) if what else None
    assert asks_of(provider, known, now=NOW, is_named=True) is expected


def test_what_was_learned_expires():
    assert not asks_of("llm.example", learned(UsageHabit.OPT_IN, left=timedelta(0)), now=NOW)
    assert asks_of("openai", learned(UsageHabit.REFUSES, left=timedelta(0)), now=NOW)


def test_a_fresh_lesson_is_not_written_again():
    where = ("https://llm.example", "/v1/chat/completions")
    first = lesson(*where, UsageHabit.OPT_IN, now=NOW, known={})
    assert first is not None
    assert first.expires_at == NOW + LEARNED_FOR[UsageHabit.OPT_IN]
    assert lesson(*where, UsageHabit.OPT_IN, now=NOW, known={where: first}) is None
    assert lesson(*where, UsageHabit.REFUSES, now=NOW, known={where: first}) is not None
    later = NOW + timedelta(days=6)
    assert lesson(*where, UsageHabit.OPT_IN, now=later, known={where: first}) is not None


def test_nothing_is_to_be_learned_of_known_providers():
    assert is_known("openai")
    assert is_known("openrouter")
    assert not is_known("llm.example")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children),
    max_leaves=12,
)


@for_each(
    "data, expected",
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


@for_each("data", [b'"text"', b'"a":1', b": {", b'{"a":1', b"", b"]{}"])
def test_what_is_no_whole_object_has_no_members(data: bytes):
    assert members(data) == []


def test_a_comma_without_a_value_makes_no_member():
    assert [each.key for each in members(b'{,"a",,"b":1,}')] == [b"b"]
