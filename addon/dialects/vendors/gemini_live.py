"""Pure. Gemini Live: reads the facts of one model turn from WebSocket messages.

https://ai.google.dev/api/live

The server's messages belong to the open turn. Usage usually comes beside `turnComplete`, and may
come earlier in the turn too: the last one counts. Each turn is billed with the whole context of the
session, so the turns of a session are exchanges of their own.
"""

from dataclasses import replace
from typing import Any

from addon.dialects.counts import lookup, object_at
from addon.dialects.dialect import Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.vendors import gemini


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
        facts.record_usage(usage, final=True)
        facts.record_tier(usage.get("serviceTier") or usage.get("trafficType"))
    if body.get("error"):
        record_error(facts, body["error"], body)


LIVE = replace(
    gemini.GENERATE_CONTENT,
    name="gemini.live",
    operation="chat",
    read=read,
    marks=(Mark(b'"usageMetadata"'), Mark(b'"turnComplete"'), Mark(b'"error"')),
    ending=Ending.MARK,
)
