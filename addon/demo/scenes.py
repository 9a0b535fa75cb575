"""Pure. The agent's calls: each request, its answer, and the row that the ledger must have."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GPT, CLAUDE = "gpt-4.1", "claude-sonnet-4-5"
OPENAI_SDK = {"authorization": "Bearer sk-demo-0000", "user-agent": "OpenAI/Python 2.8.0"}
ANTHROPIC_SDK = {
    "x-api-key": "sk-ant-demo-0000",
    "anthropic-version": "2023-06-01",
    "user-agent": "Anthropic/Python 1.0.0",
}
CLAUDE_PLAN = {
    "authorization": "Bearer sk-ant-oat01-demo-0000",
    "anthropic-beta": "oauth-2025-04-20",
    "anthropic-version": "2023-06-01",
    "user-agent": "claude-cli/2.1.0 (external, cli)",
}
LIMITS = {
    "anthropic-ratelimit-unified-status": "allowed",
    "anthropic-ratelimit-unified-5h-utilization": "0.42",
    "anthropic-ratelimit-unified-5h-reset": "4102444800",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One call."""

    name: str
    """What the agent does."""
    known: str
    """What the ledger knows of it."""
    provider: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    pieces: tuple[str, ...]
    """The answer; each piece is an HTTP chunk."""
    usage: str = ""
    """The piece that comes before the last one if the request asks for usage."""
    status: int = 200
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    leaves: bool = False
    """The client leaves after these pieces, and the answer has no end."""
    row: Mapping[str, Any]
    """Columns of view `requests` -> the value that upstream's bytes state; else `ORDINARY`."""

    def pieces_sent(self, *, asked: bool) -> tuple[str, ...]:
        """What upstream sends to a request that asks for usage, or does not."""
        usage = (self.usage,) if asked and self.usage else ()
        return (*self.pieces[:-1], *usage, self.pieces[-1])

    @property
    def client_body(self) -> str:
        """What the client must receive, which has not asked."""
        return "".join(self.pieces)


_NULLABLE = (
    "response_id response_model finish_reason error_code input_tokens cache_read_tokens "
    "cache_write_tokens output_tokens reasoning_tokens"
)
ORDINARY: Mapping[str, Any] = dict.fromkeys(_NULLABLE.split()) | {
    "outcome": "complete",
    "http_status": 200,
    "usage_source": "reported",
    "usage_injected": 0,
    "usage_stripped": 0,
    "billing": "metered",
}
"""Columns that are compared, with the value that a scene does not name."""


def scenes() -> tuple[Scene, ...]:
    """The agent's calls, in their order."""
    words = ("The", " invoice", " is", " 14", " days", " late.")
    usage = {"prompt_tokens": 1_850, "completion_tokens": 212, "total_tokens": 2_062}
    refusal = {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}
    return (
        _chat(
            name="streams, asks for no usage",
            known="usage, which the proxy asked for",
            pieces=(*_chunks("chatcmpl-one", *words, finish="stop"), "data: [DONE]\n\n"),
            usage=_event({**_chunk("chatcmpl-one", {}), "choices": [], "usage": usage}),
            row={
                "response_id": "chatcmpl-one",
                "response_model": GPT,
                "finish_reason": "stop",
                "input_tokens": 1_850,
                "output_tokens": 212,
                "usage_stripped": 1,
            },
        ),
        _messages(
            "msg_two",
            name="repeats a long prompt",
            known="what came from the prompt cache",
            tokens=(312, 11_904, 268),
        ),
        _chat(
            name="disconnects in an answer",
            known="an estimate, in no total",
            pieces=_chunks("chatcmpl-left", "Dear", " Globex,"),
            leaves=True,
            row={
                "response_id": "chatcmpl-left",
                "response_model": GPT,
                "outcome": "client_left",
                "usage_source": "estimated",
            },
        ),
        _chat(
            name="is told to wait",
            known="the error, and the wait",
            pieces=(json.dumps(refusal),),
            status=429,
            answer_headers={"retry-after": "20"},
            row={
                "outcome": "http_error",
                "http_status": 429,
                "usage_source": "none",
                "error_code": "rate_limit_exceeded",
            },
        ),
        _messages(
            "msg_five",
            name="uses a flat-rate plan",
            known="list value, 42% of 5 h used",
            tokens=(95, 20_480, 403),
            headers=CLAUDE_PLAN,
            answer_headers=LIMITS,
            billing="plan",
        ),
    )


def _chat(*, row: Mapping[str, Any], **more: Any) -> Scene:
    """A streamed chat completion that asks for no usage."""
    return Scene(
        provider="openai",
        path="/v1/chat/completions",
        headers=OPENAI_SDK,
        body={"messages": [{"role": "user", "content": "Hi"}], "model": GPT, "stream": True},
        row={"request_model": GPT, "usage_injected": 1, **row},
        **more,
    )


def _chunk(response_id: str, delta: object, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": response_id, "object": "chat.completion.chunk", "created": 1_716_825_600}
    return {**head, "model": GPT, "choices": [choice]}


def _chunks(response_id: str, *words: str, finish: str | None = None) -> tuple[str, ...]:
    """The events of a stream: the role, the words, and the finish if there is one."""
    deltas = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
    chunks = [_chunk(response_id, delta) for delta in deltas]
    chunks += [_chunk(response_id, {}, finish)] if finish else []
    return tuple(map(_event, chunks))


def _messages(
    response_id: str,
    *,
    tokens: tuple[int, int, int],
    headers: Mapping[str, str] = ANTHROPIC_SDK,
    billing: str = "metered",
    **more: Any,
) -> Scene:
    """A call of Anthropic's API. `tokens`: input, cache read (which is no part of it), output."""
    uncached, cached, output = tokens
    usage = {"input_tokens": uncached, "cache_read_input_tokens": cached, "output_tokens": 1}
    message = {"id": response_id, "type": "message", "role": "assistant", "model": CLAUDE}
    text = {"type": "text_delta", "text": "Paid on 14 November."}
    stop = {"stop_reason": "end_turn"}
    question = {"role": "user", "content": "Is it paid?"}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": text},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": output}},
        {"type": "message_stop"},
    ]
    return Scene(
        provider="anthropic",
        path="/v1/messages",
        headers=headers,
        body={"model": CLAUDE, "max_tokens": 500, "stream": True, "messages": [question]},
        pieces=tuple(_event(each, each["type"]) for each in events),
        row={
            "response_id": response_id,
            "request_model": CLAUDE,
            "response_model": CLAUDE,
            "finish_reason": "end_turn",
            "input_tokens": uncached + cached,
            "cache_read_tokens": cached,
            "output_tokens": output,
            "billing": billing,
        },
        **more,
    )


def _event(value: object, name: str = "") -> str:
    """One server-sent event."""
    data = json.dumps(value, separators=(",", ":"))
    return (f"event: {name}\n" if name else "") + f"data: {data}\n\n"
