"""Pure. Gemini's Interactions API: its own event names and its own usage keys.

https://ai.google.dev/gemini-api/docs/interactions
"""

from collections.abc import Mapping
from typing import Any

from addon.dialects import shapes
from addon.dialects.counts import Counts, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.vendors import gemini
from ledger.model.usage import Usage, sum_of


def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one document or event of an interaction."""
    kind = body.get("event_type") or event
    interaction = object_at(body, "interaction")
    if interaction is None and body.get("object") == "interaction":
        interaction = body
    if interaction is not None:
        facts.record_id(interaction.get("id"))
        facts.record_model(interaction.get("model"))
        status = interaction.get("status")
        if status != "in_progress" or facts.is_document:
            facts.record_finish(status)
        facts.record_usage(interaction.get("usage"), final=True)
        if interaction.get("error"):
            record_error(facts, interaction["error"])
    if kind in ("interaction.complete", "interaction.completed", "interaction.failed"):
        facts.ended = True
    elif kind in ("step.delta", "content.delta"):
        facts.token_seen = True
    if body.get("error") or kind == "error":
        record_error(facts, body.get("error") or body, body)


def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: output includes thoughts, input includes tool use; Gemini counts them apart."""
    counts = Counts(usage)
    thoughts = counts.first("total_thought_tokens")
    inputs = counts.first("total_input_tokens")
    inputs_by, outputs_by, cached_by = (
        gemini.by_modality(usage, *keys, count="tokens")
        for keys in (
            ("input_tokens_by_modality", "tool_use_tokens_by_modality"),
            ("output_tokens_by_modality",),
            ("cached_tokens_by_modality",),
        )
    )
    return Usage(
        input_tokens=sum_of(inputs, counts.first("total_tool_use_tokens")),
        cache_read_tokens=counts.first("total_cached_tokens"),
        output_tokens=sum_of(counts.first("total_output_tokens"), thoughts),
        reasoning_tokens=thoughts,
        input_audio_tokens=inputs_by.get("audio"),
        output_audio_tokens=outputs_by.get("audio"),
        tool_units={**facts.units, **gemini.modality_units(inputs_by, outputs_by, cached_by)},
        remarks=counts.remarks,
    )


INTERACTIONS = Dialect(
    name="gemini.interactions",
    operation="chat",
    read=read,
    usage_of=usage_of,
    known_keys=frozenset(
        {"total_input_tokens", "total_output_tokens", "total_thought_tokens", "total_tokens"}
        | {"total_cached_tokens", "total_tool_use_tokens", "raw_prompt_token"}
        | {
            f"{kind}_tokens_by_modality{key}"
            for kind in ("input", "output", "cached", "tool_use")
            for key in ("", ".modality", ".tokens")
        }
    ),
    marks=(Mark(b'"interaction"'), Mark(b"interaction."), Mark(b'"error"')),
    text_marks=(b'"text"', b'"arguments"'),
    request_shapes=(
        {"model": shapes.text, "input": shapes.anything},
        {"agent": shapes.text, "input": shapes.anything},
    ),
    answer_shapes=(
        {"object": shapes.one_of("interaction"), "usage": shapes.an_object},
        {"event_type": shapes.beginning("interaction."), "interaction": shapes.an_object},
    ),
)
