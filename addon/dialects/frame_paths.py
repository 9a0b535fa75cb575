"""Pure. A dialect as data: the paths of the facts in a frame, and the keys of the figures.

Many wire formats report the same facts under different names. A path `a.b.0.c` is key c of the
first item of the list at b in a. A format with rules of its own (events that open and close,
figures that add up) is a module with its own `read` instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from addon.dialects.counts import Counts, counts_among, lookup
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from ledger.model.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePaths:
    """The paths of the facts in a frame. Of several paths, the first with a value counts."""

    ids: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
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

    def read(self, facts: Facts, event: str, body: dict[str, Any]) -> None:
        """The `read` of a dialect with this layout."""
        for path in self.ids:
            if facts.response_id is None:
                facts.record_id(lookup(body, path))
        facts.record_model(_first(body, self.models))
        facts.record_created(_first(body, self.created))
        finish = _first(body, self.finishes)
        if not isinstance(finish, str) or finish not in self.unfinished:
            facts.record_finish(finish)
        if not facts.token_seen and _first(body, self.texts):
            facts.token_seen = True
        if any(lookup(body, path) is True for path in self.ends):
            facts.ended = True
        final = facts.ended or facts.is_finished or facts.is_document
        usage = _first(body, self.usages)
        if isinstance(usage, dict) and usage:
            facts.record_usage(usage, final=final)
        elif self.usage_keys:
            reported = {path: lookup(body, path) for path in self.usage_keys}
            reported = {path: value for path, value in reported.items() if value is not None}
            reported |= counts_among(body, ())
            if reported:
                facts.record_usage({**(facts.usage or {}), **reported}, final=final)
        error = _first(body, self.errors)
        if error or event == "error":
            record_error(facts, error or body, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePaths:
    """The path in the usage object for each column."""

    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    cache_read: tuple[str, ...] = ()
    cache_write: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    cost_usd: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    """Path -> the ledger's name for the unit."""
    units_within: str = ""
    """The object of which every value is a unit, by its own name if `units` has none."""
    counts_are_text: bool = False
    """64-bit counts are text, as Protocol Buffers' JSON writes them."""

    def usage_of(self, usage: Mapping[str, Any], facts: Facts) -> Usage:
        """The `usage_of` of a dialect with these figures."""
        counts = Counts(_numbers(usage) if self.counts_are_text else usage)
        return Usage(
            input_tokens=counts.first(*self.input),
            cache_read_tokens=counts.first(*self.cache_read),
            cache_write_tokens=counts.first(*self.cache_write),
            output_tokens=counts.first(*self.output),
            reasoning_tokens=counts.first(*self.reasoning),
            tool_units={**facts.rare.units, **counts.units(self.units, within=self.units_within)},
            reported_cost_picousd=counts.picousd(*self.cost_usd),
            remarks=counts.remarks,
        )

    def known_keys(self, *others: str) -> frozenset[str]:
        """The known keys of a usage object: these figures, and others that the ledger ignores."""
        paths = {*others, *self.units}
        for each in fields(self):
            value = getattr(self, each.name)
            paths.update(value if isinstance(value, tuple) else ())
        return frozenset(paths | {path.partition(".")[0] for path in paths})


def _first(body: dict[str, Any], paths: tuple[str, ...]) -> Any:
    for path in paths:
        value = lookup(body, path)
        if value is not None and value != "":
            return value
    return None


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
