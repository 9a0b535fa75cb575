"""Pure. A dialect as data: the paths of the facts in a frame, and the keys of the figures.

Many wire formats report the same facts under different names. A path `a.b.0.c` is key c of the
first item of the list at b in a. A format with rules of its own (events that open and close,
figures that add up) is a module with its own `read` instead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from addon.dialects.costs import Costs
from addon.dialects.counts import Counts
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from ledger.model.usage import Usage, sum_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The paths of the facts in a frame. Of several paths, the first with a value counts."""

    ids: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    finishes: tuple[str, ...] = ()
    unfinished: frozenset[str] = frozenset()
    """Values at `finishes` that mean: not finished yet."""
    texts: tuple[str, ...] = ()
    """Generated content; any non-empty value means that some has passed."""
    usages: tuple[str, ...] = ()
    """The paths of the usage object."""
    usage_keys: tuple[str, ...] = ()
    """For formats without a usage object: paths of the figures, collected under their paths."""
    errors: tuple[str, ...] = ("error",)
    """A value here is an error, in a stream or a document with status 200."""
    ends: tuple[str, ...] = ()
    """A value of `true` here is the end mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The path in the usage object for each column."""

    input: tuple[str, ...] = ()
    input_beside: tuple[str, ...] = ()
    """Input beside the figure above: tokens that tools read."""
    output: tuple[str, ...] = ()
    cache_read: tuple[str, ...] = ()
    cache_write: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    input_audio: tuple[str, ...] = ()
    output_audio: tuple[str, ...] = ()
    cost_usd: tuple[str, ...] = ()
    units: Mapping[str, str] | None = None
    """Path -> the ledger's name for the unit."""


def value_at(body: Any, path: str) -> Any:
    """The value at a path; None if any step of it is missing."""
    for key in path.split("."):
        if isinstance(body, dict):
            body = body.get(key)
        elif isinstance(body, list) and key.isdigit() and int(key) < len(body):
            body = body[int(key)]
        else:
            return None
    return body


def reader_of(layout: Layout) -> Callable[[Facts, str, dict[str, Any]], None]:
    """The `read` of a dialect with this layout."""

    def read(facts: Facts, event: str, body: dict[str, Any]) -> None:
        for path in layout.ids:
            if facts.response_id is None:
                facts.record_id(value_at(body, path))
        facts.record_model(_first(body, layout.models))
        facts.record_created(_first(body, layout.created))
        facts.record_tier(_first(body, layout.tiers))
        finish = _first(body, layout.finishes)
        if not isinstance(finish, str) or finish not in layout.unfinished:
            facts.record_finish(finish)
        if not facts.token_seen and _first(body, layout.texts):
            facts.token_seen = True
        if any(value_at(body, path) is True for path in layout.ends):
            facts.ended = True
        _read_usage(facts, layout, body)
        error = _first(body, layout.errors)
        if error or event == "error":
            record_error(facts, error or body, body)

    return read


def _read_usage(facts: Facts, layout: Layout, body: dict[str, Any]) -> None:
    final = facts.ended or facts.finish_reason is not None or facts.is_document
    usage = _first(body, layout.usages)
    if isinstance(usage, dict) and usage:
        facts.record_usage(usage, final=final)
    elif layout.usage_keys:
        reported = {path: value_at(body, path) for path in layout.usage_keys}
        reported = {path: value for path, value in reported.items() if value is not None}
        if reported:
            facts.record_usage({**(facts.usage or {}), **reported}, final=final)


def _first(body: dict[str, Any], paths: tuple[str, ...]) -> Any:
    for path in paths:
        value = value_at(body, path)
        if value is not None and value != "":
            return value
    return None


def figures_reader(
    figures: Figures, *, counts_are_text: bool = False, reasoning_is_beside: bool = False
) -> Callable[[Mapping[str, Any], Facts], Usage]:
    """The `usage_of` of a dialect with these figures.

    `counts_are_text`: 64-bit counts are text, as Protocol Buffers' JSON writes them.
    `reasoning_is_beside`: the output figure leaves reasoning out.
    """
    units = dict(figures.units or {})

    def usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
        counts = Counts(_numbers(usage) if counts_are_text else usage)
        reasoning = counts.first(*figures.reasoning)
        output = counts.first(*figures.output)
        costs = Costs(own=counts.picousd(*figures.cost_usd))
        beside = counts.first(*figures.input_beside)
        return Usage(
            input_tokens=sum_of(counts.first(*figures.input), beside),
            cache_read_tokens=counts.first(*figures.cache_read),
            cache_write_tokens=counts.first(*figures.cache_write),
            output_tokens=sum_of(output, reasoning) if reasoning_is_beside else output,
            reasoning_tokens=reasoning,
            input_audio_tokens=counts.first(*figures.input_audio),
            output_audio_tokens=counts.first(*figures.output_audio),
            tool_units={**facts.units, **counts.units(units)},
            reported_cost_picousd=costs.own,
            remarks=counts.remarks,
        )

    return usage_of


def known_keys_of(figures: Figures, *others: str) -> frozenset[str]:
    """The known keys of a usage object: these figures, and others that the ledger ignores."""
    paths = {
        *figures.input,
        *figures.input_beside,
        *figures.output,
        *figures.cache_read,
        *figures.cache_write,
        *figures.reasoning,
        *figures.input_audio,
        *figures.output_audio,
        *figures.cost_usd,
        *(figures.units or {}),
        *others,
    }
    return frozenset(paths | {path.partition(".")[0] for path in paths})


def _numbers(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The same usage, with text of digits as numbers; other text stays text."""
    return {
        key: _numbers(value)
        if isinstance(value, dict)
        else int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18
        else value
        for key, value in usage.items()
    }
