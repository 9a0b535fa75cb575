"""Pure. Amazon Bedrock: Converse and InvokeModel, streamed or not or both ways, and agents.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html

Converse has one shape for all models. InvokeModel passes on the answer of the model's vendor
(base64 inside JSON when streamed). If that has no usage, Bedrock's own count is in
`amazon-bedrock-invocationMetrics` on the last chunk or only in response headers. The model's own
figures take precedence over Bedrock's, which sometimes differ. Only the vendor's part of an answer
may name the model; otherwise the path's name is used.
"""

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import (
    HEADER_PREFIX,
    Counts,
    added,
    counts_among,
    fallen,
    lookup,
    object_at,
    objects_at,
    unit_name,
)
from addon.dialects.dialect import CostLimits, Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.openai import chat as openai_chat
from addon.dialects.openai import usage as openai_usage
from addon.dialects.vendors import anthropic
from addon.framing import json_values
from ledger.model.usage import Usage, count_of, sum_of

_METRICS = "amazon-bedrock-invocationMetrics"
_HEADERS = (
    "x-amzn-bedrock-input-token-count",
    "x-amzn-bedrock-output-token-count",
    "x-amzn-bedrock-cache-read-input-token-count",
    "x-amzn-bedrock-cache-write-input-token-count",
)
_INPUT, _OUTPUT, _READ, _WRITTEN = (HEADER_PREFIX + name for name in _HEADERS)
_TEXTS = (
    *("outputText", "generation", "completion", "text", "outputs.0.text", "generations.0.text"),
    *("delta.text", "delta.thinking", "delta.partial_json", "contentBlockDelta.delta.text"),
    *("choices.0.delta.content", "choices.0.delta.reasoning_content", "choices.0.text"),
)
"""Where a chunk of a vendor has its text."""
_FINISHES = (
    "completions.0.finishReason.reason",
    "generations.0.finish_reason",
    "outputs.0.stop_reason",
)
"""Where older models of AI21, Cohere and Mistral say why they ended; Claude 2 says it beside its
`completion`. https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html"""
LIFETIMES_MAX = 16
_IMAGES = "images[].base64"
"""Path of the images of an answer without tokens."""
_TITAN_OUTPUT = "results[].tokenCount"
"""Titan counts its output per result; our usage keeps the path of the count."""


def read_converse(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event of Converse."""
    facts.record_model(facts.of.path_model)
    if event.endswith("Exception") or event == "error":
        record_error(facts, {"type": event, **body})
    elif event == "contentBlockDelta":
        facts.token_seen = True
    elif event == "metadata":
        facts.ended = True
    facts.record_finish(body.get("stopReason"))
    facts.record_usage(body.get("usage"), final=True)
    if "performanceConfig" in body:
        facts.record_beside("latency_mode", lookup(body, "performanceConfig.latency"))


def read_agent(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one event of an agent. Each of its calls of a model has its usage in a trace, if the
    request enables traces; the sum is billed.

    https://docs.aws.amazon.com/bedrock/latest/APIReference/API_agent-runtime_Metadata.html
    """
    if event.endswith("Exception") or event == "error":
        record_error(facts, {"type": event, **body})
    elif event == "chunk":
        facts.token_seen = True
        facts.rare.text_bytes += len(_decoded(body.get("bytes")))
    for step in (object_at(body, "trace") or {}).values():
        facts.record_model(lookup(step, "modelInvocationInput.foundationModel"))
        usage = lookup(step, "modelInvocationOutput.metadata.usage")
        if isinstance(usage, dict):
            facts.record_usage(added(facts.usage or {}, usage), final=True)


def read_invoke(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or chunk of InvokeModel, in the format of its model's vendor."""
    facts.record_model(facts.of.path_model if facts.response_model is None else None)
    if event.endswith("Exception") or event == "error":
        record_error(facts, {"type": event, **body})
        return
    if event == "chunk":
        facts.token_seen = True
        inner = json_values.loads(_decoded(body.get("bytes")))
        if inner is None:
            return
        body = inner
        facts.record_tiers(body)
        texts = (lookup(body, path) for path in _TEXTS)
        facts.rare.text_bytes += sum(
            len(text.encode("utf-8", "replace")) for text in texts if isinstance(text, str)
        )
    if "choices" in body:
        openai_chat.read(facts, "", body)
    elif "type" in body:
        anthropic.read(facts, "", body)
    elif "inputTextTokenCount" in body and facts.is_document:
        results = objects_at(body, "results")
        for result in results:
            facts.record_finish(result.get("completionReason"))
        counts = [result.get("tokenCount") for result in results]
        usage = {**counts_among(body, ("inputTextTokenCount",)), _TITAN_OUTPUT: counts}
        facts.record_usage(usage, final=True)
    elif "prompt_token_count" in body and facts.is_document:
        usage = counts_among(body, ("prompt_token_count", "generation_token_count"))
        facts.record_usage(usage, final=True)
        facts.record_finish(body.get("stop_reason"))
    elif facts.is_document and isinstance(images := body.get("images"), list):
        # Of Amazon and Stability, billed by their number; what was filtered is null.
        facts.record_number(_IMAGES, sum(bool(image) for image in images))
    elif facts.is_document:
        if object_at(body, "usage") is not None:
            facts.record_finish(body.get("stopReason"))
            facts.record_usage(body.get("usage"), final=True)
    elif "inputTextTokenCount" in body:
        # Titan counts its input on the first chunk; the metrics of the last one replace it.
        facts.record_finish(body.get("completionReason"))
        if body["inputTextTokenCount"] is not None and _METRICS not in body:
            usage = {"inputTextTokenCount": body["inputTextTokenCount"]}
            facts.record_usage(usage, final=False)
    else:
        facts.record_id(body.get("id"))
        stop = object_at(body, "messageStop") or body
        for key in ("stopReason", "completionReason", "stop_reason", "finish_reason"):
            facts.record_finish(stop.get(key))
        facts.record_usage((object_at(body, "metadata") or {}).get("usage"), final=True)
    metrics = object_at(body, _METRICS)
    if metrics is not None:
        facts.ended = True  # the last chunk carries them
        if facts.usage is None or "inputTextTokenCount" in facts.usage:
            facts.record_usage(metrics, final=True)
    if not facts.is_finished:
        for path in _FINISHES:
            facts.record_finish(lookup(body, path))
        facts.record_finish(body.get("stop_reason") if "completion" in body else None)


def read_session(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one event of a session in both directions. Each `usageEvent` has the totals so far.

    https://docs.aws.amazon.com/nova/latest/userguide/output-events.html
    """
    facts.record_model(facts.of.path_model)
    if event.endswith("Exception") or event == "error":
        record_error(facts, {"type": event, **body})
        return
    facts.token_seen = True
    said = object_at(json_values.loads(_decoded(body.get("bytes"))) or {}, "event") or {}
    usage = object_at(said, "usageEvent")
    if usage is not None:
        kept = counts_among(usage, ("totalInputTokens", "totalOutputTokens", "totalTokens"))
        total = object_at(object_at(usage, "details") or {}, "total")
        totals = {**kept, "details": {"total": total}}
        facts.record_falls(fallen(facts.usage or {}, totals))
        facts.record_usage(totals, final=facts.is_finished)
    end = object_at(said, "completionEnd")
    if end is not None:
        facts.record_finish(end.get("stopReason"))
        facts.usage_final = facts.usage is not None


def _decoded(encoded: object) -> bytes:
    """The content of a chunk; empty for what is no base64."""
    try:
        return base64.b64decode(encoded) if isinstance(encoded, str) else b""
    except ValueError:
        return b""


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures, in the format of any of its vendors."""
    if "prompt_tokens" in usage:
        return openai_usage.usage_of(usage, facts)
    if "input_tokens" in usage:
        return anthropic.usage_of(usage, facts)
    counts = Counts(usage)
    if "totalInputTokens" in usage:
        return Usage(
            input_tokens=counts.first("totalInputTokens"),
            input_audio_tokens=counts.first("details.total.input.speechTokens"),
            output_tokens=counts.first("totalOutputTokens"),
            output_audio_tokens=counts.first("details.total.output.speechTokens"),
            remarks=counts.remarks,
        )
    cache_read = counts.first("cacheReadInputTokens", "cacheReadInputTokenCount", _READ)
    cache_write = counts.first("cacheWriteInputTokens", "cacheWriteInputTokenCount", _WRITTEN)
    uncached = counts.first(
        "inputTokens",
        "inputTokenCount",
        "inputTextTokenCount",
        "prompt_token_count",
        _INPUT,
    )
    output = counts.first("outputTokens", "outputTokenCount", "generation_token_count", _OUTPUT)
    results = usage.get(_TITAN_OUTPUT)
    if isinstance(results, list):
        output = sum_of(*(count_of(count) for count in results))
    # `cacheDetails: [{ttl: "5m", inputTokens: n}]` splits the cache write. Other lifetimes have a
    # price in no list.
    written: dict[str, list[int | None]] = {}
    for one in objects_at(usage, "cacheDetails"):
        ttl = str(one.get("ttl"))
        if ttl in ("5m", "1h", *written) or len(written) < LIFETIMES_MAX:
            written.setdefault(ttl, []).append(count_of(one.get("inputTokens")))
    others = {
        unit_name(f"cache_write_{ttl}_tokens"): count
        for ttl, tokens in written.items()
        if ttl not in ("5m", "1h") and (count := sum_of(*tokens))
    }
    # A stream of OpenAI's models states all input in `inputTokens`, with what is read from the
    # cache and written into it beside it once more; a document states the rest alone
    # (maximhq/bifrost#6942: the same prompt gives 2 + 4 993, and 4 995 streamed).
    has_all = not facts.is_document and "openai." in (facts.response_model or "")
    return Usage(
        input_tokens=uncached if has_all else sum_of(uncached, cache_read, cache_write),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cache_write_5m_tokens=sum_of(*written.get("5m", ())),
        cache_write_1h_tokens=sum_of(*written.get("1h", ())),
        output_tokens=output,
        tool_units={**counts.units({_IMAGES: "images"}, within="serverToolUsage"), **others},
        remarks=counts.remarks,
    )


CONVERSE = Dialect(
    name="bedrock.converse",
    operation="chat",
    read=read_converse,
    usage_of=usage_of,
    known_keys=frozenset(
        {"inputTokens", "outputTokens", "totalTokens", "serverToolUsage", "serverToolUsage.*"}
        | {"cacheDetails", "cacheDetails.ttl", "cacheDetails.inputTokens"}
        | {"cacheReadInputTokens", "cacheReadInputTokenCount"}
        | {"cacheWriteInputTokens", "cacheWriteInputTokenCount"}
    ),
    cost_limits=CostLimits(
        output=("inferenceConfig.maxTokens",),
        answers=(),
        kept=("promptVariables",),
        clients_tools=("toolSpec", "cachePoint"),
    ),
    marks=(Mark(b"messageStop"), Mark(b"metadata"), Mark(b"xception"), Mark(b":error-code")),
    text_marks=(b'"text"', b'"input"'),
    call_marks=(Mark(b'"toolUseId"'),),
    hidden_marks=(Mark(b'"redactedContent"'), Mark(b'"signature"')),
    ending=Ending.MARK,
    request_shapes=({"messages": shapes.messages},),
    answer_shapes=(
        {"output.message": dict, "stopReason": shapes.text},
        {"usage.inputTokens": shapes.count, "metrics": dict},
    ),
)
INVOKE = replace(
    CONVERSE,
    name="bedrock.invoke",
    read=read_invoke,
    cost_limits=CostLimits(
        output=(
            *("max_tokens", "max_completion_tokens", "max_tokens_to_sample", "max_gen_len"),
            *("textGenerationConfig.maxTokenCount", "inferenceConfig.maxTokens"),
            *("inferenceConfig.max_new_tokens",),
        ),
        answers=("n", "num_generations", "numResults"),
        clients_tools=(
            *("function", "custom", "bash_", "text_editor_", "computer_", "memory_", "toolSpec"),
        ),
    ),
    known_keys=CONVERSE.known_keys
    | anthropic.KNOWN_KEYS
    | openai_usage.KNOWN_KEYS
    | {"inputTokenCount", "outputTokenCount", "invocationLatency", "firstByteLatency"}
    | {"inputTextTokenCount", _TITAN_OUTPUT, _IMAGES}
    | {"prompt_token_count", "generation_token_count"}
    | {HEADER_PREFIX + name for name in _HEADERS},
    # A chunk's content is in base64, where no search finds it.
    marks=(Mark(b'"bytes"'), Mark(b"xception"), Mark(b":error-code")),
    text_marks=(),
    call_marks=(),
    hidden_marks=(),
    count_headers=_HEADERS,
    ending=Ending.FINISH,
    request_shapes=(
        {"messages": shapes.messages},
        {"prompt": shapes.prompt},
        {"inputText": shapes.text},
        {"texts": list, "input_type": shapes.text},
        {"query": shapes.text, "documents": list, "api_version": shapes.count},
    ),
    answer_shapes=(
        {"choices": list, "usage": dict},
        {"type": shapes.one_of("message", "message_start")},
        {"inputTextTokenCount": shapes.count},
        {"amazon-bedrock-invocationMetrics": dict},
        {"bytes": shapes.text},
        {"completion": shapes.text, "stop_reason": shapes.text},
        {"generation": shapes.text, "prompt_token_count": shapes.count},
        {"generations": shapes.with_key("text")},
        {"outputs": shapes.with_key("text")},
        {"embeddings": list, "response_type": shapes.text},
    ),
)
SESSION = replace(
    INVOKE,
    name="bedrock.session",
    cost_limits=None,
    read=read_session,
    known_keys=frozenset(
        {"totalInputTokens", "totalOutputTokens", "totalTokens", "details", "details.total"}
    ),
    ending=Ending.CLOSE,
    request_shapes=(),
    answer_shapes=({"bytes": shapes.text},),
)
AGENT = replace(
    CONVERSE,
    name="bedrock.agent",
    operation="invoke_agent",
    cost_limits=None,
    read=read_agent,
    marks=(Mark(b'"bytes"'), Mark(b'"trace"'), Mark(b"xception"), Mark(b":error-code")),
    text_marks=(),
    call_marks=(),
    hidden_marks=(),
    ending=Ending.CLOSE,
    request_shapes=({"inputText": shapes.text},),
    answer_shapes=({"sessionId": shapes.text, "trace": dict},),
)
