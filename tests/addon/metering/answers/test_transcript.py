"""Answers put together, from the wires of the proxy tests and from bodies written for the case; `usage_json`,
which is what upstream wrote, to the byte; and estimates, which are simple and bounded: how far off they
are is measured in tests/bench."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from addon.dialects import transcript
from addon.dialects.openai import chat, responses
from addon.dialects.routes import DIALECTS
from addon.dialects.transcript import ToolCall, transcript_of
from addon.dialects.vendors import anthropic
from addon.framing.long_json import LONG_BYTES
from addon.metering.answers import estimate, verbatim
from addon.metering.answers.passed_text import PassedText
from tests.addon.feeding import JSON as JSON_TYPE
from tests.addon.feeding import SSE, metered
from tests.named import for_each
from tests.proxy.wires import WIRES

EXPECTED = {
    "openai": 'Say "usage": {"usage":null}éé\n\n done',
    "azure": "Hello",
    "chuizi": "In the",
    "completions": "Once upon",
    "opentoken": "Packets in flight",
    "stream:chat": "Hello world",
    "anthropic": "In the",
    "gemini": "In the end",
    "gemini array": "In the end",
    "responses": "Hello",
    "cohere": "Hello",
    "ollama": "Hello",
    "bedrock": "Hello",
}


def sse(*frames) -> bytes:
    return b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)


def event_stream(*frames):
    return transcript_of(sse(*frames), "text/event-stream")


def document(value):
    return transcript_of(json.dumps(value).encode(), "application/json")


@for_each("wire", WIRES, ids=lambda wire: wire.name)
def test_every_wire_gives_its_text(wire):
    found = transcript_of(b"".join(wire.answer(asked=True)), wire.content_type)
    assert found.text == EXPECTED[wire.name]
    assert not found.is_cut


def test_chat_reasoning_and_tool_calls_in_pieces():
    found = event_stream(
        {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm", "content": None}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}},
            {"index": 1, "id": "c2", "function": {"name": "add", "arguments": "{}"}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "function": {"arguments": '{"at": 1}'}}]}}]},
    )  # fmt: skip
    assert found.reasoning == "Hm"
    assert found.calls == [
        ToolCall(name="look", arguments='{"at": 1}'),
        ToolCall(name="add", arguments="{}"),
    ]


def test_chat_as_a_document():
    call = {"function": {"name": "f", "arguments": "{}"}}
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = document({"choices": [{"message": {"content": parts, "tool_calls": [call, call]}}]})
    assert (found.text, len(found.calls)) == ("ab", 2)
    assert document({"choices": [{"text": "once"}]}).text == "once"
    deep = "[" * 300 + "]" * 300
    call["function"]["arguments"] = json.loads(deep)
    assert document({"message": {"tool_calls": [call]}}).calls[0].arguments == deep


def test_responses_streamed_and_whole():
    found = event_stream(
        {"type": "response.reasoning_summary_text.delta", "delta": "why"},
        {"type": "response.output_item.added", "output_index": 1,
         "item": {"type": "function_call", "name": "f"}},
        {"type": "response.output_item.added", "output_index": 2, "item": {"type": "message"}},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{}"},
        {"type": "response.output_text.delta", "delta": "so"},
        {"type": "response.output_text.done", "text": "so"},
    )  # fmt: skip
    assert (found.text, found.reasoning) == ("so", "why")
    assert found.calls == [ToolCall(name="f", arguments="{}")]
    whole = document(
        {"output": [
            {"type": "reasoning", "summary": [{"text": "why"}]},
            {"type": "function_call", "name": "f", "arguments": "{}"},
            {"type": "message", "content": [{"type": "output_text", "text": "so"}]},
        ]}
    )  # fmt: skip
    assert (whole.text, whole.reasoning, whole.calls) == ("so", "why", found.calls)


def test_anthropic_streamed_and_whole():
    found = event_stream(
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        {"type": "content_block_delta", "index": 0, "delta": {"thinking": "hm"}},
        {"type": "content_block_start", "index": 1,
         "content_block": {"type": "tool_use", "name": "f", "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"a":1}'}},
        {"type": "content_block_delta", "index": 2, "delta": {"text": "yes"}},
    )  # fmt: skip
    assert (found.text, found.reasoning) == ("yes", "hm")
    assert found.calls == [ToolCall(name="f", arguments='{"a":1}')]
    whole = document(
        {"type": "message", "content": [
            {"type": "text", "text": "yes"},
            {"type": "tool_use", "name": "f", "input": {"a": 1}},
        ]}
    )  # fmt: skip
    assert (whole.text, whole.calls) == ("yes", found.calls)


def test_gemini_thoughts_and_calls():
    parts = [
        {"text": "hm", "thought": True},
        {"text": "yes"},
        {"functionCall": {"name": "f", "args": {"a": 1}}},
    ]
    found = document({"candidates": [{"content": {"parts": parts}}]})
    assert (found.text, found.reasoning) == ("yes", "hm")
    assert found.calls == [ToolCall(name="f", arguments='{"a":1}')]


def test_bedrock_cohere_and_ollama():
    blocks = [{"text": "yes"}, {"toolUse": {"name": "f", "input": {}}}]
    bedrock = document({"output": {"message": {"content": blocks}}})
    assert (bedrock.text, len(bedrock.calls)) == ("yes", 1)
    streamed = transcript.Transcript()
    for kind, frame in (
        ("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": {"name": "f"}}}),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {}}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": "{}"}}}),
        ("contentBlockDelta", {"delta": {"reasoningContent": {"text": "hm"}}}),
    ):
        streamed.read(kind, frame)
    assert streamed.calls == [ToolCall(name="f", arguments="{}")]
    assert streamed.reasoning == "hm"
    lines = [{"event_type": "text-generation", "text": "a"}, {"event_type": "stream-end"}]
    text = "\n".join(map(json.dumps, lines)).encode()
    assert transcript_of(text, "application/stream+json").text == "a"
    assert document({"text": "b", "finish_reason": "COMPLETE"}).text == "b"
    assert document({"message": {"content": [{"text": "c"}]}, "finish_reason": "C"}).text == "c"
    assert document({"response": "d", "done": True}).text == "d"


def test_a_long_answer_is_cut(monkeypatch):
    monkeypatch.setattr(transcript, "TEXT_LENGTH_MAX", 5)
    monkeypatch.setattr(transcript, "CALLS_MAX", 1)
    call = {"function": {"name": "f", "arguments": "xy"}}
    found = document({"choices": [{"message": {"content": "four", "tool_calls": [call, call]}}]})
    assert (found.text, found.is_cut) == ("four", True)
    assert found.calls == [ToolCall(name="f", arguments="x")]
    assert document({"choices": [{"text": "sixsix"}]}).text == "sixsi"


def test_what_is_no_answer_says_nothing():
    assert transcript_of(b"", "text/event-stream").text == ""
    assert transcript_of(b"ID3\x00audio", "audio/mpeg").text == ""
    assert transcript_of(b"data: {oops\n\ndata: [1]\n\n: ping\n\n", "text/event-stream").text == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "choices", "delta", "message", "content", "tool_calls", "function", "output",
             "candidates", "parts", "item", "text", "start", "toolUse", "index", "arguments"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(["choices", "output", "message", "type", "delta"]), JSON))
def test_no_json_can_hurt(value):
    document(value)


ODD = '{"prompt_tokens": 1e1, "x":"B", "x":"A" ,"completion_tokens":2.0,"d":{"a":[ {} ]}}'


@for_each(
    "dialect, body, content_type",
    [
        pytest.param(chat.CHAT, '{"usage": %s}', JSON_TYPE, id="document"),
        pytest.param(
            chat.CHAT,
            'data: {"choices":[{"delta":{"content":"\\"usage\\": {}"}}]}\n\n'
            'data: {"choices":[],"usage" :\t%s}\n\ndata: [DONE]\n\n',
            SSE,
            id="stream",
        ),
        pytest.param(chat.CHAT, '{"choices":[{"usage":%s}]}', JSON_TYPE, id="in-a-choice"),
        pytest.param(chat.CHAT, '{"x_groq":{"usage":%s}}', JSON_TYPE, id="in-an-object"),
        pytest.param(
            chat.CHAT, '{"usage":{"prompt_tokens":3},"usage":%s}', JSON_TYPE, id="the-last-of-two"
        ),
        pytest.param(
            responses.RESPONSES,
            'data: {"type":"response.completed","response":{"usage":%s,"tools":[{"usage":{}}]}}\n\n',
            SSE,
            id="in-a-response",
        ),
    ],
)
def test_the_text_is_kept(dialect, body: str, content_type: str) -> None:
    meter = metered(dialect, (body % ODD).encode(), content_type)
    assert meter.usage_json == ODD


def test_what_is_put_together_is_compact_json() -> None:
    meter = metered(
        anthropic.MESSAGES,
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":'
        b'{"input_tokens" : 3,"output_tokens":1}}}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens" : 9}}\n\n',
    )
    assert meter.usage_json == '{"input_tokens":3,"output_tokens":9}'


def test_an_escaped_key_falls_back_to_compact_json() -> None:
    meter = metered(chat.CHAT, b'{"\\u0075sage": {"prompt_tokens": 3}}', JSON_TYPE)
    assert meter.usage_json == '{"prompt_tokens":3}'


def test_bytes_that_are_no_text_fall_back() -> None:
    usage = {"a": 1}
    assert verbatim.usage_text(b'{"usage":{"a":1}}', "usage", usage) == '{"a":1}'
    assert verbatim.usage_text(b'{"usage":{"a":1', "usage", usage) is None
    assert verbatim.usage_text(b'{"usage":{"a":NaN}}', "usage", {"a": "NaN"}) is None
    assert verbatim.usage_text(b'{"usage":7}', "usage", usage) is None
    assert verbatim.usage_text(b'{"usage":', "usage", usage) is None
    assert verbatim.usage_text(b'{"usage":{"a":2}}' * 9, "usage", usage) is None


def test_it_is_looked_for_in_few_places_only() -> None:
    """A frame of many `usage` keys costs a few scans, not one for each."""
    usage = {"a": 1}
    deep = {"choices": [[], {"x": 1}, 5, {}, {"usage": usage}]}
    assert verbatim.key_of(deep, usage) is None
    nested: dict[str, object] = {"usage": usage}
    for _ in range(6):
        nested = {"in": nested}
    assert verbatim.key_of(nested, usage) is None
    data = json.dumps({"usage": usage, **{f"k{n}": {"usage": {}} for n in range(9)}}).encode()
    assert verbatim.usage_text(data, "usage", usage) is None


@for_each(
    "usage",
    [
        pytest.param({"a": "}{", "b": {"c": '}"'}}, id="braces-in-strings"),
        pytest.param({f"d{n}": {"n": n} for n in range(20)}, id="many-objects"),
        pytest.param({"d": {"d": {"d": {"d": {}}}}, "z": "}"}, id="deep"),
    ],
)
def test_an_object_of_any_form_is_found_whole(usage: dict[str, object]) -> None:
    text = json.dumps(usage, indent=1)
    data = f'{{"usage" : {text}, "x": {{}}}}'.encode()
    assert verbatim.usage_text(data, "usage", usage) == text


MARKS = (b'"content"', b'"arguments"')


@for_each(
    "run, expected",
    [
        pytest.param(b'{"content":"abc"}', 3, id="text"),
        pytest.param(b'{"content" : "abc"}', 3, id="spaced"),
        pytest.param(b'{"content":""}', 0, id="empty"),
        pytest.param(b'{"content":null}', 0, id="null"),
        pytest.param(b'{"content":["x"]}', 0, id="list"),
        pytest.param(b'{"other":"abc"}', 0, id="another-key"),
        pytest.param(rb'{"content":"a\"b"}', 4, id="escaped-quote"),
        pytest.param(rb'{"content":"a\\"}', 3, id="escaped-backslash"),
        pytest.param(b'{"content":"ab"}{"arguments":"{}"}', 4, id="two"),
        pytest.param(b'{"content":"cut of', 6, id="cut"),
    ],
)
def test_text_bytes(run: bytes, expected: int) -> None:
    assert estimate.text_bytes_of(run, MARKS) == expected
    long = b" " * LONG_BYTES + run
    assert estimate.text_bytes_of(long, MARKS) == expected


@given(
    st.lists(
        st.sampled_from([*MARKS, b'"', b":", b" ", b"\\", b"a", b'\\"', b'"other"', b"{", b"\r\n"]),
        max_size=40,
    )
)
@example([b'"content"', b":", b'"', b"a", b"\\"])
def test_few_long_texts_count_like_many(words: list[bytes]) -> None:
    """Except for a line feed behind a backslash, which no JSON has."""
    run = b"".join(words).replace(b"\\\r\n", b"")
    counted = sum(map(len, estimate._texts(MARKS).findall(run)))
    assert estimate._long_text_bytes(run, MARKS) == counted


@for_each(
    "frames, text_bytes, calls, expected",
    [(10, 0, 0, 0), (10, 20, 0, 10), (10, 400, 0, 100), (0, 3, 0, 0), (1, 3, 0, 1), (9, 0, 2, 60), (9, 40, 1, 40)],
)  # fmt: skip
def test_a_frame_is_a_token_at_least(
    frames: int, text_bytes: int, calls: int, expected: int
) -> None:
    text = PassedText(DIALECTS["openai.chat"])
    text.add(text_bytes)
    text.keep(b'{"name":"f"}' * calls)
    assert text.tokens(frames) == expected


def test_without_marks_of_text_nothing_can_be_told() -> None:
    text = PassedText(DIALECTS["openai.embeddings"])
    text.keep(b'data: {"embedding":[0.1]}\n\n')
    assert not text.is_measured
    assert text.tokens(5) is None


@for_each(
    "body, expected",
    [
        pytest.param(b"", None, id="none"),
        pytest.param(b"{}", 1, id="one-at-least"),
        pytest.param(b'["' + b"x" * 396 + b'"]', 100, id="four-bytes-a-token"),
        pytest.param(b"--form\r\n" + bytes(400), None, id="a-form-with-sound"),
        pytest.param(b'{"u":"data:image/png;base64,' + b"A" * 4_000 + b'"}', 5, id="picture"),
        pytest.param(b'{"u":"data:image/png;base64,' + b"A" * 4_000, 1_007, id="picture-cut"),
    ],
)
def test_input_is_estimated_by_length_without_pictures(body: bytes, expected: int | None) -> None:
    """A picture is billed by its size in pixels: its base64 would count for thousands."""
    assert estimate.input_tokens_of(body) == expected


def test_text_that_was_measured_already_counts() -> None:
    text = PassedText(DIALECTS["openai.chat"])
    assert text.is_measured
    text.add(40)
    few = text.tokens(1)
    text.add(4_000)
    many = text.tokens(1)
    assert few is not None
    assert many is not None
    assert 5 <= few <= 20
    assert many > 50 * few
