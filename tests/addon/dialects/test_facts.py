"""The facts and counts of an answer, in all the spellings in use, and bounded: upstream wrote them."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon.dialects.counts import (
    Counts,
    lookup,
    object_at,
    objects_at,
    unknown_counts,
    unknown_values,
)
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import LEFT_OUT, AnswerContext, Facts, clean, token_of
from addon.dialects.openai import chat, responses
from addon.dialects.routes import DIALECTS
from addon.dialects.vendors import mistral
from addon.dialects.vendors.anthropic import read
from tests.named import for_each


def test_the_first_id_stays_and_another_makes_it_unstable() -> None:
    """BerriAI/litellm#39749: a null id is no id; anomalyco/opencode#42918: nor is an empty one."""
    facts = Facts()
    for response_id in (None, "", 5, "a", "a", "", None):
        facts.record_id(response_id)
    assert (facts.response_id, facts.rare.id_unstable) == ("a", False)
    facts.record_id("b")
    assert (facts.response_id, facts.rare.id_unstable) == ("a", True)


def test_a_long_id_is_one_id() -> None:
    """It stands as its digest, also beside frames that repeat it as it is."""
    for length in (256, 257, 4_000):
        facts, text = Facts(), "x" * length
        facts.record_id(text)
        facts.record_id(text)
        kept = text if length == 256 else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        assert (facts.response_id, facts.rare.id_unstable) == (kept, False)
        assert facts.rare.remarks == {}
        facts.record_id(text + "y")
        assert facts.rare.id_unstable


@for_each("text", ["sk-abcdef", "m/gsk_abcdefghijklmnop", "AKIAIOSFODNN7EXAMPLE"])
def test_what_has_the_form_of_a_key_is_no_name_where_the_key_is_not_known(text: str) -> None:
    facts = Facts(of=AnswerContext(is_key_unknown=True))
    facts.record_model(text)
    assert (facts.response_model, list(facts.rare.remarks)) == (
        None,
        [LEFT_OUT.format("response_model")],
    )
    assert not AnswerContext().is_secret(text)


@for_each("text", ["a long text " * 30, "x" * 300 + "sk-secret-1234"])
def test_a_long_text_is_no_id(text: str) -> None:
    facts = Facts(of=AnswerContext(secrets=("sk-secret-1234",)))
    facts.record_id(text)
    assert (facts.response_id, list(facts.rare.remarks)) == (None, [LEFT_OUT.format("response_id")])


def test_the_last_model_and_reason_count() -> None:
    facts = Facts()
    for model, reason in (("a", None), ("", ""), ("b", "stop"), (None, None), (3, False)):
        facts.record_model(model)
        facts.record_finish(reason)
    assert (facts.response_model, facts.finish_reason) == ("b", "stop")
    facts.record_finish(2)
    assert facts.finish_reason == "2"


def test_creation_times_in_any_form() -> None:
    for created, expected in (
        (1716825600, 1716825600),
        (1784324967.5, 1784324967),
        ("1715361795", 1715361795),
        ("yesterday", None),
        (0, None),
        (True, None),
        (float("inf"), None),
        (None, None),
    ):
        facts = Facts()
        facts.record_created(created)
        assert facts.created == expected, created


def test_null_usage_is_none() -> None:
    """router-for-me/CLIProxyAPI#3221: `usage: null` on every chunk was read as zeros."""
    facts = Facts()
    facts.record_usage(None, final=True)
    facts.record_usage([], final=True)
    assert facts.usage is None
    assert not facts.usage_final
    facts.record_usage({}, final=True)
    assert facts.usage == {}


def test_clean_text_fits_every_database() -> None:
    assert clean("a\x00b\ud800c", 10) == "a\N{REPLACEMENT CHARACTER}b?c"
    assert clean("abc", 2) == "ab"


def test_an_empty_finish_reason_is_said_by_a_document_alone():
    stream, document = Facts(), Facts(is_document=True)
    for facts in (stream, document):
        facts.record_finish("")
    assert (stream.finish_reason, document.finish_reason) == (None, "")
    document.record_finish("stop")
    document.record_finish("")
    assert document.finish_reason == "stop"


@for_each(
    "diagnostics, word",
    [
        ({"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 9}}, "tools"),
        ({"cache_miss_reason": {"type": "unavailable"}}, "unavailable"),
        ({"cache_miss_reason": None}, None),
        ({"cache_miss_reason": {"type": 3}}, None),
        ({"cache_miss_reason": "tools_changed"}, None),
        (None, None),
    ],
)
def test_the_cause_of_a_cache_miss(diagnostics, word):
    message = {"id": "msg_1", "type": "message", "diagnostics": diagnostics, "usage": {}}
    for event in (message, {"type": "message_start", "message": message}):
        facts = Facts()
        read(facts, "", event)
        assert (facts.rare.cache_diagnosis or "").startswith(word or "")
        assert (facts.rare.cache_diagnosis is None) is (word is None)


@for_each(
    "diagnostics, word",
    [
        (
            {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 9},
            "tools_changed",
        ),
        ({"type": "cache_hit"}, None),
        ({"type": "cache_miss", "reason": ["x"]}, None),
        (None, None),
    ],
)
def test_the_cause_of_a_cache_miss_in_a_response(diagnostics, word):
    facts = Facts()
    responses.read_response(facts, {"id": "resp_1", "prompt_cache_diagnostics": diagnostics})
    assert facts.rare.cache_diagnosis == word


@for_each("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_harmless_form_begins_with_its_needle(dialect: Dialect):
    """It would be subtracted from needles that stand elsewhere."""
    for mark in (*dialect.marks, *dialect.call_marks):
        for form in mark.harmless:
            assert form.startswith(mark.needle), mark
            assert form.count(mark.needle) == 1, mark


FREE = "a text for nobody else"
SECRET = "sk-test-0123456789abcdef"


@for_each("bad", [FREE, SECRET, f"x-{SECRET}-y", "t" * 257, "<b>", {"a": 1}])
@for_each(
    "field, record",
    [
        ("response_id", Facts.record_id),
        ("response_model", Facts.record_model),
        ("finish_reason", Facts.record_finish),
        ("service_tier", Facts.record_tier),
        ("cache_diagnosis", Facts.record_diagnosis),
    ],
)
def test_a_text_that_may_not_be_kept_is_null_and_remarked(field, record, bad):
    facts = Facts(of=AnswerContext(secrets=(SECRET,)))
    bad = "é" * 257 if field == "response_id" and bad == "t" * 257 else bad  # a long id is kept
    record(facts, bad)
    holder = facts.rare if field == "cache_diagnosis" else facts
    assert getattr(holder, field) is None
    if isinstance(bad, str) or field == "service_tier":
        remarks = DIALECTS["openai.chat"].figures(facts).remarks
        assert [remark.partition(" ")[0] for remark in remarks] == [field]
        assert bad not in remarks if isinstance(bad, str) else True
    if field == "finish_reason" and isinstance(bad, str):
        assert facts.is_whole()  # it has ended, for a reason that is not told
    record(facts, "fine-1")
    assert getattr(holder, field) == "fine-1"


def test_a_tier_that_is_not_kept_makes_the_price_uncertain():
    facts = Facts()
    facts.record_usage({"service_tier": FREE, "speed": FREE, "note": FREE, "n": 1}, final=True)
    assert facts.usage == {"service_tier": None, "speed": None, "note": None, "n": 1}
    assert set(facts.rare.beside) == {"unread_mode"}
    harmless = Facts()
    harmless.record_usage({"note": FREE}, final=True)
    assert harmless.rare.beside == {}


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=70), st.just(SECRET)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=70), VALUES, max_size=5))
def test_a_usage_object_has_numbers_and_tokens_alone(usage):
    facts = Facts(of=AnswerContext(secrets=(SECRET,)))
    facts.record_usage(usage, final=True)

    def check(value):
        if isinstance(value, dict):
            for key in value:  # a token, or a path of ours through a list: `results[].tokenCount`
                head, mark, rest = key.rpartition("[].")
                assert token_of(rest)
                assert not mark or (token_of(head) and len(head) <= 32)
            for inner in value.values():
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)
        elif isinstance(value, str):
            assert token_of(value)
            assert SECRET not in value

    check(facts.usage)
    if facts.usage != usage:
        assert facts.rare.remarks or "" in str(usage)


def test_a_plain_usage_object_stays_the_same_and_a_deep_one_is_cut():
    plain = {"a": 1, "b": {"c": [1.5, True, None, "on_demand"]}, "results[].tokenCount": [1]}
    facts = Facts()
    facts.record_usage(plain, final=True)
    assert facts.usage is plain
    deep: dict[str, object] = {"n": 2**70}
    for _ in range(2_000):
        deep = {"k": deep}
    facts.record_usage(deep, final=True)
    assert len(str(facts.usage)) < 100


MARK = Mark(b'"usage"', (b'"usage":null', b'"usage": null'))


@for_each(
    "run, places",
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b'"usage":null "usage": null', [], id="harmless"),
        pytest.param(b'"usage":1', [0], id="at-the-start"),
        pytest.param(b'{"usage":null}{"usage":{}}{"usage": null}', [15], id="between"),
        pytest.param(b'"usage":1,"usage":null,"usage":2', [23, 0], id="two"),
    ],
)
def test_a_mark_stands_where_its_form_is_not_harmless(run: bytes, places: list[int]):
    assert MARK.count(run) == len(places)
    assert MARK.matches(run) is bool(places)
    assert MARK.places(run, len(places)) == places


def test_the_first_output_of_mistral_gives_a_stream_its_id() -> None:
    facts = Facts()
    for number in (1, 2):
        mistral.read(facts, "message.output.delta", {"id": f"msg_{number}", "content": "x"})
    assert facts.response_id == "msg_1"
    assert not facts.rare.id_unstable


def test_the_first_that_is_reported_counts() -> None:
    counts = Counts({"a": None, "b": {"c": 3}, "d": 0})
    assert counts.first("a", "b.c", "d") == 3
    assert counts.first("d") == 0
    assert counts.first("b", "b.x", "x.y") is None
    assert counts.remarks == ()


def test_what_is_no_count_is_remarked_once_and_passed_over() -> None:
    counts = Counts({"a": -1, "b": "12", "c": 5})
    assert counts.first("a", "b", "c") == 5
    assert counts.first("a") is None
    assert counts.remarks == (
        "a is no count: '-1'",
        "b is no count: '12'",
    )


def test_amounts_are_exact() -> None:
    """The shortest decimal form of a float is what the provider wrote."""
    counts = Counts({"cost": 0.0000355, "text": "0.1", "bad": "free", "minus": -1})
    assert counts.picousd("none", "cost") == 35_500_000
    assert counts.picousd("text") == 100_000_000_000
    assert counts.picousd("bad", "minus") is None
    assert len(counts.remarks) == 2


def test_durations_come_in_seconds() -> None:
    counts = Counts({"a": 6, "b": 5.4996, "c": True, "d": -1, "e": 1e300})
    assert counts.milliseconds("a") == 6_000
    assert counts.milliseconds("b") == 5_500
    assert counts.milliseconds("c", "d", "e") is None
    assert len(counts.remarks) == 3


def test_units_take_the_ledgers_names_and_leave_out_zeros() -> None:
    counts = Counts({"tools": {"search": 2, "code": 0, "odd": "x"}, "other": 1})
    names = {"tools.search": "web_searches", "tools.code": "code_executions", "tools.odd": "odd"}
    assert counts.units(names) == {"web_searches": 2}


def test_tools_without_a_name_here_keep_their_own() -> None:
    """BerriAI/litellm#15227: fees of server tools are missing where nobody knew the tool."""
    counts = Counts({"tools": {"webSearchRequests": 2, "moon_landings": 1, "none": 0}, "other": 5})
    assert counts.units({}, within="tools") == {"web_search_requests": 2, "moon_landings": 1}
    assert counts.units({"tools.moon_landings": "landings"}, within="tools") == {
        "web_search_requests": 2,
        "landings": 1,
    }


def test_keys_that_nobody_knows() -> None:
    known = {"a", "b", "b.c", "d", "d.*"}
    usage = {"a": 1, "b": {"c": 1, "x": 2}, "d": {"anything": 1}, "e": {"y": 1}, "z" * 99: 0}
    assert {key for key, _ in unknown_values(usage, known)} == {"b.x", "e", "z" * 64}


def test_depth_is_bounded() -> None:
    nested: dict[str, object] = {"n": 1}
    for _ in range(2_000):
        nested = {"k": nested}
    assert Counts(nested).first("k") is None


def test_looking_up_never_raises() -> None:
    assert lookup({"a": {"b": 1}}, "a.b") == 1
    assert lookup({"a": [1]}, "a.b") is None
    assert object_at([], "a") is None
    assert object_at({"a": 1}, "a") is None
    assert objects_at({"a": [{"x": 1}, 2, None]}, "a") == [{"x": 1}]
    assert objects_at({"a": {"x": 1}}, "a") == []


def test_remarks_are_bounded_and_each_stands_once() -> None:
    """Upstream decides how many of its values are no counts, and how long they are."""
    counts = Counts({"a": "x" * 10_000})
    assert counts.first("a") is None
    assert len(counts.remarks[0]) < 80
    counts = Counts({f"key{n}": "x" for n in range(10_000)})
    for n in range(10_000):
        counts.first(f"key{n}")
        counts.first("key0")
    assert len(counts.remarks) == 16
    assert counts.remarks[0] == "key0 is no count: 'x'"


def test_unknown_counts_are_bounded_and_leave_out_what_is_no_unit() -> None:
    usage = {"speed_tokens": 0, "seconds": 4, "made_up": {"tokens": 3, "name": "x"}}
    assert unknown_counts(usage, frozenset()) == {"made_up_tokens": 3}
    many = {f"made_up_{n}_tokens": n + 1 for n in range(1_000)}
    first = {key: value for key, value in many.items() if value <= 16}
    assert unknown_counts(many, frozenset()) == first
    assert unknown_counts({"made_up": many}, frozenset()) == {
        f"made_up_{key}": value for key, value in first.items()
    }


def test_a_usage_object_that_echoes_a_credential_is_kept_without_it() -> None:
    """No recorded text contains what the request authenticates with."""
    secret = "sk-0123456789abcdef"
    facts = Facts(of=AnswerContext(secrets=(secret,)))
    facts.record_usage({"prompt_tokens": 3, "service_tier": secret, "region": "eu"}, final=True)
    assert facts.usage is not None
    assert facts.usage["prompt_tokens"] == 3
    assert facts.usage["region"] == "eu"
    assert secret not in str(facts.usage)


def test_a_response_that_is_a_document_is_read_as_the_one_that_an_event_holds() -> None:
    response = {"id": "r", "model": "m", "status": "completed", "usage": {"input_tokens": 3}}
    document, event = Facts(is_document=True), Facts()
    responses.RESPONSES.read(document, "", response)
    responses.RESPONSES.read(event, "", {"type": "response.completed", "response": response})
    for facts in (document, event):
        assert (facts.response_id, facts.response_model) == ("r", "m")
        assert (facts.usage, facts.usage_final) == ({"input_tokens": 3}, True)
    assert event.ended


@for_each("value", [None, ""])
def test_a_field_beside_the_usage_that_says_nothing_is_none(value: object) -> None:
    facts = Facts()
    facts.record_beside("speed", value)
    assert facts.rare.beside == {}
    facts.record_beside("speed", "fast")
    assert facts.rare.beside == {"speed": "fast"}


def test_the_cost_of_a_gateway_stands_in_an_event_of_its_own() -> None:
    """OpenCode Zen sends it behind the response."""
    facts = Facts()
    responses.read(facts, "", {"type": "ping", "cost": "0.00012"})
    assert facts.rare.cost == "0.00012"


FIRST, LAST, NONE = {"system_fingerprint": "fp"}, {"system_fingerprint": "fp"}, dict[str, str]()


@for_each(
    "first, finish, extra, expected",
    [
        pytest.param(FIRST, FIRST, None, "first", id="openai"),
        pytest.param(NONE, NONE, None, "not first", id="none"),
        pytest.param(NONE, LAST, None, "last", id="vllm-unasked"),
        pytest.param(NONE, NONE, LAST, "last", id="vllm-asked"),
        pytest.param(None, LAST, None, "unknown", id="one-chunk"),
    ],
)
def test_the_chunk_with_the_fingerprint(
    first: dict[str, str] | None,
    finish: dict[str, str],
    extra: dict[str, str] | None,
    expected: str,
) -> None:
    facts = Facts()
    said = {"index": 0, "delta": {"content": "a"}}
    if first is not None:
        chat.read(facts, "", {"choices": [said], **first})
    chat.read(facts, "", {"choices": [{**said, "finish_reason": "stop"}], **finish})
    if extra is not None:
        chat.read(facts, "", {"choices": [], "usage": {"prompt_tokens": 1}, **extra})
    assert facts.rare.choices.fingerprint.value == expected


@for_each(
    "usages, expected", [("b", False), ("a", False), ("ba", True), ("bb", True), ("aa", False)]
)
def test_usage_that_include_usage_does_not_explain(usages: str, expected: bool) -> None:
    """Beside an answer and alone: asking adds it once."""
    facts = Facts()
    for usage in usages:
        choices = [{"index": 0, "delta": {}}] if usage == "b" else []
        chat.read(facts, "", {"choices": choices, "usage": {"prompt_tokens": 1}})
    assert facts.rare.choices.has_usage_unasked is expected


def test_the_falls_that_are_said_are_bounded():
    facts = Facts()
    facts.record_falls(str(number) for number in range(99))
    assert len(facts.rare.remarks) == 16
