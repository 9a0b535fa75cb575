"""Pure. Vercel AI Gateway's own format: the parts of the AI SDK's language model, as JSON.

https://ai-sdk.dev/providers/ai-sdk-providers/ai-gateway

Usage is flat in the SDK's second specification (`inputTokens`, `cachedInputTokens`) and nested in
the third (`inputTokens.total`, `.cacheRead`). The finish reason is text in the second and an object
in the third. The gateway's own price is in `providerMetadata.gateway.cost`, in USD as text. A
request header names the requested model, `response.modelId` the one that answered.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from addon.dialects import shapes
from addon.dialects.counts import Counts, lookup
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import UsagePaths
from ledger.model.usage import Usage

_VERCEL_FIGURES = UsagePaths(
    input=("inputTokens", "inputTokens.total", "tokens", "promptTokens"),
    output=("outputTokens", "outputTokens.total", "completionTokens"),
    cache_read=("cachedInputTokens", "inputTokens.cacheRead"),
    cache_write=("inputTokens.cacheWrite",),
    reasoning=("reasoningTokens", "outputTokens.reasoning"),
)
_VERCEL_CONTENT = ("text-delta", "reasoning-delta", "tool-input-delta", "tool-call", "file")


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one document or one part of a stream."""
    kind = body.get("type")
    if kind == "response-metadata":
        facts.record_id(body.get("id"))
        facts.record_model(body.get("modelId"))
    elif kind in _VERCEL_CONTENT:
        facts.token_seen = True
    elif kind == "error":
        record_error(facts, body.get("error") or body, body)
    elif kind == "finish" or facts.is_document:
        reason = body.get("finishReason")
        facts.record_finish(reason.get("unified") if isinstance(reason, dict) else reason)
        facts.record_id(lookup(body, "response.id"))
        facts.record_model(lookup(body, "response.modelId"))
        facts.record_usage(body.get("usage"), final=True)
        facts.rare.cost = lookup(body, "providerMetadata.gateway.cost")
        facts.ended = kind == "finish" or facts.ended
    if kind is None and body.get("error"):
        record_error(facts, body["error"], body)


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures of either specification, with the gateway's own price."""
    cost = Counts({"cost": facts.rare.cost}).picousd("cost")
    return structs.replace(_VERCEL_FIGURES.usage_of(usage, facts), reported_cost_picousd=cost)


LANGUAGE_MODEL = Dialect(
    name="vercel.language_model",
    operation="chat",
    read=read,
    usage_of=usage_of,
    known_keys=_VERCEL_FIGURES.known_keys(
        "totalTokens", "inputTokens.noCache", "outputTokens.text", "raw", "raw.*"
    ),
    marks=(Mark(b'"finish"'), Mark(b'"response-metadata"'), Mark(b'"error"')),
    text_marks=(b'"delta"',),
    call_marks=(Mark(b'"tool-call"'),),
    model_header="ai-language-model-id",
    request_shapes=({"prompt": shapes.messages},),
    answer_shapes=(
        {"finishReason": shapes.anything, "usage": dict},
        {"type": shapes.one_of("stream-start", "response-metadata", "finish")},
    ),
)
EMBEDDING_MODEL = replace(
    LANGUAGE_MODEL,
    name="vercel.embedding_model",
    operation="embeddings",
    model_header="ai-embedding-model-id",
    request_shapes=({"values": shapes.prompt},),
    answer_shapes=({"embeddings": list, "usage": dict},),
)
