"""Pure. Cohere v1 and v2: chat, generate, embed, rerank.

https://docs.cohere.com/reference/chat-stream

`tokens` counts the model's input and output; `billed_units` counts the invoiced part, without
Cohere's own prompt. Token columns are tokens (the caches and limits count those); the billed
figures stay in the verbatim usage and in the units, which pricing reads.
"""

from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import object_at, objects_at
from addon.dialects.dialect import CostLimits, Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.frame_paths import UsagePaths

_COHERE_CONTENT = ("text-generation", "content-delta", "tool-plan-delta", "tool-call-delta")

_COHERE_FIGURES = UsagePaths(
    input=("tokens.input_tokens", "billed_units.input_tokens"),
    cache_read=("cached_tokens", "tokens.cached_tokens"),
    output=("tokens.output_tokens", "billed_units.output_tokens"),
    reasoning=("tokens.reasoning_tokens",),
    units={
        "billed_units.input_tokens": "billed_input_tokens",
        "billed_units.output_tokens": "billed_output_tokens",
        "billed_units.images": "images",
        "billed_units.search_units": "search_units",
        "billed_units.classifications": "classifications",
        "billed_units.image_tokens": "billed_image_tokens",
        "tokens.image_tokens": "input_image_tokens",
    },
    units_within="billed_units",
)


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document, event or line."""
    kind = body.get("type") or body.get("event_type") or event
    if kind in _COHERE_CONTENT:
        facts.token_seen = True
    elif kind == "message-start":
        facts.record_id(body.get("id"))
    elif kind == "message-end":
        _read_answer(facts, object_at(body, "delta") or {})
        facts.ended = True
    elif kind == "stream-start":
        facts.record_id(body.get("generation_id"))
    elif kind == "stream-end":
        _read_answer(facts, {"finish_reason": body.get("finish_reason")})
        _read_answer(facts, object_at(body, "response") or {})
        facts.ended = True
    elif facts.is_document:
        facts.record_id(body.get("generation_id") or body.get("id"))
        _read_answer(facts, body)


def _read_answer(facts: Facts, answer: dict[str, Any]) -> None:
    """A finished answer: usage is `usage` in v2 and `meta` in v1."""
    facts.record_finish(answer.get("finish_reason"))
    for generation in objects_at(answer, "generations"):
        facts.record_finish(generation.get("finish_reason"))
    usage = object_at(answer, "usage")
    if usage is None:
        usage = object_at(answer, "meta")
    if usage:
        facts.record_usage(usage, final=True)
    if answer.get("error"):
        record_error(facts, answer["error"], answer)
    elif answer.get("finish_reason") == "ERROR":
        record_error(facts, {})


CHAT = Dialect(
    name="cohere.chat",
    operation="chat",
    read=read,
    usage_of=_COHERE_FIGURES.usage_of,
    known_keys=frozenset(
        {"tokens", "tokens.*", "billed_units", "billed_units.*", "cached_tokens"}
        | {"api_version", "api_version.*", "warnings"}
    ),
    cost_limits=CostLimits(),
    marks=(Mark(b"message-end"), Mark(b"stream-end"), Mark(b'"error"')),
    text_marks=(b'"text"', b'"tool_plan"', b'"arguments"'),
    call_marks=(Mark(b'"tool-call-start"'),),
    ending=Ending.MARK,
    request_shapes=(
        {"model": shapes.text, "messages": shapes.messages},
        {"message": shapes.text, "chat_history": list},
    ),
    answer_shapes=(
        {"generation_id": shapes.text, "meta": dict},
        {"usage.billed_units": dict},
        {"meta.billed_units": dict},
        {"type": shapes.one_of("message-start", "message-end"), "delta": dict},
        {"event_type": shapes.one_of("stream-start", "stream-end")},
    ),
)
_BILLED = ({"meta.billed_units": dict}, {"meta.api_version": dict})
GENERATE = replace(
    CHAT,
    name="cohere.generate",
    operation="text_completion",
    request_shapes=({"model": shapes.text, "prompt": shapes.text},),
    answer_shapes=({"generations": shapes.objects, "meta": dict},),
)
EMBED = replace(
    CHAT,
    name="cohere.embed",
    operation="embeddings",
    request_shapes=(
        {"model": shapes.text, "texts": list},
        {"model": shapes.text, "images": list},
        {"model": shapes.text, "inputs": list},
    ),
    answer_shapes=_BILLED,
)
RERANK = replace(
    CHAT,
    name="cohere.rerank",
    operation="rerank",
    request_shapes=({"model": shapes.text, "query": shapes.text, "documents": list},),
    answer_shapes=_BILLED,
)
