"""Pure. Token figures in the ledger's convention, and the door they come through.

The convention is OpenTelemetry GenAI's: `input_tokens` is all input, cached included, and
`output_tokens` all output, reasoning included. Each dialect converts into it, once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

COUNT_MAX = 10**15
"""More than all providers together sell in a day. Upstream is not trusted, and a few counts near
the 64 bits that both databases hold would overflow every sum they are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Quantities a provider reported for one exchange. None: not reported; 0: reported as zero."""

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_5m_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_audio_tokens: int | None = None
    output_audio_tokens: int | None = None
    tool_units: Mapping[str, int] = field(default_factory=dict)
    """Billable units that are not tokens of text: `web_searches`, `code_executions`,
    `input_image_tokens`, `audio_milliseconds` …; unit last."""
    reported_cost_picousd: int | None = None
    """What the provider says it charges for this exchange, in pico-USD."""
    reported_upstream_cost_picousd: int | None = None
    """What a gateway says the upstream charges beside it (only billed apart under BYOK)."""
    is_byok: bool | None = None
    further: tuple["FurtherUsage", ...] = ()
    """Billed, and not inside the figures above (Anthropic `usage.iterations`)."""
    remarks: tuple[str, ...] = ()
    """What was reported but cannot be a count, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherUsage:
    """Tokens billed beside an answer's own: another iteration, by a model of its own."""

    kind: str
    """The provider's word for it: `compaction`, `advisor_message`, `fallback_message`."""
    model: str | None
    """None: the answer's own model."""
    usage: Usage


NO_USAGE = Usage()


def count_of(value: object) -> int | None:
    """The value as a count, or None for what cannot be one.

    A JSON float with no fraction counts (Bedrock Titan sends `"inputTextTokenCount": 6.0`);
    booleans, text, negatives, NaN and anything beyond `COUNT_MAX` do not.
    """
    if type(value) is float and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    if type(value) is int and 0 <= value <= COUNT_MAX:
        return value
    return None


def sum_of(*parts: int | None) -> int | None:
    """The sum of what was reported; None if nothing was, or if the sum is no count."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return count_of(sum(known))
