"""Pure. OpenAI Realtime: reads the facts of one response from WebSocket messages.

https://platform.openai.com/docs/api-reference/realtime-server-events

`response.done` ends a response, successful or not, and carries its usage. A separate model
transcribes the user's speech, and a separate event carries the usage that bills it.
"""

from typing import Any

from addon.dialects.counts import lookup, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Ending, Facts
from addon.dialects.openai import usage as openai_usage

TRANSCRIBED = "conversation.item.input_audio_transcription.completed"


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one message of the server."""
    kind = body.get("type")
    response = object_at(body, "response")
    if response is not None:
        facts.record_id(response.get("id"))
        status = response.get("status")
        facts.record_finish(status if status != "in_progress" else None)
        # xAI leaves it empty, and reports the figures beside the response.
        usage = response.get("usage") or body.get("usage")
        facts.record_usage(usage, final=kind == "response.done")
        problem = lookup(response, "status_details.error")
        if problem:
            record_error(facts, problem)
        elif status == "failed":
            facts.failed = True
        if kind == "response.done":
            facts.ended = True
    elif kind == TRANSCRIBED:
        facts.record_id(body.get("item_id"))
        facts.record_usage(body.get("usage"), final=True)
        facts.ended = True
    elif kind == "error":
        record_error(facts, body.get("error") or body, body)
    elif isinstance(kind, str) and kind.endswith(".delta"):
        facts.token_seen = True


REALTIME = Dialect(
    name="openai.realtime",
    operation="chat",
    read=read,
    usage_of=openai_usage.usage_of,
    known_keys=openai_usage.KNOWN_KEYS,
    ending=Ending.MARK,
    marks=(Mark(b'"response"'), Mark(b'"error"'), Mark(b"_transcription.completed")),
)
