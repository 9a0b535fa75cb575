"""Pure. Results that clients fetch after the request that ordered them: one answer at a time, and
the files and documents of batches.

https://docs.x.ai/docs/guides/deferred-chat-completions
https://docs.perplexity.ai/api-reference/async-chat-completions-api-request-get
https://platform.openai.com/docs/guides/batch (Mistral's, Groq's and Gemini's files have its lines)
https://docs.claude.com/en/docs/build-with-claude/batch-processing
https://ai.google.dev/gemini-api/docs/batch-api
https://docs.mistral.ai/api/endpoint/batch (`BatchJobOut.outputs`)
https://docs.x.ai/developers/advanced-api-usage/batch-api
https://docs.z.ai/api-reference/llm/async-result
https://www.volcengine.com/docs/82379/1521309 (videos, billed by tokens)
https://github.com/ggml-org/llama.cpp/pull/23226 (streams that are taken up again)

A client may fetch a result many times and before it is ready. An answer without usage makes no row.
The same result fetched again has the same id and figures, so it is the same billed response.
Where the request that ordered it has a row without final figures, they become a further reading of
this row (`ledger/store/writing/batches.py`).

One file has as many answers as the batch had requests, each with a usage object in its own format.
The exchange that fetches the file is one row. Its figures are the sums of all answers of one model
and one class of sizes, so that each request is priced by its own size: of the first answer's in the
columns, of every other beside them (`Usage.further`), each priced separately. `usage_json` holds
these sums, because no single usage object has them. The response id is the first answer's, so that
dedupe recognizes the same file fetched again.
"""

from collections.abc import Mapping
from dataclasses import replace as variant
from typing import Any

from msgspec.structs import replace

from addon.dialects.counts import Counts, lookup, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts, token_of
from addon.dialects.openai import chat, endpoints, responses
from addon.dialects.vendors import anthropic, gemini
from ledger.model.usage import (
    BILLING_FIELDS,
    NO_USAGE,
    REFUSAL,
    REFUSED,
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
GROUPS_MAX = 64
"""Models and sizes of one file. A batch usually has one model. An answer beyond this bound is left
out, and the row records it."""


def _results(
    name: str, mark: bytes, answers: tuple[str, ...], *,
    items: str = "", named: tuple[str, ...] = (), has_several: bool = False,
) -> Dialect:  # fmt: skip
    """The dialect of a file or a document of results. `mark` is the key that a frame with results
    has, `items` the path of their list; without it a frame is one. A result has one of the keys
    `named`, if there are any, and its answer at the first of `answers`, or several answers in an
    object there."""

    def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
        results = lookup(body, items) if items else [body]
        for result in results if isinstance(results, list) else ():
            if isinstance(result, dict) and not (named and result.keys().isdisjoint(named)):
                found = (lookup(result, path) for path in answers)
                answer = next((one for one in found if one and isinstance(one, dict)), {})
                for one in answer.values() if has_several else (answer,):
                    if isinstance(one, dict):
                        _add(facts, one)

    return Dialect(
        name=name,
        operation="batch",
        read=read,
        usage_of=usage_of,
        known_keys=_SUMS | {"models.*", *BILLING_FIELDS},
        marks=(Mark(mark),),
        ending=Ending.CLOSE,
    )


def _add(facts: Facts, answer: dict[str, Any]) -> None:
    """Add one answer of a batch to the sums of the file."""
    dialect = chat.CHAT if "choices" in answer else endpoints.EMBEDDINGS
    if "usageMetadata" in answer or "candidates" in answer:
        dialect = gemini.GENERATE_CONTENT
    elif answer.get("type") == "message":
        dialect = anthropic.MESSAGES
    elif answer.get("object") == "response":
        dialect = responses.RESPONSES
    alone = Facts(is_document=True, of=facts.of)
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
    usage = dialect.figures(alone)
    model = token_of(alone.response_model) or ""
    refusal = alone.rare.beside.get(REFUSED, "") if usage.output_tokens == 0 else ""
    _add_to_group(sums, model, usage, refusal)
    for one in usage.further:
        refusal = one.kind.partition(f"{REFUSAL}_")[2]
        _add_to_group(sums, token_of(one.model) or model, one.usage, refusal)
    # The columns have the first group that was answered, if any was.
    facts.rare.beside.pop(REFUSED, None)
    if category := _groups(sums)[0][1].get(REFUSAL):
        facts.rare.beside[REFUSED] = category


def _add_to_group(sums: dict[str, Any], model: str, usage: Usage, refusal: str) -> None:
    """Add to the sums of a model, a class of sizes and a category of refusals."""
    groups: dict[str, dict[str, Any]] = sums["models"]
    step = max((step for step in SIZE_STEPS if step < (usage.input_tokens or 0)), default=0)
    key = model + (f":above:{step}" if step else "") + (f":refused:{refusal}" if refusal else "")
    if key not in groups and len(groups) >= GROUPS_MAX:
        sums["left_out"] = sums.get("left_out", 0) + 1
        return
    group = groups.setdefault(key, {} if key == model else {"model": model})
    if refusal:
        group[REFUSAL] = refusal
    group["results"] = group.get("results", 0) + 1
    for column in TOKENS:
        count = getattr(usage, column)
        if count is not None:
            group[column] = group.get(column, 0) + count
    if usage.tool_units:
        units = group.setdefault("units", {})
        for unit, count in usage.tool_units.items():
            units[unit] = units.get(unit, 0) + count


def _groups(usage: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Model and sums of each group, those that were answered first."""
    groups = ((sums.get("model", key), sums) for key, sums in usage["models"].items())
    return sorted(groups, key=lambda group: REFUSAL in group[1])


def usage_of(usage: Mapping[str, Any], _facts: Facts) -> Usage:
    """The sums: the first answer's model in the columns, the others beside them."""
    first, *others = _groups(usage)
    remarks = (f"{usage['left_out']} answers left out",) if "left_out" in usage else ()
    return replace(
        _usage(first[1]),
        further=tuple(
            FurtherUsage(
                kind=f"{REFUSAL}_{sums[REFUSAL]}" if REFUSAL in sums else BATCH,
                model=model or None,
                usage=_usage(sums),
            )
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


def read_perplexity(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one answer of Perplexity in `response`, beside the state of the order."""
    answer = object_at(body, "response")
    if answer is not None:
        chat.read(facts, event, answer)
    if body.get("error_message"):
        record_error(facts, str(body["error_message"]))


XAI_DEFERRED = variant(chat.CHAT, name="xai.deferred")
PERPLEXITY_ASYNC = variant(chat.CHAT, name="perplexity.async", read=read_perplexity)
VOLCENGINE_TASK = variant(
    endpoints.EMBEDDINGS, name="volcengine.task", operation="video_generation", request_shapes=()
)
# OpenAI's answer is in `response.body`, Gemini's in `response`.
_LINE: dict[str, Any] = {"answers": ("response.body", "response"), "named": ("custom_id", "key")}
OPENAI_FILE = _results("openai.batch_output", b'"response"', **_LINE)
MISTRAL_JOB = _results("mistral.batch_job", b'"outputs"', items="outputs", **_LINE)
ANTHROPIC_FILE = _results(
    "anthropic.batch_results", b'"result"', ("result.message",), named=("custom_id",)
)
GEMINI_OPERATION = _results(
    "gemini.batch", b'"response"', ("response",), items="response.inlinedResponses.inlinedResponses"
)
# xAI names what was asked for above its answer.
_XAI = ("batch_result.response",)
XAI_PAGE = _results("xai.batch_results", b'"results"', _XAI, items="results", has_several=True)
