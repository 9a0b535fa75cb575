"""What the fake providers answer: each answer has an id and figures of its own.

Written after the published formats of the four protocols. `Answer.tokens` is what upstream sent,
so what the ledger must hold.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

CREATED = 1_760_000_000
TEXT = "Hello from upstream."
LONG, LONG_CALLS = "long-", 40
"""A client whose name begins so is told to call a tool until it has made so many calls."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer."""

    response_id: str
    tokens: tuple[int, int]
    """Input and output."""
    content_type: str
    pieces: tuple[bytes, ...]


def answer_to(
    path: str, body: dict[str, Any], client: str, number: Callable[[], int]
) -> Answer | None:
    """The answer to a request of a client; None for a path that is no LLM call."""
    is_stream = body.get("stream") is True
    for part, kind in _KINDS.items():
        if path.endswith(part):
            count = number()
            name, tokens = f"{client}-{count}", (1000 + count, 10 + count)
            if client.startswith(LONG):
                tokens = (8000 + 7919 * count % 9000, 300 + 613 * count % 900)
                if count < LONG_CALLS:
                    return _AGENT_KINDS[part](
                        body, name, tokens, is_stream=is_stream, has_tool_call=True
                    )
            return kind(body, name, tokens, is_stream=is_stream)
    if ":streamGenerateContent" in path or ":generateContent" in path:
        count = number()
        model = path.rpartition("/")[2].partition(":")[0]
        name, tokens = f"{client}-{count}", (1000 + count, 10 + count)
        return _gemini(model, name, tokens, is_stream=":stream" in path)
    return None


def _chat(body: dict[str, Any], name: str, tokens: tuple[int, int], *, is_stream: bool) -> Answer:
    usage = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    common = {
        "id": name,
        "created": CREATED,
        "model": body.get("model"),
        "system_fingerprint": "fp",
    }
    # A structured answer for clients that force a tool.
    tools = [tool[tool["type"]]["name"] for tool in body.get("tools") or []]
    message: dict[str, Any] = {"role": "assistant", "content": TEXT}
    finish = "stop"
    if tools and body.get("tool_choice") not in (None, "auto", "none"):
        finish = "tool_calls"
        call = {"name": tools[0], "arguments": '{"name": "Ada", "age": 36}'}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        }
    if not is_stream:
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return _document(
            name,
            tokens,
            {**common, "object": "chat.completion", "choices": [choice], "usage": usage},
        )
    asked = (body.get("stream_options") or {}).get("include_usage") is True

    def chunk(choices: list[Any], **more: Any) -> dict[str, Any]:
        null = {"usage": None} if asked else {}
        return {**common, "object": "chat.completion.chunk", "choices": choices, **null, **more}

    def choice_of(delta: dict[str, Any], finish: str | None = None) -> list[Any]:
        return [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]

    chunks = [
        chunk(choice_of({"role": "assistant", "content": ""})),
        *(chunk(choice_of({"content": word})) for word in _words()),
        chunk(choice_of({}, "stop")),
    ]
    if asked:
        chunks.append(chunk([], usage=usage))
    return _stream(name, tokens, [("", each) for each in chunks], done=True)


def _responses(
    body: dict[str, Any],
    name: str,
    tokens: tuple[int, int],
    *,
    is_stream: bool,
    has_tool_call: bool = False,
) -> Answer:
    content = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
    item = {
        "id": f"msg_of_{name}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }
    if has_tool_call:
        item = {
            "id": f"fc_of_{name}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_of_{name}",
            "name": "nothing",
            "arguments": "{}",
        }
    usage = {
        "input_tokens": tokens[0],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens[1],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum(tokens),
    }
    response = {
        "id": name,
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "model": body.get("model"),
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
    }
    if not is_stream:
        return _document(name, tokens, response)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    empty = {**content, "text": ""}
    text: list[dict[str, Any]] = [
        {"type": "response.content_part.added", **where, "part": empty},
        *(
            {"type": "response.output_text.delta", **where, "delta": word, "logprobs": []}
            for word in _words()
        ),
        {"type": "response.output_text.done", **where, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **where, "part": content},
    ]
    added = {**item, "status": "in_progress", **({} if has_tool_call else {"content": []})}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": added},
        *([] if has_tool_call else text),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    named = [(each["type"], {**each, "sequence_number": at}) for at, each in enumerate(events)]
    return _stream(name, tokens, named)


def _messages(
    body: dict[str, Any],
    name: str,
    tokens: tuple[int, int],
    *,
    is_stream: bool,
    has_tool_call: bool = False,
) -> Answer:
    model = body.get("model")
    usage = {
        "input_tokens": tokens[0],
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": tokens[1],
        "service_tier": "standard",
    }
    message = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    if not is_stream:
        return _document(name, tokens, message)
    begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    block: dict[str, Any] = {"type": "text", "text": ""}
    deltas = [{"type": "text_delta", "text": word} for word in _words()]
    if has_tool_call:
        block = {"type": "tool_use", "id": f"toolu_{name}", "name": "nothing", "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": "{}"}]
    stop_reason = "tool_use" if has_tool_call else "end_turn"
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None},
            "usage": {"output_tokens": tokens[1]},
        },
        {"type": "message_stop"},
    ]
    return _stream(name, tokens, [(each["type"], each) for each in events])


def _gemini(model: str, name: str, tokens: tuple[int, int], *, is_stream: bool) -> Answer:
    usage = {
        "promptTokenCount": tokens[0],
        "candidatesTokenCount": tokens[1],
        "totalTokenCount": sum(tokens),
    }

    def part(text: str, **more: Any) -> dict[str, Any]:
        content = {"parts": [{"text": text}], "role": "model"}
        return {
            "candidates": [{"content": content, "index": 0, **more}],
            "usageMetadata": usage,
            "modelVersion": model,
            "responseId": name,
        }

    if not is_stream:
        return _document(name, tokens, part(TEXT, finishReason="STOP"))
    *first, last = _words()
    chunks = [*(part(word) for word in first), part(last, finishReason="STOP")]
    return _stream(name, tokens, [("", each) for each in chunks])


def _words() -> list[str]:
    return [f"{word} " if at < 2 else word for at, word in enumerate(TEXT.split(" "))]


def _document(name: str, tokens: tuple[int, int], value: Any) -> Answer:
    return Answer(
        response_id=name,
        tokens=tokens,
        content_type="application/json",
        pieces=(json.dumps(value).encode(),),
    )


def _stream(
    name: str, tokens: tuple[int, int], events: Iterable[tuple[str, Any]], *, done: bool = False
) -> Answer:
    pieces = [
        (f"event: {event}\n" if event else "").encode()
        + b"data: "
        + json.dumps(value).encode()
        + b"\n\n"
        for event, value in events
    ]
    if done:
        pieces.append(b"data: [DONE]\n\n")
    return Answer(
        response_id=name,
        tokens=tokens,
        content_type="text/event-stream; charset=utf-8",
        pieces=tuple(pieces),
    )


_KINDS = {"/chat/completions": _chat, "/responses": _responses, "/v1/messages": _messages}
_AGENT_KINDS = {"/responses": _responses, "/v1/messages": _messages}
