"""The one meter: decoding, framing and dialect together."""

import gzip
import json
import pickle
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from msgspec import structs

from addon.dialects import routes
from addon.dialects.dialect import Dialect
from addon.dialects.facts import AnswerContext, AnswerError, Ending
from addon.dialects.openai import chat as openai_chat
from addon.dialects.openai import endpoints as openai_endpoints
from addon.dialects.vendors import bedrock, gemini
from addon.framing import document, json_values, long_json, sse
from addon.metering import meter as meter_module
from addon.metering.estimate import UNMEASURED_BYTES_MAX
from ledger.model.usage import NO_USAGE
from tests.addon.feeding import SSE, Answer, cuts_of, metered, pieces
from tests.named import for_each

ID = "chatcmpl-0123456789"


def chunk(content: str, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    body = {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "m",
        "choices": [choice],
    }
    return b"data: " + json.dumps(body | more, separators=(",", ":")).encode() + b"\n\n"


USAGE = {"prompt_tokens": 7, "completion_tokens": 200, "total_tokens": 207}
END = chunk("", "stop", usage=USAGE) + b"data: [DONE]\n\n"
WORDS = [chunk(f" word{n % 7}") for n in range(200)]
STREAM = b"".join([*WORDS, END])


def meter_of(dialect: Dialect = openai_chat.CHAT, **more: Any) -> Answer:
    return Answer(dialect, **more)


def read(body: bytes, dialect: Dialect = openai_chat.CHAT, *, size: int = 0, **more: Any) -> Answer:
    return metered(dialect, body, **({"content_type": SSE} | more), size=size)


@for_each("size", [0, 1, 17, 1_900, 4_000])
def test_a_stream_reads_the_same_in_any_batches(size: int) -> None:
    meter = read(STREAM, size=size)
    facts = meter.facts
    assert (facts.response_id, facts.response_model, facts.finish_reason) == (ID, "m", "stop")
    assert facts.ended
    assert facts.usage_final
    assert not facts.rare.id_unstable
    assert meter.usage_json == json.dumps(USAGE, separators=(",", ":"))
    assert meter.usage().output_tokens == 200
    assert meter.frames == 202
    assert meter.trouble is None
    # 200 times " word" and a digit are 1 200 bytes: 300 tokens of four.
    assert meter.estimated_output_tokens() == 300


@for_each("size", [0, 5_000])
@for_each(
    "begin, frames, parsed_max",
    [
        (b"", b'data: {"step":%d}\n\n', meter_module.READ_BLOCKS_MAX),
        (WORDS[0], b'data: {"choices":[{"delta":{"content":"w%d"}}]}\n\n', 64),
    ],
    ids=["before-the-first-text", "without-the-id"],
)
def test_frames_without_figures_are_parsed_up_to_a_bound(
    begin: bytes, frames: bytes, parsed_max: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one run of blocks as over many."""
    parsed = []
    parse = sse.SSE.parse

    def counted(framing: sse.SSE, block: bytes) -> Any:
        parsed.append(block)
        return parse(framing, block)

    monkeypatch.setattr(sse.SSE, "parse", counted)
    meter = read(begin + b"".join(frames % n for n in range(5_000)) + END, size=size)
    assert meter.usage_json == json.dumps(USAGE, separators=(",", ":"))
    few = 3 * meter_module.LESSONS_MAX + 16  # a lesson parses some, too
    assert parsed_max <= len(parsed) <= parsed_max + few


def test_the_first_token_is_seen_when_it_passes() -> None:
    meter = meter_of()
    meter.feed(chunk(""))
    assert not meter.facts.token_seen
    meter.feed(chunk("H")[:40])
    assert not meter.facts.token_seen
    meter.feed(chunk("H")[40:])
    assert meter.facts.token_seen


def test_ordinary_frames_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No JSON parse for frames that hold nothing for us."""
    parsed = 0
    real = json_values.value_of

    def counting(data: bytes) -> Any:
        nonlocal parsed
        parsed += 1
        return real(data)

    monkeypatch.setattr(json_values, "value_of", counting)
    assert read(STREAM, size=1_900).frames == 202
    # The first frame, and the one with the finish reason and the usage.
    assert parsed == 2


@for_each(
    "odd",
    [
        pytest.param(chunk("", usage=USAGE), id="usage-in-the-middle"),
        pytest.param(chunk("x", "length"), id="finish-in-the-middle"),
        pytest.param(b'data: {"error":{"message":"no","code":5}}\n\n', id="error-in-the-middle"),
        pytest.param(chunk("x").replace(b'null}]', b'null}],"usage" : {"prompt_tokens": 1}'), id="odd-spacing"),
        pytest.param(chunk('say \\"usage\\": {'), id="text-that-looks-like-a-mark"),
        pytest.param(chunk("x", id="another"), id="another-id"),
        pytest.param(chunk("x").replace(b"content", b"reasoning_content"), id="reasoning"),
        pytest.param(b": comment\n\n", id="comment"),
        pytest.param(b"data: [DONE]\n\n", id="done"),
        pytest.param(b"data: {}\n\n", id="empty"),
        pytest.param(b"event: ping\ndata: {}\n\n", id="ping"),
    ],
)  # fmt: skip
@for_each("at", [1, 2, 50, 199])
def test_nothing_odd_hides_among_ordinary_frames(
    odd: bytes, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same is read by a meter that learns which frames are ordinary and by one that does not."""
    body = b"".join([*WORDS[:at], odd, *WORDS[at:]])
    with monkeypatch.context() as without_lessons:
        without_lessons.setattr(meter_module, "LESSONS_MAX", 0)
        one_by_one = meter_of()
    for block in body.split(b"\n\n")[:-1]:
        one_by_one.feed(block + b"\n\n")
    one_by_one.end()
    for size in (0, 700, 1_900):
        assert picture(read(body, size=size)) == picture(one_by_one)


def picture(meter: Answer) -> tuple[Any, ...]:
    usage = meter.usage()
    said = (meter.facts, usage, meter.usage_json, meter.frames, meter.trouble)
    return (*said, meter.estimated_output_tokens())


def test_running_figures_are_read_from_the_last_of_a_run() -> None:
    """langchain-ai/langchainjs#8694: Gemini's usage is cumulative; summing it inflates it."""
    body = b"".join(
        b'data: {"candidates": [{"content": {"parts": [{"text": "w"}]}}],'
        b'"usageMetadata": {"promptTokenCount": 4,"candidatesTokenCount": %d},"responseId": "r"}\r\n\r\n' % n
        for n in range(1, 40)
    )  # fmt: skip
    for size in (0, 1, 300, 1_900):
        meter = read(body, gemini.GENERATE_CONTENT, size=size)
        assert meter.usage().output_tokens == 39
        assert not meter.facts.usage_final


def test_a_broken_frame_does_not_hide_the_figure_before_it() -> None:
    """Found by fuzzing: the last frame of the run bore the mark and was no JSON."""
    good = b'data: {"candidates":[{"content":{"parts":[{"text":"w"}]}}],"usageMetadata":{"candidatesTokenCount":%d}}\n\n'
    bad = b'data: {"usageMetadata":{"candidatesTokenCount":9\n\n'
    assert read(good % 1 + good % 2 + bad, gemini.GENERATE_CONTENT).usage().output_tokens == 2
    assert (
        read(good.replace(b"usageM", b"m") % 1 + bad + bad, gemini.GENERATE_CONTENT).usage()
        is NO_USAGE
    )


def test_compressed_answers_are_read_on_a_decoded_copy() -> None:
    encoded = gzip.compress(STREAM)
    meter = read(encoded, content_encoding="gzip", size=50)
    assert meter.usage().output_tokens == 200
    broken = read(STREAM, content_encoding="gzip")
    assert "broken" in (broken.trouble or "")
    unknown_coding = read(encoded, content_encoding="rot13")
    assert "rot13" in (unknown_coding.trouble or "")
    assert unknown_coding.usage() is NO_USAGE


def test_a_document_says_all_at_its_end() -> None:
    body = json.dumps({"id": "x", "model": "m", "choices": [], "usage": USAGE}, indent=2).encode()
    meter = read(body, content_type="application/json", size=10)
    assert meter.frames == 1
    assert meter.facts.ended
    assert meter.facts.usage_final
    assert meter.usage().input_tokens == 7
    assert meter.estimated_output_tokens() is None


def test_the_last_event_counts_without_its_blank_line() -> None:
    assert read(STREAM.removesuffix(b"\n\n")).facts.ended
    assert read(b"".join(WORDS) + chunk("", usage=USAGE).rstrip()).usage().input_tokens == 7


@for_each("body", [b"", b"\n", b": only a comment\n\n"])
def test_an_answer_of_nothing(body: bytes) -> None:
    meter = read(body)
    assert meter.usage() is NO_USAGE
    assert meter.usage_json is None
    assert meter.frames == 0
    assert meter.estimated_output_tokens() == 0
    assert not meter.facts.ended


def test_what_cannot_be_estimated_is_not() -> None:
    """InvokeModel's text is in base64."""
    meter = read(STREAM, bedrock.INVOKE, content_type="application/vnd.amazon.eventstream")
    assert meter.estimated_output_tokens() is None


def test_a_padded_stream_is_estimated_by_its_frames() -> None:
    body = b"".join(chunk("y", obfuscation="x" * (n % 9)) for n in range(60))
    for size in (0, 500, 1_900):
        assert read(body, size=size).estimated_output_tokens() == 60


@for_each("size", [0, 100, 1_900])
def test_a_tool_call_costs_more_than_its_arguments(size: int) -> None:
    call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": ""}}
    frames = [{"tool_calls": [call]}] + [
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"n": 12'}}]} for _ in range(100)
    ]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in frames]
    body = b"".join(
        b"data: " + json.dumps({"id": ID, "choices": one}, separators=(",", ":")).encode() + b"\n\n"
        for one in choices
    )
    # 100 times ten bytes of arguments, their quotes escaped, and the call itself.
    assert read(body, size=size).estimated_output_tokens() == 250 + 30


def test_an_unknown_answer_gets_a_reading_of_nothing() -> None:
    body = b'data: {"id":"a","tokens":5,"usage":{"total":5}}\n\ndata: {"error":"bad"}\n\n'
    meter = read(body, routes.UNKNOWN.dialect)
    assert meter.usage() == structs.replace(NO_USAGE, remarks=("no route",))
    assert meter.usage_json == '{"total":5}'
    assert meter.unknown_keys == {"total"}
    assert meter.facts.error == AnswerError()
    assert meter.facts.ending is Ending.CLOSE


def test_keys_never_seen_before_are_named_once_and_kept() -> None:
    meter = read(chunk("", usage={**USAGE, "dream_tokens": 3}))
    meter.usage()
    assert meter.usage() is not NO_USAGE
    assert meter.unknown_keys == {"dream_tokens"}
    assert '"dream_tokens":3' in (meter.usage_json or "")


@for_each("place", [0, 15_000, 30_000])
@for_each("is_document", [True, False])
def test_figures_are_read_among_thirty_thousand_other_keys(place: int, is_document: bool) -> None:
    keys = [b'"k%d":{"n":%d}' % (n, n) if n % 7 else b'"k%d":-1' % n for n in range(30_000)]
    keys.insert(place, b'"prompt_tokens":9,"completion_tokens":3,"total_tokens":12')
    body = b'{"id":"c-1","model":"m","choices":[],"usage":{' + b",".join(keys) + b"}}"
    whole = read(body if is_document else b"data: " + body + b"\n\n", size=16_384)
    assert whole.trouble is None
    assert (whole.usage().input_tokens, whole.usage().output_tokens) == (9, 3)
    assert len(whole.usage_json or "") < 300_000


def test_a_plain_error_body_says_what_it_says() -> None:
    meter = read(b"Not Found", content_type="text/plain", status=404)
    assert meter.facts.error == AnswerError(None, "not_found")
    page = read(b"<html>no</html>", content_type="text/html", status=502)
    assert page.facts.error == AnswerError()


def test_lines_are_frames() -> None:
    body = b'{"id":"x"}\n{"error":"e"}\n'
    meter = read(body, routes.UNKNOWN.dialect, content_type="application/x-ndjson")
    assert (meter.frames, meter.facts.response_id, meter.facts.error) == (2, "x", AnswerError())


GARBAGE = st.binary(max_size=60) | st.lists(
    st.sampled_from(
        [
            b"data: ", b"event: error", b"\n", b"\n\n", b"\r\n\r\n", b"{", b"}", b"[", b"]", b'"', b",",
            b'"usage":', b'"id":', b'"choices":', b'"type":', b'"message":', b'"response":', b'"error":',
            b'"delta":', b'"usageMetadata":', b'"candidates":', b'"iterations":', b'"bytes":"e30="',
            b"null", b"true", b"-1", b"1e400", b'"x"', b"[DONE]", b"\x00\x00\x00\x10", b"\xff",
        ]
    ),
    max_size=40,
).map(b"".join)  # fmt: skip


BEGINNINGS = {
    "text/event-stream": b"data: {}\n\n",
    "application/x-ndjson": b"{}\n",
    "application/json; array": b"[",
    "application/json": b"{",
    "application/vnd.amazon.eventstream": b"",
    "audio/mpeg": b"",
    "": b"",
}
"""By content type: together they choose each framing."""


@given(body=GARBAGE, content_type=st.sampled_from([*BEGINNINGS]), status=st.sampled_from([200, 500]), data=st.data())  # fmt: skip
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_garbage_never_raises(
    body: bytes, content_type: str, status: int, data: st.DataObject
) -> None:
    """Each example is given to every dialect: drawing it costs far more than metering it."""
    body = BEGINNINGS[content_type] + body
    chunks = pieces(body, data.draw(cuts_of(body)))
    for name, dialect in sorted(routes.DIALECTS.items()):
        note(name)
        meter = Answer(dialect, content_type=content_type, status=status)
        for chunk in chunks:
            meter.feed(chunk)
        meter.end()
        picture(meter)


READ = (
    "type id model choices delta message usage response status error usageMetadata candidates "
    "content parts finishReason interaction meta stop_reason output action results metadata "
    "done event_type created predictions embeddings statistics promptFeedback "
    "groundingMetadata object"
)
KEYS = sorted(
    {key for dialect in routes.DIALECTS.values() for key in dialect.known_keys}.union(READ.split())
)
LEAVES = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**40,
    0.0, -0.0, 1.5, -3.0, 1e300, float("inf"), float("nan"), "", "x", "12", "-1", "1e400", "é",
)  # fmt: skip
DEEPEST = 4


def value_of(drawn: Iterator[int], depth: int = 0) -> object:
    """A JSON value that the drawn bytes choose; behind their end all are zeros."""
    kind = next(drawn, 0) % 8
    if kind < 4 or depth == DEEPEST:
        return LEAVES[next(drawn, 0) % len(LEAVES)]
    if kind == 4:
        return [value_of(drawn, depth + 1) for _ in range(next(drawn, 0) % 4)]
    return object_of(drawn, depth + 1)


def object_of(drawn: Iterator[int], depth: int = 0) -> dict[str, object]:
    return {
        KEYS[(next(drawn, 0) * 256 + next(drawn, 0)) % len(KEYS)]: value_of(drawn, depth)
        for _ in range(next(drawn, 0) % 7)
    }


@given(drawn=st.binary(min_size=100, max_size=500), is_document=st.booleans())
@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
def test_no_json_raises(drawn: bytes, is_document: bool) -> None:
    """Right keys with wrong values everywhere: neither reading nor converting may trip.

    Bytes are drawn at once: to draw each value would take five times as long as to read them all.
    """
    left = iter(drawn)
    frames = [
        (("", "error", "chunk", "metadata")[next(left, 0) % 4], pickle.dumps(object_of(left)))
        for _ in range(next(left, 0) % 5)
    ]
    for name, dialect in sorted(routes.DIALECTS.items()):
        note(name)
        meter = meter_of(dialect, context=AnswerContext(path_model="m"))
        meter.facts.is_document = is_document
        for event, body in frames:
            dialect.read(meter.facts, event, pickle.loads(body))
        usage = meter.usage()
        for value in (usage.input_tokens, usage.output_tokens, usage.reported_cost_picousd):
            assert value is None or 0 <= value < 2**63
        counts = usage.tool_units.values()
        assert all(type(count) is int and 0 <= count < 2**63 for count in counts)


def test_events_that_are_framed_for_the_editor_are_counted() -> None:
    answer = meter_of(edits=True)
    for first in range(0, len(WORDS), 20):
        answer.feed(b"".join(WORDS[first : first + 20]))
    answer.feed(END)
    answer.end()
    assert answer.frames == 202
    assert answer.usage().output_tokens == 200


def test_a_body_of_a_type_that_is_not_read_ends_without_a_framing() -> None:
    meter = meter_of(content_type="audio/mpeg")
    meter.end()
    assert meter.frames == 0
    assert meter.usage() is NO_USAGE


def test_usage_that_no_frame_holds_is_shown_as_it_was_read() -> None:
    meter = meter_of()
    meter.facts.record_usage({"prompt_tokens": 3}, final=True)
    assert meter.usage_json == '{"prompt_tokens":3}'


def test_frames_behind_the_last_figure_of_a_run_do_not_hide_it() -> None:
    frame = b'data: {"candidates":[{"content":{"parts":[{"text":"w"}]}}],"responseId":"r"%s}\n\n'
    usage = b',"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":7}'
    body = frame % usage * 3 + frame % b"" * 3
    assert read(body, gemini.GENERATE_CONTENT).usage().output_tokens == 7


@for_each(
    "rest, is_cut",
    [
        (b": keep-alive", False),
        (b"event: x", True),
        (b"data: [DO", True),
        (b"data: [DONE]", False),
        (b'data: {"a":', True),
        (b"data:", True),
    ],
)
def test_whether_a_stream_ends_inside_an_event(rest: bytes, is_cut: bool) -> None:
    meter = meter_of()
    meter.feed(WORDS[0] + rest)
    meter.end()
    assert meter.facts.is_cut_inside is is_cut


DEEP = b"[" * 12_000 + b"]" * 12_000
"""Beyond what Python's reader takes: 3.13's takes 2 000. Longer documents have another one."""


@for_each(
    "damaged, is_read",
    [
        (b'{"id":"d","usage":{"prompt_tokens":7},"x":"\xff"}', True),
        (b'{"id":"d","usage":{"prompt_tokens":7},"x":"\x01"}', True),
        (b'{"id":"d","usage":{"prompt_tokens":7}}trailing', True),
        (b'{"id":"d",,"usage":{"prompt_tokens":7,}}', True),
        (b'{"id":"d","usage":{"prompt_tokens":7},"x":' + DEEP + b"}", False),
        (b'{"id":"d","usage":{"prompt_tokens":7},x}', False),
    ],
    ids=["utf-8", "control", "trailing", "commas", "depth", "no-json"],
)
def test_a_damaged_document_is_unread_and_not_cut(damaged: bytes, is_read: bool) -> None:
    """A whole body is whole, whatever our reader makes of it (a gateway's reader may take it)."""
    answer = read(damaged, content_type="application/json", size=9)
    assert not answer.facts.is_cut_inside
    assert (answer.usage().input_tokens == 7) is is_read
    assert "damaged" in (answer.trouble or "")
    cut = read(damaged[:20], content_type="application/json")
    assert cut.facts.is_cut_inside


LOGPROBS = b",".join(
    b'{"token":" the","logprob":-0.%04d,"bytes":[32,116,104]}' % number for number in range(3_500)
)
CHAT = (
    b'{"id":"c","choices":[{"index":0,"logprobs":{"content":[%s]},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":7,"completion_tokens":3},"x":null}'
) % LOGPROBS


@for_each("size", [1_000, 10_000, 70_000, 0])
def test_the_usage_of_a_body_that_is_not_held_whole_does_not_depend_on_its_chunks(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * long_json.END_BYTES < len(CHAT) < 4 * long_json.END_BYTES
    for module in (long_json, document):
        monkeypatch.setattr(module, "WHOLE_BYTES_MAX", 150_000)
    answer = read(CHAT, content_type="application/json", size=size)
    assert (answer.usage().input_tokens, answer.trouble) == (7, None)
    assert answer.facts.response_id == "c"


@for_each("results, is_bound", [(1, False), (2, True)])
def test_figures_of_one_of_several_results_are_a_lower_bound(results: int, is_bound: bool) -> None:
    """llama.cpp answers several prompts in one document, with the usage of one."""
    body = {
        "id": ID,
        "choices": [{"index": n, "text": "x"} for n in range(results)],
        "usage": USAGE,
        "timings": {"cache_n": 0, "prompt_n": 7, "predicted_n": 200},
    }
    meter = read(json.dumps(body).encode(), content_type="application/json")
    assert ("lower_bound" in (meter.usage_json or "")) is is_bound
    assert meter.usage().output_tokens == 200


@for_each("size", [1_000, 0])
@for_each(
    "dialect, body",
    [
        (openai_endpoints.IMAGES, b'{"created":1,"data":[{"url":"a"},%s],"x":1}'),
        (gemini.MUSIC, b'{"predictions":[{"gcsUri":"a"},%s],"x":1}'),
    ],
)
def test_of_a_body_that_is_not_held_whole_a_number_is_a_lower_bound(
    dialect: Dialect, body: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(body % b'{"url":"b","gcsUri":"b"}', dialect, content_type="application/json")
    assert list(whole.usage().tool_units.values()) == [2]
    assert "mode" not in (whole.usage_json or "")
    for module in (long_json, document):
        monkeypatch.setattr(module, "WHOLE_BYTES_MAX", 150_000)
    held = read(body % LOGPROBS, dialect, content_type="application/json", size=size)
    assert list(held.usage().tool_units.values()) == [1]
    assert '"beside:count_mode":"lower_bound"' in (held.usage_json or "")


@for_each("size", [1_000, 0])
def test_a_long_body_whose_usage_is_out_of_reach_has_a_trouble(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (long_json, document):
        monkeypatch.setattr(module, "WHOLE_BYTES_MAX", 150_000)
    body = b'{"id":"c","usage":{"prompt_tokens":7},"data":[%s]}' % LOGPROBS
    first = read(body, content_type="application/json", size=size)
    assert (first.usage().input_tokens, first.trouble) == (7, None)
    body = b'{"id":"c","data":[%s],"usage":{"prompt_tokens":7},"x":[%s]}' % (LOGPROBS, LOGPROBS)
    hidden = read(body, content_type="application/json", size=size)
    assert (hidden.usage().input_tokens, hidden.trouble) == (None, long_json.UNREAD)
    assert not hidden.facts.is_cut_inside
    assert read(body[:-1], content_type="application/json", size=size).trouble is None


def test_the_objects_of_short_messages_are_counted():
    meter = meter_module.Meter(openai_chat.CHAT)
    tracemalloc.start()
    try:
        for _ in range(20_000):
            meter.keep_message(bytes(bytearray(b"xx")))  # a new object each time
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= 2 * UNMEASURED_BYTES_MAX
