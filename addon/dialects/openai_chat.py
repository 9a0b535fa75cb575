"""Pure. OpenAI Chat Completions and legacy Completions, in all compatible spellings.

https://platform.openai.com/docs/api-reference/chat-streaming

Usage is read from any chunk that has it (WIRE §2): an extra last chunk, the finish chunk, every
chunk (cumulative: the last one counts), twice, or only in `x_groq`. `usage: null` is none.

The end: `[DONE]` is the mark of this wire. A finish reason is a weak end: a few providers close
without `[DONE]` after it, but the usage may still be to come, so it makes a stream whole only if
the connection then closes in order. The endpoint whose ids are `stream:chat:<uuid>` may close
without either.
"""

from dataclasses import replace

from addon.dialects import json_door, openai_usage
from addon.dialects.counts import object_at, objects_at
from addon.dialects.dialect import Asking, Dialect, Mark
from addon.dialects.facts import Facts
from addon.framing.frame import Frame

_CONTENT = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "audio")
_ENDS_BY_CLOSING = "stream:chat:"
"""Ids of the endpoint that promises no end mark."""


def read(facts: Facts, frame: Frame) -> None:
    if frame.data.strip() == b"[DONE]":
        facts.ended = True
        return
    body = json_door.loads(frame.data)
    if body is None:
        return
    facts.see_id(body.get("id"))
    facts.see_model(body.get("model"))
    created = body.get("created")
    if facts.created is None and type(created) is int:
        facts.created = created
    tier = body.get("service_tier")
    if isinstance(tier, str):
        facts.service_tier = tier
    if str(body.get("id")).startswith(_ENDS_BY_CLOSING):
        facts.closes_without_mark = True
    for choice in objects_at(body, "choices"):
        facts.see_finish(choice.get("finish_reason"))
        _see_content(facts, choice)
    usage = object_at(body, "usage") or object_at(object_at(body, "x_groq"), "usage")
    if usage is not None:
        facts.usage = usage
        facts.usage_final = facts.finish_reason is not None or not body.get("choices")
    error = body.get("error")
    if error or frame.event == "error":
        facts.see_error(error if error is not None else body)


def _see_content(facts: Facts, choice: dict[str, object]) -> None:
    if choice.get("text"):
        facts.token_seen = True
        return
    for part in (choice.get("delta"), choice.get("message")):
        if isinstance(part, dict) and any(part.get(key) for key in _CONTENT):
            facts.token_seen = True


CHAT = Dialect(
    name="openai.chat",
    operation="chat",
    read=read,
    usage_of=openai_usage.usage_of,
    marks=(
        Mark(b'"usage"', (b'"usage":null', b'"usage": null')),
        Mark(b'"finish_reason"', (b'"finish_reason":null', b'"finish_reason": null')),
        Mark(b'"error"', (b'"error":null', b'"error": null')),
        Mark(b"[DONE]"),
    ),
    text_marks=(b'"content"', b'"reasoning_content"', b'"reasoning"', b'"arguments"', b'"text"'),
    asking=Asking.STREAM_OPTIONS,
)
COMPLETIONS = replace(CHAT, name="openai.completions", operation="text_completion")
