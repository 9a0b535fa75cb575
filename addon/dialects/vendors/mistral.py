"""Pure. Mistral's conversations and OCR; its chat, completions, embeddings are OpenAI's formats.

https://docs.mistral.ai/agents/conversations/

`connector_tokens` counts the input of built-in connectors, beside `prompt_tokens`: 188 + 55 + 7 112
is the total of 7 355. Mistral bills it as input, so this module adds it to the input.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from addon.dialects import shapes
from addon.dialects.counts import Counts, objects_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.frame_paths import FramePaths, UsagePaths
from addon.dialects.openai import usage as openai_usage
from ledger.model.usage import Usage, sum_of

_CONNECTORS = {
    "connectors.web_search": "web_searches",
    "connectors.web_search_premium": "web_searches",
    "connectors.code_interpreter": "code_executions",
    "connectors.image_generation": "image_generations",
    "connectors.document_library": "document_searches",
}
"""Calls of built-in tools, by the ledger's names; others keep their own."""


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event of a conversation."""
    kind = body.get("type") or event
    for output in objects_at(body, "outputs"):
        facts.record_model(output.get("model"))
    facts.record_model(body.get("model"))
    if facts.is_document:
        # Every answer of a conversation has the conversation's id; an output's own is unique.
        outputs = objects_at(body, "outputs")
        facts.record_id(outputs[-1].get("id") if outputs else body.get("conversation_id"))
        facts.record_usage(body.get("usage"), final=True)
    elif kind == "message.output.delta":
        facts.token_seen = True
        if facts.response_id is None:
            facts.record_id(body.get("id"))
    elif kind == "function.call.delta":
        facts.token_seen = True
    elif kind == "conversation.response.done":
        facts.record_usage(body.get("usage"), final=True)
        facts.ended = True
    elif kind == "conversation.response.error":
        record_error(facts, {**body, "type": None})


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: input includes connector tokens."""
    counts = Counts(usage)
    found = openai_usage.usage_of(usage, facts)
    connectors = counts.units(
        {
            path: _CONNECTORS.get(path, f"{path.partition('.')[2][:48]}_calls")
            for path in counts.paths_within("connectors")
        }
    )
    return replace(
        found,
        input_tokens=sum_of(found.input_tokens, counts.first("connector_tokens")),
        tool_units={**found.tool_units, **connectors},
    )


CONVERSATIONS = Dialect(
    name="mistral.conversations",
    operation="chat",
    read=read,
    usage_of=usage_of,
    known_keys=openai_usage.KNOWN_KEYS | {"connector_tokens", "connectors", "connectors.*"},
    marks=(Mark(b"conversation.response."), Mark(b'"error"')),
    text_marks=(b'"content"', b'"arguments"'),
    request_shapes=(
        {"model": shapes.text, "inputs": shapes.prompt},
        {"agent_id": shapes.text, "inputs": shapes.prompt},
    ),
    answer_shapes=(
        {"conversation_id": shapes.text, "outputs": list, "usage": dict},
        {"type": shapes.beginning("conversation.response.")},
    ),
)
_PAGES = UsagePaths(units={"pages_processed": "document_pages"})
OCR = Dialect(
    name="mistral.ocr",
    operation="ocr",
    read=FramePaths(models=("model",), usages=("usage_info",)).read,
    usage_of=_PAGES.usage_of,
    known_keys=_PAGES.known_keys("doc_size_bytes"),
    marks=(Mark(b'"usage_info"'), Mark(b'"error"')),
    request_shapes=({"model": shapes.text, "document": dict},),
    answer_shapes=({"pages": list, "usage_info": dict},),
)
"""https://docs.mistral.ai/api/endpoint/ocr: billed by page."""
