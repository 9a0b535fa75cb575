"""Pure. Gemini Live: reads the facts of one model turn from WebSocket messages.

https://ai.google.dev/api/live

The server's messages belong to the open turn. Usage usually comes beside `turnComplete`, and may
come earlier in the turn too: the last one counts. Each turn is billed with the whole context of the
session, so the turns of a session are exchanges of their own. Models that translate live report
what came since the last report instead, so that a turn has the sum
(https://ai.google.dev/gemini-api/docs/live).
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from addon.dialects.counts import lookup, object_at, objects_at
from addon.dialects.dialect import Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.openai.usage import added
from addon.dialects.vendors import gemini
from ledger.model.usage import count_of

_REPORTS_DELTAS = "live-translate"
"""In the names of these models: `gemini-3.5-live-translate-preview`."""
_MODALITIES_MAX = 16


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one message of the server."""
    content = object_at(body, "serverContent")
    if content is not None:
        if lookup(content, "modelTurn.parts") or content.get("outputTranscription"):
            facts.token_seen = True
        if content.get("interrupted") is True:
            facts.record_finish("interrupted")
        facts.record_finish(content.get("turnCompleteReason"))
        if content.get("turnComplete") is True:
            facts.ended = True
    elif body.get("toolCall"):
        facts.token_seen = True
    usage = object_at(body, "usageMetadata")
    if usage is not None:
        if facts.usage is not None and _REPORTS_DELTAS in (facts.response_model or ""):
            facts.record_usage(_added(facts.usage, usage), final=True)
        else:
            facts.record_usage(usage, final=True)
    if body.get("error"):
        record_error(facts, body["error"], body)


def _added(before: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """The sum of two usage objects, count by count and modality by modality."""
    total = added(before, delta)
    for key in delta:
        if key.endswith("TokensDetails"):
            tokens: Counter[str] = Counter()
            for one in objects_at(before, key) + objects_at(delta, key):
                tokens[str(one.get("modality"))] += count_of(one.get("tokenCount")) or 0
            total[key] = [
                {"modality": modality, "tokenCount": count}
                for modality, count in tokens.most_common(_MODALITIES_MAX)
            ]
    return total


LIVE = replace(
    gemini.GENERATE_CONTENT,
    name="gemini.live",
    operation="chat",
    read=read,
    marks=(Mark(b'"usageMetadata"'), Mark(b'"turnComplete"'), Mark(b'"error"')),
    ending=Ending.MARK,
)
