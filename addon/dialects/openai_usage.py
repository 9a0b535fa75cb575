"""Pure. The usage object of OpenAI and everyone who writes it their own way (WIRE §2, §4).

`prompt_tokens` / `completion_tokens` (chat, completions, embeddings) and `input_tokens` /
`output_tokens` (responses, images, audio) mean the same: all input, cached included, and all
output, reasoning included. Where a provider counts otherwise its own total proves it, and the
arithmetic is here, once.
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects.counts import Counts
from addon.dialects.facts import Facts
from ledger.usage import Usage, sum_of

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
    "cached_tokens",  # Moonshot
)
_CACHE_WRITE = (
    *_inside(_INPUT_DETAILS, "cache_write_tokens"),
    *_inside(_INPUT_DETAILS, "cache_creation_tokens"),
    "cache_creation_input_tokens",
)
_REASONING = (*_inside(_OUTPUT_DETAILS, "reasoning_tokens"), "reasoning_tokens")
TICKS_PER_USD = 10**10
"""xAI `cost_in_usd_ticks`."""


def usage_of(usage: Mapping[str, Any], _facts: Facts) -> Usage:
    counts = Counts(usage)
    prompt = counts.first("prompt_tokens", "input_tokens")
    completion = counts.first("completion_tokens", "output_tokens")
    total = counts.first("total_tokens")
    cache_read = counts.first(*_CACHE_READ)
    reasoning = counts.first(*_REASONING)
    input_audio = counts.first(*_inside(_INPUT_DETAILS, "audio_tokens"))
    if prompt is None and completion is None:
        prompt = total  # embeddings and reranking say only the total (Voyage)
    return Usage(
        input_tokens=_all_input(prompt, completion, total, cache_read, input_audio),
        cache_read_tokens=cache_read,
        cache_write_tokens=counts.first(*_CACHE_WRITE),
        cache_write_5m_tokens=counts.first("cache_creation.ephemeral_5m_input_tokens"),
        cache_write_1h_tokens=counts.first("cache_creation.ephemeral_1h_input_tokens"),
        output_tokens=_all_output(prompt, completion, total, reasoning),
        reasoning_tokens=reasoning,
        input_audio_tokens=input_audio,
        output_audio_tokens=counts.first(*_inside(_OUTPUT_DETAILS, "audio_tokens")),
        tool_units={},
        remarks=tuple(counts.remarks),
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
    return completion + reasoning if total == prompt + completion + reasoning else completion
