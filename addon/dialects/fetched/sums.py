"""Pure. A file of batch results: the sums of all its answers, in any mix of formats.

One file has as many answers as the batch had requests, each with a usage object in its own
format. The exchange that fetches the file is one row. Its figures are the sums of all answers: of
the first answer's model in the columns, of every other model beside them (`Usage.further`), each
priced separately. `usage_json` holds these sums, because no single usage object has them. The
response id is the first answer's, so that dedupe recognizes the same file fetched again.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from addon.dialects.counts import Counts
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import Ending, Facts
from addon.dialects.openai import chat, endpoints, responses
from addon.dialects.vendors import anthropic, gemini
from ledger.model.usage import TOKENS, FurtherUsage, Usage

BATCH = "batch"
"""The service tier for batches in price lists."""
MODELS_MAX = 64
"""Models of one file. A batch usually has one model. An answer of a model beyond this bound is left
out, and the row records it."""


def dialect_of_results(
    name: str, read: Callable[[Facts, str, dict[str, Any]], None], *, mark: bytes
) -> Dialect:
    """The dialect of a file of results. `read` adds the answers of one frame; `mark` is the key
    that a frame with an answer has."""
    return Dialect(
        name=name,
        operation="batch",
        read=read,
        usage_of=usage_of,
        known_keys=frozenset({"results", "models", "models.*", "left_out"}),
        marks=(Mark(mark),),
        ending=Ending.CLOSE,
    )


def add(facts: Facts, answer: dict[str, Any]) -> None:
    """Add one answer of a batch to the sums of the file."""
    dialect = _dialect_of(answer)
    alone = Facts(is_document=True, provider=facts.provider)
    dialect.read(alone, "", answer)
    if alone.usage is None:
        return
    if facts.usage is None:
        facts.record_id(alone.response_id)
        facts.record_model(alone.response_model)
        facts.record_created(alone.created)
        facts.record_tier(BATCH)
        facts.record_usage({"results": 0, "models": {}}, final=True)
    sums = facts.usage
    assert sums is not None
    sums["results"] += 1
    models: dict[str, dict[str, Any]] = sums["models"]
    model = alone.response_model or ""
    if model not in models and len(models) >= MODELS_MAX:
        sums["left_out"] = sums.get("left_out", 0) + 1
        return
    _sum(models.setdefault(model, {}), dialect.usage_of(alone.usage, alone))


def _sum(sums: dict[str, Any], usage: Usage) -> None:
    sums["results"] = sums.get("results", 0) + 1
    for column in TOKENS:
        count = getattr(usage, column)
        if count is not None:
            sums[column] = sums.get(column, 0) + count
    if usage.tool_units:
        units = sums.setdefault("units", {})
        for unit, count in usage.tool_units.items():
            units[unit] = units.get(unit, 0) + count


def _dialect_of(answer: dict[str, Any]) -> Dialect:
    if "usageMetadata" in answer or "candidates" in answer:
        return gemini.GENERATE_CONTENT
    if answer.get("type") == "message":
        return anthropic.MESSAGES
    if answer.get("object") == "response":
        return responses.RESPONSES
    return chat.CHAT if "choices" in answer else endpoints.EMBEDDINGS


def usage_of(usage: Mapping[str, Any], _facts: Facts) -> Usage:
    """The sums: the first answer's model in the columns, the others beside them."""
    models: dict[str, dict[str, Any]] = usage["models"]
    first, *others = models.items()
    remarks = (f"{usage['left_out']} answers left out",) if "left_out" in usage else ()
    return replace(
        _usage(first[1]),
        further=tuple(
            FurtherUsage(kind=BATCH, model=model or None, usage=_usage(sums))
            for model, sums in others
        ),
        remarks=remarks,
    )


def _usage(sums: dict[str, Any]) -> Usage:
    counts = Counts(sums)
    return Usage(
        input_tokens=counts.first("input_tokens"),
        cache_read_tokens=counts.first("cache_read_tokens"),
        cache_write_tokens=counts.first("cache_write_tokens"),
        cache_write_5m_tokens=counts.first("cache_write_5m_tokens"),
        cache_write_1h_tokens=counts.first("cache_write_1h_tokens"),
        output_tokens=counts.first("output_tokens"),
        reasoning_tokens=counts.first("reasoning_tokens"),
        input_audio_tokens=counts.first("input_audio_tokens"),
        output_audio_tokens=counts.first("output_audio_tokens"),
        tool_units={**sums.get("units", {}), "batch_results": sums["results"]},
    )
