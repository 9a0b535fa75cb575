"""Pure. Anthropic Messages, streamed or not, and the older Text Completions.

https://docs.claude.com/en/docs/build-with-claude/streaming

Usage is in `message_start` and again in `message_delta`, cumulative: each later field replaces the
earlier one, because server tools, compaction and other backends raise the input figures during the
answer. So this module merges a stream's usage from several events: `usage_json` holds the keys of
all of them, each with its last value. Input and cache figures are disjoint here
(https://docs.claude.com/en/docs/build-with-claude/prompt-caching#tracking-cache-performance).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import Counts, lookup, object_at, objects_at, unit_name
from addon.dialects.dialect import CostLimits, Dialect, Mark
from addon.dialects.errors import anthropic_refusal, record_error, record_error_in
from addon.dialects.facts import Facts, name_of, token_of
from addon.dialects.openai.usage import costs_of
from ledger.model.usage import REFUSAL, FurtherUsage, Usage, count_of, sum_of

_ITERATIONS = ("message", "fallback_message", "compaction", "advisor_message")
"""Kinds of iterations whose place in the bill is known
(https://platform.claude.com/docs/en/build-with-claude/compaction#understanding-usage)."""
_TURNS = _ITERATIONS[:2]
_DECLINED_MAX = 64
"""Characters of the categories of declined attempts; a request has three fallbacks at most."""
_TOP_LEVEL = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
)
_INPUT = _TOP_LEVEL[:3]
KNOWN_KEYS = frozenset(
    {"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"}
    | {"cache_creation.ephemeral_5m_input_tokens", "cache_creation.ephemeral_1h_input_tokens"}
    | {"output_tokens", "output_tokens_details", "output_tokens_details.thinking_tokens"}
    | {"server_tool_use", "server_tool_use.*", "iterations", "service_tier", "inference_geo"}
    | {"speed", "cost", "cost_details", "cost_details.*", "is_byok"}
    | {f"iterations.{key}" for key in ("type", "model", "cache_creation", "output_tokens_details")}
    | {f"iterations.{key}" for key in _TOP_LEVEL}
    | {"fallback_credit", "fallback_credit.*", "pydantic_ai_gateway", "pydantic_ai_gateway.*"}
)
_UNITS = {
    "server_tool_use.web_search_requests": "web_searches",
    "server_tool_use.web_fetch_requests": "web_fetches",
    "server_tool_use.code_execution_requests": "code_executions",
}


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one message or event."""
    kind = body.get("type")
    if "cost" in body:
        facts.rare.cost = body["cost"]  # OpenCode Zen: in the document, or in a `ping` of a stream
    if kind == "message_start":
        _read_message(facts, object_at(body, "message") or {}, final=False)
    elif kind == "message":
        _read_message(facts, body, final=True)
    elif kind == "message_delta":
        _read_stop(facts, object_at(body, "delta") or {})
        _overlay(facts, body.get("usage"), final=True)
    elif kind == "message_stop":
        facts.ended = True
    elif kind == "content_block_delta":
        facts.token_seen = True
    elif kind == "content_block_start":
        block = object_at(body, "content_block") or {}
        facts.token_seen |= any(block.get(key) for key in ("text", "thinking", "data"))
        _read_declined(facts, block)
    elif kind == "error" or event == "error" or body.get("error"):
        record_error(facts, body.get("error") or body, body)


def read_completion(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """The older Text Completions, which report no usage.

    https://docs.claude.com/en/api/complete; a stream ends with the event that has a stop reason.
    """
    facts.record_id(body.get("id"))
    facts.record_model(body.get("model"))
    facts.record_finish(body.get("stop_reason"))
    if body.get("completion"):
        facts.token_seen = True
    if facts.is_finished:
        facts.ended = True
    record_error_in(facts, event, body)


def _read_message(facts: Facts, message: dict[str, Any], *, final: bool) -> None:
    facts.record_id(message.get("id"))
    facts.record_model(message.get("model"))
    _read_stop(facts, message)
    for block in objects_at(message, "content"):
        facts.token_seen |= facts.is_document and block.get("type") != "fallback"
        _read_declined(facts, block)
    _overlay(facts, message.get("usage"), final=final)
    # https://platform.claude.com/docs/en/build-with-claude/cache-diagnostics
    if "diagnostics" in message:
        facts.record_diagnosis(lookup(message, "diagnostics.cache_miss_reason.type"))


def _read_stop(facts: Facts, stop: dict[str, Any]) -> None:
    """Why the message ended. Whether a refusal before any output is billed depends on its category
    (https://platform.claude.com/docs/en/build-with-claude/refusals-and-fallback)."""
    facts.record_finish(stop.get("stop_reason"))
    if stop.get("stop_reason") == "refusal":
        category = facts.token("refused", lookup(stop, "stop_details.category"))
        facts.rare.beside["refused"] = category or "none"


def _read_declined(facts: Facts, block: object) -> None:
    """A model declined, and another takes its place; the categories stand in their order."""
    if isinstance(block, dict) and block.get("type") == "fallback":
        category = facts.token("declined", lookup(block, "trigger.category")) or "none"
        before = facts.rare.beside.get("declined")
        facts.rare.beside["declined"] = (
            f"{before}:{category}"[-_DECLINED_MAX:] if before else category
        )


def _overlay(facts: Facts, usage: object, *, final: bool) -> None:
    if not isinstance(usage, dict):
        return
    if not facts.is_document:
        before = facts.usage or {}
        reported = {key: value for key, value in usage.items() if value is not None}
        if not any(reported.get(key) for key in _INPUT):
            # Some backends write 0 for what they said in message_start (envoyproxy/ai-gateway#1631,
            # sgl-project/sglang#20830). A running figure does not fall, and no request is empty.
            reported = {
                key: reported[key] for key in reported if not (key in _INPUT and before.get(key))
            }
        usage = {**before, **reported}
    facts.record_usage(usage, final=final)
    if usage.get("speed", facts.rare.beside.get("speed")) == "fast":
        facts.record_tier("fast")  # billed at its own prices, whatever the tier
    for iteration in objects_at(usage, "iterations"):
        if iteration.get("type") == "fallback_message":
            facts.record_model(iteration.get("model"))  # it answered, not message_start's model


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: input includes cache reads and writes, which Anthropic counts separately."""
    counts = Counts(usage)
    costs = costs_of(usage, counts, facts)
    uncached = counts.first("input_tokens")
    cache_read = counts.first("cache_read_input_tokens")
    cache_write = counts.first("cache_creation_input_tokens")
    five_minutes = counts.first("cache_creation.ephemeral_5m_input_tokens")
    one_hour = counts.first("cache_creation.ephemeral_1h_input_tokens")
    if cache_write is not None and sum_of(five_minutes, one_hour) not in (cache_write, None):
        # A raised total comes without the split of message_start: the total is right, and the
        # split by lifetime is unknown.
        five_minutes = one_hour = None
    # The iterations outside the figures. A model that gave up has a category; if it did so without
    # output, its kind is `refusal_` and that.
    declined = iter(facts.rare.beside.get("declined", "none").split(":"))
    further, category, before = [], "none", None
    iterations = objects_at(usage, "iterations")
    for one in _outside(usage, iterations) if iterations else ():
        kind = token_of(one.get("type")) or "iteration"
        if kind in _TURNS:
            if before is None or one.get("model") != before:
                category, before = next(declined, "none"), one.get("model")
            if one.get("output_tokens") == 0:
                kind = f"{REFUSAL}_{category}"
        own = usage_of({**one, "iterations": None}, facts)
        further.append(FurtherUsage(kind=kind, model=name_of(one.get("model")), usage=own))
    unknown = [its for one in iterations if (its := one.get("type")) not in _ITERATIONS]
    return Usage(
        input_tokens=sum_of(uncached, cache_read, cache_write),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cache_write_5m_tokens=five_minutes,
        cache_write_1h_tokens=one_hour,
        output_tokens=counts.first("output_tokens"),
        reasoning_tokens=counts.first("output_tokens_details.thinking_tokens"),
        tool_units={
            **counts.units(_UNITS, within="server_tool_use"),
            # Iterations whose place in the bill is not known, by kind.
            **Counter([unit_name(f"{token_of(its) or 'other'}_iterations") for its in unknown]),
        },
        reported_cost_picousd=costs.own,
        reported_upstream_cost_picousd=costs.upstream,
        is_byok=costs.is_byok,
        further=tuple(further),
        remarks=counts.remarks,
    )


def _outside(
    usage: Mapping[str, Any], iterations: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Iterations that the top-level figures leave out: compaction, advisor, a model that gave up.

    The figures are those of the attempt that answered, in all of its turns: the last ones, whose
    sum shows where it begins (`BetaFallbackMessageIterationUsage` of the SDK).
    """
    left = [count_of(usage.get(key)) or 0 for key in _TOP_LEVEL]
    begins = None
    for at in range(len(iterations) - 1, -1, -1):
        if iterations[at].get("type") in _TURNS:
            turn = (count_of(iterations[at].get(key)) or 0 for key in _TOP_LEVEL)
            left = [total - count for total, count in zip(left, turn, strict=True)]
            begins = begins if any(left) else at
    if begins is None:
        return [one for one in iterations if one.get("type") != "message"]
    return [
        one for at, one in enumerate(iterations) if at < begins or one.get("type") not in _TURNS
    ]


MESSAGES = Dialect(
    name="anthropic.messages",
    operation="chat",
    read=read,
    usage_of=usage_of,
    known_keys=KNOWN_KEYS,
    refusal=anthropic_refusal,
    cost_limits=CostLimits(
        output=("max_tokens", "max_tokens_to_sample"),
        answers=(),
        kept=("container",),
        clients_tools=("custom", "bash_", "text_editor_", "computer_", "memory_"),
    ),
    marks=(
        *(Mark(b'"message_'), Mark(b'"usage"'), Mark(b'"error"'), Mark(b'"cost"')),
        Mark(b'"fallback"'),
    ),
    text_marks=(b'"text"', b'"thinking"', b'"partial_json"'),
    call_marks=(Mark(b'"tool_use"'),),
    hidden_marks=(Mark(b'"redacted_thinking"'), Mark(b'"signature_delta"')),
    request_shapes=(
        {"model": shapes.text, "max_tokens": shapes.count, "messages": shapes.messages},
        {"anthropic_version": shapes.text, "messages": shapes.messages},
    ),
    answer_shapes=(
        {"type": shapes.one_of("message"), "role": shapes.text, "usage": dict},
        {"type": shapes.one_of("message_start"), "message.usage": dict},
    ),
)
COMPLETE = replace(
    MESSAGES,
    name="anthropic.complete",
    operation="text_completion",
    read=read_completion,
    marks=(
        Mark(b'"stop_reason"', (b'"stop_reason":null', b'"stop_reason": null')),
        Mark(b'"error"'),
    ),
    text_marks=(b'"completion"',),
    call_marks=(),
    hidden_marks=(),
    request_shapes=(
        {"model": shapes.text, "prompt": shapes.text, "max_tokens_to_sample": shapes.count},
    ),
    answer_shapes=({"type": shapes.one_of("completion"), "stop_reason": shapes.text},),
)
