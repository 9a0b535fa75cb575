"""Pure. The usage object of OpenAI, and the variants of compatible providers.

`prompt_tokens` / `completion_tokens` (chat, completions, embeddings) and `input_tokens` /
`output_tokens` (responses, images, audio) mean the same: all input, cached included, and all
output, reasoning included. If a provider counts differently, its own total proves it. The
arithmetic for these is here:

xAI chat        completion leaves reasoning out: 213 + 2 + 198 reasoning = 413
                (https://docs.x.ai/docs/guides/reasoning)
Mistral audio   prompt leaves the audio out: 3 + 375 audio + 11 = 389, or, without a detail,
                4 + 1 073 and a total of 5 202, of which 4 129 is input
                (https://docs.mistral.ai/capabilities/audio_transcription)
Gemini          at its OpenAI-compatible endpoint, and behind gateways that pass it on, says
                thoughts in the total alone: 7 + 12 and a total of 402, of which 395 is output
                (MartialBE/one-hub#795). Thoughts are billed as output
                (https://ai.google.dev/gemini-api/docs/openai, …/docs/thinking#pricing)
GigaChat        prompt leaves cached tokens out, which are not billed: 1 + 4 and 37 precached with
                a total of 5 (https://developers.sber.ru/docs/ru/gigachat/guides/counting-tokens);
                its v2 does so too, with the names of Responses
Azure grok      prompt leaves cached tokens out if they are more than it
llama.cpp       unasked, the finish chunk has `timings` alone; `prompt_n` leaves out the `cache_n`
                from the cache (https://github.com/ggml-org/llama.cpp, tools/server/README.md)

If the total replaces a part, a remark records it. A total that none of these rules explains is
`dialect.explained`'s.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from addon.dialects.counts import Counts, object_at, objects_at
from addon.dialects.facts import Facts, name_of
from ledger.model.usage import FurtherUsage, Usage, count_of, sum_of

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
    *_inside(_INPUT_DETAILS, "cached_read_tokens"),  # Bifrost (maximhq/bifrost#1872)
    *_inside(_INPUT_DETAILS, "cached_tokens"),
    *_inside(_INPUT_DETAILS, "cache_read_input_tokens"),  # Perplexity's Responses
    "prompt_cache_hit_tokens",  # DeepSeek, beside the same figure in the details
    "cache_read_input_tokens",  # Databricks
    "num_cached_tokens",  # Mistral
    "cached_tokens",  # Moonshot, Together
    "cached_input_tokens",  # Inception
    "timings.cache_n",
    "precached_prompt_tokens",  # GigaChat
    "cache_read_tokens",  # llmshim, beside the same figure in the details
)
_CACHE_WRITE = (
    *_inside(_INPUT_DETAILS, "cache_write_tokens"),
    *_inside(_INPUT_DETAILS, "cache_creation_tokens"),
    # DashScope: https://www.alibabacloud.com/help/en/model-studio/context-cache
    *_inside(_INPUT_DETAILS, "cache_creation_input_tokens"),
    "x_details.0.prompt_tokens_details.cache_creation_input_tokens",
    "cache_creation_input_tokens",
    *_inside(_INPUT_DETAILS, "created_cache_tokens"),  # vLLM
    *_inside(_INPUT_DETAILS, "cached_write_tokens"),  # Bifrost
    "cache_write_tokens",  # llmshim
    "cache_creation_tokens",
)
_REASONING = (*_inside(_OUTPUT_DETAILS, "reasoning_tokens"), "reasoning_tokens")
_WRITES_12H = _inside(_INPUT_DETAILS, "cache_write_tokens_details.ttl_12h_tokens")
_WRITTEN_BESIDE = "cache_write_tokens"
"""Among the units beside a usage object: they are a column."""
_COMPLETION = "completion_tokens"
_REASONING_BESIDE = ("vercel", "perplexity")
"""Providers that bill reasoning beside their `completion_tokens`, although their totals leave it
out: Vercel's cost is the price of both (18 of 18 recordings), and Perplexity bills each
(https://docs.perplexity.ai/getting-started/pricing)."""
_UNITS = {
    **dict.fromkeys(_WRITES_12H, "cache_write_12h_tokens"),
    **dict.fromkeys(_inside(_INPUT_DETAILS, "image_tokens"), "input_image_tokens"),
    **dict.fromkeys(_inside(_INPUT_DETAILS, "video_tokens"), "input_video_tokens"),
    **dict.fromkeys(_inside(_OUTPUT_DETAILS, "image_tokens"), "output_image_tokens"),
    # Realtime: cached sound and images have prices of their own.
    **dict.fromkeys(
        _inside(_INPUT_DETAILS, "cached_tokens_details.audio_tokens"), "cache_read_audio_tokens"
    ),
    **dict.fromkeys(
        _inside(_INPUT_DETAILS, "cached_tokens_details.image_tokens"), "cache_read_image_tokens"
    ),
    "cached_tokens_details.cached_image_tokens": "cache_read_image_tokens",  # OpenAI's image tool
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
PICOUSD_PER_TICK = 100
"""xAI's `cost_in_usd_ticks`: 10^10 ticks make a USD
(https://docs.x.ai/docs/guides/usage-and-cost; grok-4.3 at 71 x 1.25 + 128 x 0.20 + 160 x 2.50
USD per million tokens is 5 143 500 ticks)."""
_COST_HEADER = "x-litellm-response-cost"
"""LiteLLM's proxy (https://docs.litellm.ai/docs/proxy/response_headers)."""
_COST_KEYS = frozenset(
    {"cost", "estimated_cost", "cost_usd_total", "cost_in_usd_ticks", "cost_details", "is_byok"}
)
"""Of a usage object with costs."""
_CACHE_LIFETIMES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_CACHE_WRITE_5M, _CACHE_WRITE_1H = (
    (
        f"cache_creation.{lifetime}",
        *_inside(_INPUT_DETAILS, f"cache_creation.{lifetime}"),
        f"x_details.0.prompt_tokens_details.cache_creation.{lifetime}",
    )
    for lifetime in _CACHE_LIFETIMES
)
_PATHS = {
    "input_tokens": ("prompt_tokens", "input_tokens", "timings.prompt_n"),
    "output_tokens": ("completion_tokens", "output_tokens", "timings.predicted_n"),
    "total": ("total_tokens",),
    "cache_read_tokens": _CACHE_READ,
    "reasoning_tokens": _REASONING,
    "input_audio_tokens": _inside(_INPUT_DETAILS, "audio_tokens"),
    "cache_write_tokens": _CACHE_WRITE,
    "cache_write_5m_tokens": _CACHE_WRITE_5M,
    "cache_write_1h_tokens": _CACHE_WRITE_1H,
    "output_audio_tokens": _inside(_OUTPUT_DETAILS, "audio_tokens"),
}
"""Column, or the total -> where it is reported."""
_READ = {path for paths in (*_PATHS.values(), _UNITS) for path in paths}
_DETAILS = _INPUT_DETAILS + _OUTPUT_DETAILS
_IN_DETAILS = {
    *(path.split(".")[1] for path in _READ if path.startswith(_DETAILS)),
    *("text_tokens", "multimodal_tokens", "cache_type", "grok_tokens"),
    *("accepted_prediction_tokens", "rejected_prediction_tokens"),
}
KNOWN_KEYS = frozenset(
    {path.partition(".")[0] for path in _READ}
    | {path for key in _IN_DETAILS for path in _inside(_DETAILS, key)}
    | _UNITS.keys()
    | {f"cache_creation.{lifetime}" for lifetime in _CACHE_LIFETIMES}
    | {"server_tool_use.*", "server_tool_use_details.*", "server_side_tool_usage_details.*"}
    | {"prompt_cache_miss_tokens", "cached_tokens_details.cached_text_tokens"}
    | {"timings.prompt_n", "timings.cache_n", "timings.predicted_n"}
    | {"prompt_audio_seconds", "seconds", "active_seconds", "paused_seconds"}
    | {"type", "audio_prompt_tokens"}
    | {"cost", "cost.*", "cost_details", "cost_details.*", "is_byok", "estimated_cost"}
    | {f"cost_usd_{part}" for part in ("total", "input", "output", "cached_input", "request")}
    | {
        *("cost_usd_data_storage", "market_cost", "cost_in_usd_ticks", "pydantic_ai_gateway"),
        "pydantic_ai_gateway.*",
    }
    # Speeds, times and labels, which a ledger has no column for.
    | {"queue_time", "prompt_time", "completion_time", "total_time"}
    | {"latency_checkpoint", "latency_checkpoint.*", "context_details", "context_details.*"}
    | {"total_time_sec", "total_prompt_time_sec", "total_completion_time_sec"}
    | {"avg_tok_per_sec", "avg_prompt_tok_per_sec", "avg_compl_tok_per_sec"}
    | {"tokens_per_second", "prompt_tokens_per_second"}
    | {"time_to_first_token_ms", "time_per_output_token_ms"}
    | {"draft_tokens", "draft_tokens_acceptance", "service_tier", "search_context_size"}
    | {"request_count", "speed", "x_details", "x_details.*", "model_usage", "model_usage.*"}
    | {"action_usage", "action_usage.*", "name"}
    | {"text_pixels", "image_pixels", "video_pixels", "text_tokens"}  # Voyage multimodal
)


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures in the ledger's convention, by the arithmetic above."""
    if "model_usage" in usage and (models := objects_at(usage, "model_usage")):
        # A bot that ran several models: the first in the columns, the others beside it.
        further = (
            FurtherUsage(kind="bot", model=name_of(one.get("name")), usage=usage_of(one, facts))
            for one in models[1:]
        )
        return replace(usage_of(models[0], facts), further=tuple(further))
    if "x_details" in usage and (details := objects_at(usage, "x_details")):
        usage = {**usage, "x_details.0": details[0]}  # DashScope Responses
    counts = Counts(usage)
    columns: dict[str, Any] = counts.firsts(_PATHS)
    total = columns.pop("total")
    if not counts.has(*_PATHS["input_tokens"], *_PATHS["output_tokens"]):
        columns["input_tokens"] = total  # embeddings, reranking report only the total (Voyage)
    prompt, completion = columns["input_tokens"], columns["output_tokens"]
    reasoning = columns["reasoning_tokens"]
    total_input = _all_input(columns, total, counts, facts)
    total_output = completion
    remarks: tuple[str, ...] = ()
    if completion is not None and total is not None and prompt is not None:
        total_input, total_output, remarks = _by_total(total, total_input, columns, facts)
    units = {**facts.rare.units, **counts.units(_UNITS, within="server_side_tool_usage_details")}
    if facts.of.provider in _REASONING_BESIDE and reasoning and counts.has(_COMPLETION):
        billed = sum_of(completion, reasoning)
        if billed is not None:
            units["billed_output_tokens"] = billed
    milliseconds = counts.milliseconds("seconds", "prompt_audio_seconds")
    # A Live session: the paused time is part of the total, and has a price of its own.
    paused = counts.milliseconds("paused_seconds")
    if paused and milliseconds:
        units["paused_milliseconds"] = min(paused, milliseconds)
        milliseconds = max(milliseconds - paused, 0)
    if milliseconds:
        units["audio_milliseconds"] = milliseconds
    costs = costs_of(usage, counts, facts)
    written, written_beside = columns["cache_write_tokens"], units.pop(_WRITTEN_BESIDE, None)
    columns |= {
        "input_tokens": total_input,
        "cache_write_tokens": written_beside if written is None else written,
        "output_tokens": total_output,
    }
    return Usage(
        **columns,
        tool_units=units,
        reported_cost_picousd=costs.own,
        reported_upstream_cost_picousd=costs.upstream,
        is_byok=costs.is_byok,
        remarks=(*counts.remarks, *remarks),
    )


def _by_total(
    total: int, total_input: int | None, columns: Mapping[str, Any], facts: Facts
) -> tuple[int | None, int | None, tuple[str, ...]]:
    """All input, all output, and a remark where the total has more than the parts: reasoning or
    cached tokens are counted beside them."""
    prompt, completion = columns["input_tokens"], columns["output_tokens"]
    reasoning, total_output = columns["reasoning_tokens"], completion
    if reasoning:
        if total == prompt + completion + reasoning:
            total_output = sum_of(completion, reasoning)  # xAI: 213 + 2 + 198 = 413
    elif facts.of.provider in ("gcp.gemini", "gcp.vertex_ai") or (
        "gemini-" in (facts.response_model or "")
    ):
        total_output = max(completion, total - prompt)
    if total == prompt + completion:
        return total_input, total_output, ()
    # The reasoning alone, or what `_all_input` added, explains it.
    is_right = total_output != completion or sum_of(total_input, total_output) == total
    beside = sum_of(columns["cache_read_tokens"], columns["cache_write_tokens"])
    left_out = reasoning or 0
    if not is_right and beside and total == prompt + beside + completion + left_out:
        # Reasoning and cached tokens both beside: 40 + 60 cached + 5 + 20 and 125.
        total_input, total_output = prompt + beside, completion + left_out
    elif not is_right and beside and total > prompt + completion:
        # Portkey before Anthropic: 100 + 50 beside 800 cached and a total of 1 050.
        total_input = total - completion
    elif not is_right:
        return total_input, total_output, ()
    kept = "the total is right, and the rest of it is in the columns"
    return (
        total_input,
        total_output,
        (f"total_tokens {total} is not {prompt} + {completion}: {kept}",),
    )


class Costs(Struct, frozen=True, kw_only=True):
    """What a provider says it charges, in pico-USD. None: it does not say."""

    own: int | None = None
    upstream: int | None = None
    """Billed separately by the upstream, and only under BYOK."""
    is_byok: bool | None = None


_NO_COSTS = Costs()


def costs_of(usage: Mapping[str, Any], counts: Counts, facts: Facts) -> Costs:
    """`usage.cost` is a number (OpenRouter, Avian, Vercel) or an object: `{total_cost}`
    (Perplexity), `{usd}` (Charm Hyper, which bills in credits beside it). A cost beside the usage
    is an object (Venice) or a text (OpenCode Zen, in an event of its own)."""
    routed = facts.of.headers.get(_COST_HEADER, "")
    if facts.rare.cost is None and not routed and usage.keys().isdisjoint(_COST_KEYS):
        return _NO_COSTS
    if isinstance(usage.get("cost"), dict):
        own = counts.picousd("cost.total_cost", "cost.usd")
    else:
        # DeepInfra says `estimated_cost`, LLM Gateway `cost_usd_total`.
        own = counts.picousd("cost", "estimated_cost", "cost_usd_total")
    if own is None:
        ticks = counts.first("cost_in_usd_ticks")
        own = ticks * PICOUSD_PER_TICK if ticks is not None else None
    if own is None and facts.rare.cost is not None:
        beside = facts.rare.cost if isinstance(facts.rare.cost, dict) else {"usd": facts.rare.cost}
        own = Counts(beside).picousd("usd")
    if own is None:
        # LiteLLM writes 0 where it knows no price.
        own = Counts({"usd": routed or None}).picousd("usd") or None
    is_byok = usage.get("is_byok")
    return Costs(
        own=own,
        upstream=counts.picousd("cost_details.upstream_inference_cost"),
        is_byok=is_byok if isinstance(is_byok, bool) else None,
    )


def counts_in_timings(timings: object) -> dict[str, Any] | None:
    """llama.cpp's figures of an answer that was not asked for usage; None if it has none."""
    names = ("prompt_n", "cache_n", "predicted_n")
    counts = (
        {name: timings[name] for name in names if name in timings}
        if isinstance(timings, dict)
        else {}
    )
    return {"timings": counts} if "predicted_n" in counts else None


def units_beside(body: Mapping[str, Any]) -> dict[str, int]:
    """Copilot's billing unit beside the usage object, billionths of its AI unit; and its cache
    writes, which the usage object leaves out (openclaw/openclaw#100097)."""
    copilot = object_at(body, "copilot_usage") or {}
    written = sum_of(
        *(
            count_of(one.get("token_count"))
            for one in objects_at(copilot, "token_details")
            if one.get("token_type") == "cache_write"
        )
    )
    units = Counts(copilot).units({"total_nano_aiu": "copilot_nano_aiu"})
    return units | {_WRITTEN_BESIDE: written} if written else units


def _all_input(
    columns: Mapping[str, int | None], total: int | None, counts: Counts, facts: Facts
) -> int | None:
    """Prompt tokens, with what the provider counts beside them."""
    prompt, completion = columns["input_tokens"], columns["output_tokens"] or 0
    cached, audio = columns["cache_read_tokens"], columns["input_audio_tokens"]
    if prompt is None:
        return None
    if counts.has("timings.prompt_n"):
        return sum_of(prompt, cached)
    if counts.has("precached_prompt_tokens") or facts.of.provider == "gigachat":
        return sum_of(prompt, cached)
    if cached is not None and cached > prompt:
        return sum_of(prompt, cached)  # Azure AI Foundry's grok: `prompt_tokens: 7`, 163 cached
    if total is not None and audio and total == prompt + completion + audio:
        return sum_of(prompt, audio)  # Mistral: 3 + 375 audio + 11 = 389
    if total is not None and not audio and counts.has("prompt_audio_seconds"):
        return max(prompt, total - completion)  # Mistral: 5 202 - 1 073 = 4 129
    return prompt
