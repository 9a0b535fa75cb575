"""A stream that its client leaves has an estimate wherever anything was generated, on every wire."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from addon.dialects.routes import DIALECTS
from addon.metering.messages import Body, End, Response
from addon.metering.settlement import HIDDEN_OUTPUT, Settled, result_of
from ledger.model.exchange import Exchange, Outcome, Reading, UsageSource
from tests.addon.feeding import JSON, SSE, metered
from tests.addon.framing.test_eventstream import event
from tests.addon.metering.opened import REQUEST, STREAM, opened, session_of
from tests.ledger.written import opened as opened_row
from tests.named import for_each, named

NOW = datetime(2026, 11, 20, 0, 0, 9, tzinfo=UTC)
AWS = "application/vnd.amazon.eventstream"
NDJSON = "application/x-ndjson"
WORDS = "words and more " * 20
"""300 bytes, 75 tokens."""


def settled(
    dialect: str, body: bytes, content_type: str = SSE, *, inputs: int | None = 11, **more: Any
) -> Settled:
    return result_of(
        opened_row("flow-1", at=NOW, streamed=True),
        end=End.CLIENT_LEFT,
        status=200,
        meter=metered(DIALECTS[dialect], body, content_type, **more).tap.meter,
        estimate_input=lambda: inputs,
        now=NOW,
    )


def sse(*frames: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)


def chunk(**inner: Any) -> bytes:
    """A chunk of InvokeModel."""
    encoded = base64.b64encode(json.dumps(inner).encode()).decode()
    return event("chunk", json.dumps({"bytes": encoded}).encode())


def item(**item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": item}


CREATED = {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}
CALL = item(type="function_call", call_id="c", name="sh", arguments=WORDS)
REASONING = item(type="reasoning", summary=[], encrypted_content="gAAA")
DELTA = {"type": "response.output_text.delta", "delta": WORDS}
MESSAGE = item(type="message", content=[{"type": "output_text", "text": WORDS}])


@for_each(
    "dialect, body, content_type, expected, is_hidden",
    named(
        {
            "responses-call-whole": ("openai.responses", sse(CREATED, CALL), SSE, 105, False),
            "responses-message-whole": ("openai.responses", sse(CREATED, MESSAGE), SSE, 75, False),
            "responses-both": ("openai.responses", sse(CREATED, DELTA, MESSAGE), SSE, 75, False),
            "responses-custom-tool": (
                "openai.responses",
                sse(item(type="custom_tool_call", call_id="c", input=WORDS)),
                SSE,
                105,
                False,
            ),
            "responses-long-item": (
                "openai.responses",
                sse(item(type="message", content=[{"text": "x" * 60_000}, {"text": "y" * 60_000}])),
                SSE,
                30_000,
                False,
            ),
            "responses-reasoning": ("openai.responses", sse(CREATED, REASONING), SSE, None, True),
            "responses-reasoning-and-text": (
                "openai.responses",
                sse(CREATED, REASONING, DELTA),
                SSE,
                75,
                True,
            ),
            "chat-encrypted": (
                "openai.chat",
                sse(
                    {
                        "choices": [
                            {"delta": {"reasoning_details": [{"type": "reasoning.encrypted"}]}}
                        ]
                    }
                ),
                SSE,
                None,
                True,
            ),
            "chat-image": (
                "openai.chat",
                sse({"choices": [{"delta": {"content": WORDS, "images": [{"image_url": {}}]}}]}),
                SSE,
                75,
                True,
            ),
            "ollama-call": (
                "ollama.chat",
                b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":{}}}]},"done":false}\n',
                NDJSON,
                30,
                False,
            ),
            "converse-call": (
                "bedrock.converse",
                event("contentBlockStart", b'{"start":{"toolUse":{"toolUseId":"t","name":"f"}}}')
                + event(
                    "contentBlockDelta", b'{"delta":{"toolUse":{"input":"%b"}}}' % WORDS.encode()
                ),
                AWS,
                105,
                False,
            ),
            "invoke-titan": ("bedrock.invoke", chunk(outputText=WORDS), AWS, 75, False),
            "invoke-llama": ("bedrock.invoke", chunk(generation=WORDS) * 2, AWS, 150, False),
            "invoke-mistral": ("bedrock.invoke", chunk(outputs=[{"text": WORDS}]), AWS, 75, False),
            "invoke-unread": ("bedrock.invoke", event("chunk", b'{"bytes":"?"}'), AWS, None, False),
            "agent": (
                "bedrock.agent",
                event(
                    "chunk", json.dumps({"bytes": base64.b64encode(b"a" * 40).decode()}).encode()
                ),
                AWS,
                10,
                False,
            ),
            "images": (
                "openai.images",
                sse({"type": "image_generation.partial_image", "b64_json": "AAAA"}),
                SSE,
                None,
                False,
            ),
        }
    ),
)
def test_what_passed_is_estimated(
    dialect: str, body: bytes, content_type: str, expected: int | None, is_hidden: bool
) -> None:
    exchange, reading = settled(dialect, body, content_type)
    assert exchange.outcome is Outcome.CLIENT_LEFT
    assert reading.usage_source is UsageSource.ESTIMATED
    assert reading.usage.input_tokens == 11
    assert reading.usage.output_tokens == reading.estimated_output_tokens == expected
    assert reading.usage.remarks == ((HIDDEN_OUTPUT,) if is_hidden else ())


@for_each(
    "dialect, body",
    named(
        {
            "created-alone": ("openai.responses", sse(CREATED)),
            "a-role-alone": ("openai.chat", sse({"choices": [{"delta": {"role": "assistant"}}]})),
            "no-known-format": ("unknown", sse({"id": "1", "text": WORDS})),
        }
    ),
)
def test_nothing_is_estimated_where_nothing_was_generated(dialect: str, body: bytes) -> None:
    reading = settled(dialect, body).reading
    assert reading.usage_source is UsageSource.NONE
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (None, None)


def test_without_any_figure_there_is_no_estimate() -> None:
    reading = settled("openai.responses", sse(CREATED, REASONING), inputs=None).reading
    assert reading.usage_source is UsageSource.NONE
    assert reading.usage.remarks == (HIDDEN_OUTPUT,)


def test_hidden_output_behind_a_first_figure_is_said() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    hidden = {
        "type": "content_block_start",
        "content_block": {"type": "redacted_thinking", "data": "x"},
    }
    reading = settled("anthropic.messages", sse(start, hidden)).reading
    assert reading.usage_source is UsageSource.PARTIAL
    assert reading.estimated_output_tokens is None
    assert reading.usage.remarks == (HIDDEN_OUTPUT,)


COUNTED = {"x-amzn-bedrock-input-token-count": "20", "x-amzn-bedrock-output-token-count": "7"}


@for_each(
    "dialect, headers, body",
    named(
        {
            "titan": ("bedrock.invoke", COUNTED, b'{"outputText":"wo'),
            "embeddings": ("bedrock.invoke", COUNTED, b'{"embedding":[0.1,'),
            "no-body": ("bedrock.invoke", COUNTED, b""),
            "text-generation-inference": (
                "tgi.generate",
                {"x-prompt-tokens": "20", "x-generated-tokens": "7"},
                b'{"generated_text":"wo',
            ),
        }
    ),
)
def test_counts_in_headers_have_come_where_the_body_is_cut(
    dialect: str, headers: dict[str, str], body: bytes
) -> None:
    opened_now = replace(opened_row("flow-1", at=NOW), streamed=False)
    exchange, reading = result_of(
        opened_now,
        end=End.UPSTREAM_BROKE,
        status=200,
        meter=metered(DIALECTS[dialect], body, JSON, headers=headers).tap.meter,
        now=NOW,
    )
    assert exchange.outcome is Outcome.UPSTREAM_CUT
    assert reading.usage_source is UsageSource.REPORTED
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (20, 7)


def cut_session(path: str, host: str, sent: list[Any], received: list[Any]) -> Reading:
    """The reading of the one response of a session whose client leaves."""
    request = replace(REQUEST, host=host)
    session = session_of(request, path)
    for message in sent:
        session.message(json.dumps(message).encode(), from_client=True, at=NOW)
    for message in received:
        session.message(json.dumps(message).encode(), from_client=False, at=NOW)
    (found,) = session.end(End.CLIENT_LEFT, at=NOW)
    assert not isinstance(found, Exchange)
    assert found.exchange.outcome is Outcome.CLIENT_LEFT
    return found.reading


GEMINI = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
ASKED = {"type": "response.create", "model": "m", "input": "hello hello"}
SOUND = {"type": "response.output_audio.delta", "response_id": "r", "delta": "A" * 4_000}


@for_each(
    "path, host, sent, received, expected",
    named(
        {
            "responses-deltas": (
                "/v1/responses",
                "api.openai.com",
                [ASKED],
                [CREATED, DELTA, DELTA],
                (UsageSource.ESTIMATED, 15, 150, ()),
            ),
            "responses-item": (
                "/v1/responses",
                "api.openai.com",
                [ASKED],
                [CREATED, CALL],
                (UsageSource.ESTIMATED, 15, 105, ()),
            ),
            "realtime-speech": (
                "/v1/realtime",
                "api.openai.com",
                [{"type": "response.create"}],
                [
                    CREATED,
                    SOUND,
                    {**DELTA, "response_id": "r"},
                    {**DELTA, "response_id": "r"},
                    SOUND,
                ],
                (UsageSource.ESTIMATED, None, 150, (HIDDEN_OUTPUT,)),
            ),
            "gemini-live": (
                GEMINI,
                "generativelanguage.googleapis.com",
                [],
                [
                    {"serverContent": {"outputTranscription": {"text": WORDS}}},
                    {"serverContent": {"outputTranscription": {"text": WORDS}}},
                    {"serverContent": {"inputTranscription": {"text": WORDS}}},
                    {"serverContent": {"modelTurn": {"parts": [{"inlineData": {"data": "AAAA"}}]}}},
                ],
                (UsageSource.ESTIMATED, None, 150, (HIDDEN_OUTPUT,)),
            ),
            "gemini-live-sound-alone": (
                GEMINI,
                "generativelanguage.googleapis.com",
                [],
                [{"serverContent": {"modelTurn": {"parts": [{"inlineData": {"data": "AAAA"}}]}}}]
                * 2,
                (UsageSource.NONE, None, None, (HIDDEN_OUTPUT,)),
            ),
        }
    ),
)
def test_a_response_of_a_session_is_estimated_too(
    path: str, host: str, sent: list[Any], received: list[Any], expected: tuple[Any, ...]
) -> None:
    reading = cut_session(path, host, sent, received)
    usage = reading.usage
    found = (reading.usage_source, usage.input_tokens, usage.output_tokens, usage.remarks)
    assert found == expected


def test_text_goes_to_the_response_that_it_names() -> None:
    session = session_of(REQUEST, "/v1/realtime")
    for name, count in (("one", 1), ("two", 3)):
        created = {"type": "response.created", "response": {"id": name, "status": "in_progress"}}
        session.message(json.dumps(created).encode(), from_client=False, at=NOW)
        delta = json.dumps({**DELTA, "response_id": name}).encode()
        for _ in range(count):
            session.message(delta, from_client=False, at=NOW)
    for name in ("one", "two"):
        delta = json.dumps({**DELTA, "response_id": name}).encode()
        session.message(delta, from_client=False, at=NOW)
    ended = session.end(End.CLIENT_LEFT, at=NOW)
    assert [one.reading.usage.output_tokens for one in ended if isinstance(one, Settled)] == [
        150,
        300,
    ]


@for_each("chunk_bytes", [100, 10_000_000])
@for_each(
    "kind",
    ["application/json", "application/jsonl", "application/x-ndjson", "application/json-seq"],
)
def test_lines_that_end_early_are_a_cut_stream(kind: str, chunk_bytes: int):
    """Under any content type, in chunks of any size: the first line is longer than a document that
    is not told from lines, and text comes late."""
    line = b'{"model":"m","message":{"role":"assistant","content":"%s"},"done":false,"x":"%s"}\n'
    body = line % (b"", b"x" * 70_000) + line % (b"", b"") * 3 + line % (b"hello there", b"") * 5
    request = replace(
        REQUEST, path="/api/chat", body=Body(b'{"model":"m","messages":[{"content":"hi"}]}')
    )
    exchange = opened(request)
    response = Response(status=200, headers={"content-type": kind})
    tap = exchange.answer(response, edits=False, clock=lambda: 0.0)
    for at in range(0, len(body), chunk_bytes):
        tap.callable(body[at : at + chunk_bytes])
    left, reading = exchange.settle(End.CLIENT_LEFT, cause=None, now=NOW)
    assert left.outcome is Outcome.CLIENT_LEFT
    assert (reading.usage_source, reading.estimated_output_tokens) == (UsageSource.ESTIMATED, 13)


def test_what_could_not_be_read_is_not_cut():
    """An unknown encoding, a damaged document: the body came to its end."""
    for headers, body in (
        ({"content-encoding": "unheard-of"}, STREAM),
        ({"content-type": "application/json"}, b'{"id":"c1","choices":[],x}'),
    ):
        exchange = opened()
        response = Response(status=200, headers={"content-type": "text/event-stream"} | headers)
        exchange.answer(response, edits=False, clock=lambda: 0.0).callable(body)
        ended, _ = exchange.settle(End.FINISHED, cause=None, now=NOW)
        assert ended.outcome is Outcome.COMPLETE
        assert ended.degraded is not None
