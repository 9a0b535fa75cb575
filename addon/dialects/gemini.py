"""Pure. Gemini `generateContent` and `streamGenerateContent`, Google AI and Vertex.

https://ai.google.dev/api/generate-content#UsageMetadata
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects import json_door
from addon.dialects.counts import Counts, object_at, objects_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import Facts
from addon.framing.frame import Frame
from ledger.usage import Usage, sum_of


def read(facts: Facts, frame: Frame) -> None:
    body = json_door.loads(frame.data)
    if body is None:
        return
    facts.see_id(body.get("responseId"))
    facts.see_model(body.get("modelVersion"))
    if body.get("error"):
        facts.see_error(body["error"])
    for candidate in objects_at(body, "candidates"):
        facts.see_finish(candidate.get("finishReason"))
        if object_at(candidate, "content"):
            facts.token_seen = True
    usage = object_at(body, "usageMetadata")
    if usage is not None:
        facts.usage = usage
    facts.ended = facts.usage_final = facts.finish_reason is not None


def usage_of(usage: Mapping[str, Any], _facts: Facts) -> Usage:
    counts = Counts(usage)
    thoughts = counts.first("thoughtsTokenCount")
    return Usage(
        input_tokens=sum_of(
            counts.first("promptTokenCount"), counts.first("toolUsePromptTokenCount")
        ),
        cache_read_tokens=counts.first("cachedContentTokenCount"),
        output_tokens=sum_of(counts.first("candidatesTokenCount"), thoughts),
        reasoning_tokens=thoughts,
        remarks=tuple(counts.remarks),
    )


GENERATE_CONTENT = Dialect(
    name="gemini.generate_content",
    operation="generate_content",
    read=read,
    usage_of=usage_of,
    marks=(Mark(b'"usageMetadata"'), Mark(b'"finishReason"'), Mark(b'"error"')),
    text_marks=(b'"text"',),
)
