"""Pure. The usage object of OpenAI and everyone who writes it their own way (WIRE §2, §4).

`prompt_tokens` / `completion_tokens` (chat, completions, embeddings) and `input_tokens` /
`output_tokens` (responses, images, audio) mean the same: all input, cached included, and all
output, reasoning included. Where a provider counts otherwise its own total proves it, and the
arithmetic is here, once.
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects.costs import costs_of
from addon.dialects.counts import Counts, object_at
from addon.dialects.facts import Facts
from ledger.model.usage import Usage, sum_of

_INPUT_DETAILS = (
    "prompt_tokens_details",
    "prompt_token_details",
    "input_tokens_details",
    "input_token_details",
)
_OUTPUT_DETAILS = (
    "completion_tokens_details",
    "completion_token_details",
    "output_tokens_details",
    "output_token_details",
)


def _inside(details: tuple[str, ...], key: str) -> tuple[str, ...]:
    return tuple(f"{detail}.{key}" for detail in details)


_CACHE_READ = (
    *_inside(_INPUT_DETAILS, "cached_tokens"),
    "prompt_cache_hit_tokens",  # DeepSeek, beside the same figure in the details
    "cache_read_input_tokens",  # Databricks
    "num_cached_tokens",  # Mistral
    "cached_tokens",  # Moonshot, Together
)
_CACHE_WRITE = (
    *_inside(_INPUT_DETAILS, "cache_write_tokens"),
    *_inside(_INPUT_DETAILS, "cache_creation_tokens"),
    "cache_creation_input_tokens",
)
_REASONING = (*_inside(_OUTPUT_DETAILS, "reasoning_tokens"), "reasoning_tokens")
_INPUT_AUDIO = _inside(_INPUT_DETAILS, "audio_tokens")
_OUTPUT_AUDIO = _inside(_OUTPUT_DETAILS, "audio_tokens")
_UNITS = {
    **dict.fromkeys(_inside(_INPUT_DETAILS, "image_tokens"), "input_image_tokens"),
    **dict.fromkeys(_inside(_INPUT_DETAILS, "video_tokens"), "input_video_tokens"),
    **dict.fromkeys(_inside(_OUTPUT_DETAILS, "image_tokens"), "output_image_tokens"),
    "cache_creation.ephemeral_24h_input_tokens": "cache_write_24h_tokens",  # doubleword
    "citation_tokens": "citation_tokens",  # Perplexity
    "num_search_queries": "web_searches",
    "num_sources_used": "sources",  # xAI
    "num_server_side_tools_used": "server_tool_calls",
    "server_side_tool_usage_details.web_search_calls": "web_searches",
    "server_side_tool_usage_details.x_search_calls": "x_searches",
    "server_side_tool_usage_details.code_interpreter_calls": "code_executions",
    "server_side_tool_usage_details.file_search_calls": "file_searches",
    "server_side_tool_usage_details.document_search_calls": "document_searches",
    "server_side_tool_usage_details.mcp_calls": "mcp_calls",
    "server_side_tool_usage_details.image_generation_calls": "image_generations",
    "server_tool_use.web_search_requests": "web_searches",  # OpenRouter, two spellings
    "server_tool_use.tool_calls_executed": "server_tool_calls",
    "server_tool_use_details.web_search_requests": "web_searches",
    "server_tool_use_details.tool_calls_executed": "server_tool_calls",
}
_DETAILS_KEYS = (
    "cached_tokens",
    "cached_tokens_details",
    "cache_write_tokens",
    "cache_creation_tokens",
    "reasoning_tokens",
    "text_tokens",
    "audio_tokens",
    "image_tokens",
    "video_tokens",
    "multimodal_tokens",
    "accepted_prediction_tokens",
    "rejected_prediction_tokens",
)
_CACHE_LIFETIMES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
KNOWN_KEYS = frozenset(
    {"prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens"}
    | {path.partition(".")[0] for path in (*_CACHE_READ, *_CACHE_WRITE, *_REASONING)}
    | {path for key in _DETAILS_KEYS for path in _inside(_INPUT_DETAILS + _OUTPUT_DETAILS, key)}
    | {*_UNITS, *(path.partition(".")[0] for path in _UNITS)}
    | {f"cache_creation.{lifetime}" for lifetime in _CACHE_LIFETIMES}
    | {"server_tool_use.*", "server_tool_use_details.*", "server_side_tool_usage_details.*"}
    | {"prompt_cache_miss_tokens", "prompt_audio_seconds", "seconds", "type", "audio_prompt_tokens"}
    | {"cost", "cost.*", "cost_details", "cost_details.*", "is_byok", "estimated_cost"}
    | {"market_cost", "cost_in_usd_ticks", "pydantic_ai_gateway", "pydantic_ai_gateway.*"}
    # Speeds, times and labels, which a ledger has no column for.
    | {"queue_time", "prompt_time", "completion_time", "total_time"}
    | {"latency_checkpoint", "latency_checkpoint.*", "context_details", "context_details.*"}
    | {"total_time_sec", "total_prompt_time_sec", "total_completion_time_sec"}
    | {"avg_tok_per_sec", "avg_prompt_tok_per_sec", "avg_compl_tok_per_sec"}
    | {"tokens_per_second", "prompt_tokens_per_second"}
    | {"time_to_first_token_ms", "time_per_output_token_ms"}
    | {"draft_tokens", "draft_tokens_acceptance", "service_tier", "search_context_size"}
    | {"request_count", "speed"}
)


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    counts = Counts(usage)
    prompt = counts.first("prompt_tokens", "input_tokens")
    completion = counts.first("completion_tokens", "output_tokens")
    total = counts.first("total_tokens")
    cache_read = counts.first(*_CACHE_READ)
    reasoning = counts.first(*_REASONING)
    input_audio = counts.first(*_INPUT_AUDIO)
    if prompt is None and completion is None:
        prompt = total  # embeddings and reranking say only the total (Voyage)
    units = {**facts.units, **counts.units(_UNITS, within="server_side_tool_usage_details")}
    milliseconds = counts.milliseconds("seconds", "prompt_audio_seconds")
    if milliseconds:
        units["audio_milliseconds"] = milliseconds
    costs = costs_of(usage, counts, facts)
    return Usage(
        input_tokens=_all_input(prompt, completion, total, cache_read, input_audio),
        cache_read_tokens=cache_read,
        cache_write_tokens=counts.first(*_CACHE_WRITE),
        cache_write_5m_tokens=counts.first("cache_creation.ephemeral_5m_input_tokens"),
        cache_write_1h_tokens=counts.first("cache_creation.ephemeral_1h_input_tokens"),
        output_tokens=_all_output(prompt, completion, total, reasoning),
        reasoning_tokens=reasoning,
        input_audio_tokens=input_audio,
        output_audio_tokens=counts.first(*_OUTPUT_AUDIO),
        tool_units=units,
        reported_cost_picousd=costs.own,
        reported_upstream_cost_picousd=costs.upstream,
        is_byok=costs.is_byok,
        remarks=tuple(counts.remarks),
    )


def units_beside(body: Mapping[str, Any]) -> dict[str, int]:
    """What Copilot bills in: billionths of its AI unit, beside the usage object."""
    return Counts(object_at(body, "copilot_usage") or {}).units(
        {"total_nano_aiu": "copilot_nano_aiu"}
    )


def _all_input(
    prompt: int | None,
    completion: int | None,
    total: int | None,
    cache_read: int | None,
    audio: int | None,
) -> int | None:
    """Prompt tokens, with what the provider counts beside them."""
    if prompt is None:
        return None
    if cache_read is not None and cache_read > prompt:
        # Azure AI Foundry's grok: `prompt_tokens: 7, cached_tokens: 163` (WIRE §4).
        return sum_of(prompt, cache_read)
    if audio and total is not None and total == prompt + (completion or 0) + audio:
        return sum_of(prompt, audio)  # Mistral: 3 + 375 audio + 11 = 389
    return prompt


def _all_output(
    prompt: int | None, completion: int | None, total: int | None, reasoning: int | None
) -> int | None:
    """Completion tokens, with the reasoning that xAI's chat counts beside them."""
    if completion is None or not reasoning or total is None or prompt is None:
        return completion
    if total == prompt + completion + reasoning:
        return sum_of(completion, reasoning)  # xAI: 213 + 2 + 198 = 413
    return completion
