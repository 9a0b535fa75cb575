"""Pure. A file of batch results: the sums of all its answers, in any mix of formats.

One file has as many answers as the batch had requests, each with a usage object in its own format.
The exchange that fetches the file is one row. Its figures are the sums of all answers of one model
and one class of sizes, so that each request is priced by its own size: of the first answer's in the
columns, of every other beside them (`Usage.further`), each priced separately. `usage_json` holds
these sums, because no single usage object has them. The response id is the first answer's, so that
dedupe recognizes the same file fetched again.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from addon.dialects.counts import Counts
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import Ending, Facts
from addon.dialects.openai import chat, endpoints, responses
from addon.dialects.vendors import anthropic, gemini
from ledger.model.usage import (
    BILLING_FIELDS,
    NO_USAGE,
    SIZE_STEPS,
    TOKENS,
    FurtherUsage,
    Usage,
    billing_fields,
)

BATCH = "batch"
"""The service tier for batches in price lists."""
_SUMS = frozenset({"results", "models", "left_out"})
"""The keys of the sums; every other is a billing field of the answers."""
MODELS_MAX = 64
"""Models and sizes of one file. A batch usually has one model. An answer beyond this bound is left
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
        known_keys=_SUMS | {"models.*", *BILLING_FIELDS},
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
    fields = billing_fields(alone.usage)
    for name in (fields.keys() | sums.keys()) - _SUMS:
        if fields.get(name) != sums.get(name):
            sums[name] = fields.get(name) if sums["results"] == 1 else "mixed"
    usage = dialect.figures(alone.usage, alone)
    model = alone.response_model or ""
    for each, name in ((usage, model), *((one.usage, one.model or model) for one in usage.further)):
        if not _add_to_group(sums["models"], name, each):
            sums["left_out"] = sums.get("left_out", 0) + 1


def _add_to_group(groups: dict[str, dict[str, Any]], model: str, usage: Usage) -> bool:
    """Add to the sums of a model and a class of sizes; False if there are too many."""
    step = max((step for step in SIZE_STEPS if step < (usage.input_tokens or 0)), default=0)
    key = f"{model} above {step}" if step else model
    if key not in groups and len(groups) >= MODELS_MAX:
        return False
    _sum(groups.setdefault(key, {"model": model} if step else {}), usage)
    return True


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
    first, *others = ((sums.get("model", key), sums) for key, sums in models.items())
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
    return replace(
        NO_USAGE,
        **{column: counts.first(column) for column in TOKENS},
        tool_units={**sums.get("units", {}), "batch_results": sums["results"]},
    )
