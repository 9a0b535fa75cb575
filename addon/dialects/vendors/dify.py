"""Pure. Dify applications: chat, completion, workflows.

https://docs.dify.ai/en/use-dify/publish/developing-with-apis

A chat's usage is in `metadata.usage` of the document or of `message_end`, with the price that Dify
computes for it. A workflow reports one total for all of its models, without a split into input and
output: it stays in `usage_json`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from addon.dialects import shapes
from addon.dialects.counts import Counts, lookup, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.openai import usage as openai_usage
from ledger.model.usage import Usage

_NO_SPLIT = Usage(remarks=("total_tokens has no split into input and output",))
"""No figures: a workflow reports one total."""
_DIFY_CONTENT = ("message", "agent_message", "text_chunk", "agent_thought")


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one document or event of a chat or completion."""
    event = body.get("event")
    facts.record_id(body.get("message_id"))
    facts.record_created(body.get("created_at"))
    if event == "error":
        record_error(facts, {**body, "type": None})
    elif event in _DIFY_CONTENT and not facts.is_document:
        facts.token_seen = True
    facts.record_usage(lookup(body, "metadata.usage"), final=True)
    if event == "message_end":
        facts.ended = True


def read_workflow(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one document or event of a workflow."""
    facts.record_id(body.get("workflow_run_id"))
    event = body.get("event")
    if event == "error":
        record_error(facts, {**body, "type": None})
    elif event == "text_chunk":
        facts.token_seen = True
    run = object_at(body, "data")
    if run is None or event not in (None, "workflow_finished"):
        return
    facts.record_created(run.get("created_at"))
    if run.get("total_tokens") is not None:
        facts.record_usage({"total_tokens": run["total_tokens"]}, final=True)
    facts.record_finish(run.get("status"))
    if run.get("error"):
        record_error(facts, run["error"], {})
    facts.ended = True


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures of a chat, with Dify's price where it is in USD."""
    found = openai_usage.usage_of(usage, facts)
    if usage.get("currency") != "USD":
        return found
    cost = Counts(usage).picousd("total_price")
    # For a model without a price in its tables Dify reports 0, which is not a price.
    return structs.replace(found, reported_cost_picousd=cost or None)


CHAT = Dialect(
    name="dify.chat",
    operation="chat",
    read=read,
    usage_of=usage_of,
    known_keys=openai_usage.KNOWN_KEYS
    | {"prompt_unit_price", "prompt_price_unit", "prompt_price", "completion_unit_price"}
    | {"completion_price_unit", "completion_price", "total_price", "currency", "latency"}
    | {"time_to_first_token", "time_to_generate"},
    marks=(Mark(b'"message_end"'), Mark(b'"error"')),
    text_marks=(b'"answer"',),
    request_shapes=(
        {"inputs": dict, "user": shapes.text, "response_mode": shapes.text},
        {"inputs": dict, "user": shapes.text, "query": shapes.text},
    ),
    answer_shapes=(
        {"message_id": shapes.text, "mode": shapes.text, "answer": shapes.anything},
        {"event": shapes.one_of("message", "agent_message", "message_end", "workflow_started")},
    ),
)
WORKFLOW = replace(
    CHAT,
    name="dify.workflow",
    operation="invoke_agent",
    read=read_workflow,
    usage_of=lambda _usage, _facts: _NO_SPLIT,
    known_keys=frozenset({"total_tokens"}),
    marks=(Mark(b'"workflow_finished"'), Mark(b'"error"', (b'"error":null', b'"error": null'))),
    text_marks=(b'"text"',),
    request_shapes=({"inputs": dict, "user": shapes.text, "response_mode": shapes.text},),
    answer_shapes=({"workflow_run_id": shapes.text, "data": dict},),
)
