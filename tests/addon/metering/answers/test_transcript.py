"""Answers put together, from the wires of the proxy tests and from bodies written for the case."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addon.metering.answers import transcript
from addon.metering.answers.transcript import ToolCall, transcript_of
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


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
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
