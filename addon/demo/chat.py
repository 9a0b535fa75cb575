"""Pure. The scenes' chat completions: requests, chunks, streams, documents."""

from collections.abc import Mapping, Sequence
from typing import Any

from addon.demo.scene import DONE, Answer, Figures, Scene, event

CREATED = 1_716_825_600
TOOL_CALL = (
    {
        "tool_calls": [
            {
                "index": 0,
                "id": "call_abc123",
                "type": "function",
                "function": {"name": "get_weather", "arguments": ""},
            }
        ]
    },
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '"Tokyo"}'}}]},
)
"""A tool call as it streams: the call first, then its arguments in pieces."""

type Delta = Mapping[str, Any]


def scene(
    name: str,
    answer: Answer,
    *,
    provider: str,
    model: str,
    response_id: str | None,
    stream: bool = True,
    asks: bool | None = None,
    **figures: Any,
) -> Scene:
    """A chat completions scene. `asks` is the client's `include_usage`; `figures` are expected."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "model": model}
    if stream:
        body["stream"] = True
    if asks is not None:
        body["stream_options"] = {"include_usage": asks}
    answered = {} if response_id is None else {"response_model": model, "finish_reason": "stop"}
    return Scene(
        name=name,
        provider=provider,
        path="/v1/chat/completions",
        sdk="openai",
        body=body,
        answer=answer,
        figures=Figures(
            response_id=response_id,
            request_model=model,
            usage_asked=asks,
            **{"response_model": None, **answered, **figures},
        ),
    )


def words(*pieces: str) -> tuple[Delta, ...]:
    """Content deltas."""
    return tuple({"content": piece} for piece in pieces)


def chunk(
    response_id: str, model: str, delta: Delta, finish: str | None = None, **more: Any
) -> dict[str, Any]:
    """One chunk; `more` adds keys, or replaces them."""
    return {
        "id": response_id,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }


def begun(response_id: str, model: str, deltas: Sequence[Delta]) -> tuple[bytes, ...]:
    """The content part of a stream: the role, then the deltas."""
    role: Delta = {"role": "assistant", "content": ""}
    return tuple(event(chunk(response_id, model, delta)) for delta in (role, *deltas))


def streamed(
    response_id: str,
    model: str,
    deltas: Sequence[Delta],
    *,
    finish: str = "stop",
    usage: Mapping[str, Any] | None = None,
) -> tuple[bytes, ...]:
    """A whole stream; usage, if any, in an extra chunk with empty `choices`."""
    tail = [chunk(response_id, model, {}, finish)]
    if usage is not None:
        tail.append(chunk(response_id, model, {}, choices=[], usage=usage))
    return (*begun(response_id, model, deltas), *map(event, tail), DONE)


def completion(
    response_id: str, model: str, content: str, usage: Mapping[str, Any]
) -> dict[str, Any]:
    """A chat completion that is not streamed."""
    message = {"role": "assistant", "content": content}
    return {
        "id": response_id,
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
    }
