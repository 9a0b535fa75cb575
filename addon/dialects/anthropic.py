"""Pure. Anthropic Messages.

https://docs.claude.com/en/docs/build-with-claude/streaming
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects import json_door
from addon.dialects.counts import Counts, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import Facts
from addon.framing.frame import Frame
from ledger.usage import Usage, sum_of


def read(facts: Facts, frame: Frame) -> None:
    body = json_door.loads(frame.data)
    if body is None:
        return
    kind = body.get("type")
    if kind == "error" or frame.event == "error":
        facts.see_error(body.get("error", body))
        return
    if kind == "message_start":
        _read_message(facts, object_at(body, "message") or {})
    elif kind == "message":
        _read_message(facts, body)
        facts.ended = facts.usage_final = True
    elif kind == "message_delta":
        facts.see_finish((object_at(body, "delta") or {}).get("stop_reason"))
        _overlay(facts, object_at(body, "usage"))
        facts.usage_final = True
    elif kind == "message_stop":
        facts.ended = True
    elif kind == "content_block_delta":
        facts.token_seen = True


def _read_message(facts: Facts, message: Mapping[str, Any]) -> None:
    facts.see_id(message.get("id"))
    facts.see_model(message.get("model"))
    facts.see_finish(message.get("stop_reason"))
    _overlay(facts, object_at(message, "usage"))


def _overlay(facts: Facts, usage: dict[str, Any] | None) -> None:
    """Figures are cumulative: a field said again replaces what was said (FIELD 10, 11)."""
    if usage is not None:
        said = {key: value for key, value in usage.items() if value is not None}
        facts.usage = {**usage, **(facts.usage or {}), **said}


def usage_of(usage: Mapping[str, Any], _facts: Facts) -> Usage:
    counts = Counts(usage)
    uncached = counts.first("input_tokens")
    cache_read = counts.first("cache_read_input_tokens")
    cache_write = counts.first("cache_creation_input_tokens")
    return Usage(
        input_tokens=sum_of(uncached, cache_read, cache_write),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cache_write_5m_tokens=counts.first("cache_creation.ephemeral_5m_input_tokens"),
        cache_write_1h_tokens=counts.first("cache_creation.ephemeral_1h_input_tokens"),
        output_tokens=counts.first("output_tokens"),
        reasoning_tokens=counts.first("output_tokens_details.thinking_tokens"),
        remarks=tuple(counts.remarks),
    )


MESSAGES = Dialect(
    name="anthropic.messages",
    operation="chat",
    read=read,
    usage_of=usage_of,
    marks=(Mark(b'"usage"'), Mark(b'"message_stop"'), Mark(b'"error"')),
    text_marks=(b'"text"', b'"thinking"', b'"partial_json"'),
)
