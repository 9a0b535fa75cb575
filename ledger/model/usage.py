"""Pure. Token figures in the ledger's convention, and the validation of counts.

The convention is OpenTelemetry GenAI's: `input_tokens` is all input, cached included, and
`output_tokens` all output, reasoning included. Each dialect converts to it, once.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated

from msgspec import Struct, field

from ledger.model.columns import Column

COUNT_MAX = 10**15
"""More than all providers together sell in a day. Upstream figures are untrusted, and a few counts
near the 64 bits that both databases hold would overflow every sum that includes them."""

SIZE_STEPS = (32_000, 100_000, 128_000, 199_999, 200_000, 256_000, 272_000, 512_000, 524_288)
"""Input tokens above which some published price rises. Requests that are summed (a batch's) are
summed by the steps between which they lie, so that each is priced by its own size."""
REFUSAL = "refusal"
"""The finish reason of an answer that the provider refused, and the kind of a further attempt that
was: `refusal_cyber`."""
REFUSED = "refused"
"""The billing field with the category of a refusal before any output."""
SERVICE_TIER = "service_tier"
BILLING_FIELDS = (
    *("inference_geo", "speed", "search_context_size", "search_type", "disable_search"),
    *("latency_mode", "annotation_format", "cache_type", "gateway_cache_mode", REFUSED),
)
"""Fields of a usage object on which prices depend; `ledger.pricing.rules` has their values."""
BESIDE = "beside:"
"""Begins the name of such a field in `usage_json` where the provider's usage object lacks it: it
stands elsewhere in the answer, or in the request."""
BILLING_VALUE_LENGTH_MAX = 64
"""Characters of a billing field's value that are kept: it stands in a charge's reason."""

_FIELDS_MAX = 16
"""Billing fields of one usage object; a provider has three at most."""
_SERVED = re.compile("(?:^|_)(?:tier|geo|region|zone|speed|mode|latency|priority|resolution)$")
_CAPITAL = re.compile("(?<=[a-z])[A-Z]")
_DEPTH_MAX = 4


class Usage(Struct, frozen=True, kw_only=True):
    """Quantities a provider reported for one exchange. None: not reported; 0: reported as zero."""

    input_tokens: Annotated[int | None, Column("All input tokens, cached ones included")] = None
    cache_read_tokens: Annotated[
        int | None, Column("Part of input_tokens served from the provider's cache")
    ] = None
    cache_write_tokens: Annotated[
        int | None, Column("Part of input_tokens stored into the provider's cache")
    ] = None
    cache_write_5m_tokens: Annotated[
        int | None, Column("Part of cache_write_tokens kept for five minutes")
    ] = None
    cache_write_1h_tokens: Annotated[
        int | None, Column("Part of cache_write_tokens kept for one hour")
    ] = None
    output_tokens: Annotated[int | None, Column("All output tokens, reasoning included")] = None
    reasoning_tokens: Annotated[int | None, Column("Part of output_tokens spent on reasoning")] = (
        None
    )
    input_audio_tokens: Annotated[int | None, Column("Part of input_tokens that is audio")] = None
    output_audio_tokens: Annotated[int | None, Column("Part of output_tokens that is audio")] = None
    tool_units: Annotated[
        Mapping[str, int], Column("Billable units other than text tokens, by name")
    ] = field(default_factory=dict)
    reported_cost_picousd: Annotated[
        int | None, Column("Cost as the provider reports it, in pico-USD")
    ] = None
    reported_upstream_cost_picousd: Annotated[
        int | None,
        Column(
            "Cost of a gateway's upstream as the gateway reports it, in pico-USD; billed apart "
            "only under BYOK"
        ),
    ] = None
    is_byok: Annotated[bool | None, Column("The gateway used the caller's own upstream key")] = None
    further: Annotated[
        tuple["FurtherUsage", ...], Column("Further iterations billed beside the figures above")
    ] = ()
    remarks: Annotated[
        tuple[str, ...], Column("Reported values that are not valid counts, as texts")
    ] = ()


TOKENS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_tokens"))
"""The fields that count tokens, in their order."""


class FurtherUsage(Struct, frozen=True, kw_only=True):
    """Tokens billed in addition to the answer's own: another iteration, maybe by another model."""

    kind: str
    """The provider's word for it: `compaction`, `advisor_message`, `fallback_message`."""
    model: str | None
    """None: the answer's own model."""
    usage: Usage


NO_USAGE = Usage()


def count_of(value: object) -> int | None:
    """The value as a count, or None if it cannot be a count.

    A JSON float with no fraction counts (Bedrock Titan sends `"inputTextTokenCount": 6.0`);
    booleans, text, negatives, NaN and anything beyond `COUNT_MAX` do not.
    """
    if type(value) is float and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    if type(value) is int and 0 <= value <= COUNT_MAX:
        return value
    return None


def with_underscores(name: str) -> str:
    """`inferenceGeo` -> `inference_geo`."""
    return _CAPITAL.sub(r"_\g<0>", name).lower()


def billing_value(value: object) -> str | None:
    """A billing field's value as a text, what is no text as JSON; None: absent or null."""
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    return text and text[:BILLING_VALUE_LENGTH_MAX]


def is_billing_field(name: str, known: Collection[str] = BILLING_FIELDS) -> bool:
    """Whether prices may depend on a field of this name: it is known, or its name is one of a way
    to be served."""
    return name in known or _SERVED.search(name) is not None


def billing_fields(usage: object, known: Collection[str] = BILLING_FIELDS) -> dict[str, str]:
    """The fields of a usage object on which prices depend: those that are known, and any other
    whose name is one of a way to be served, in snake case and with its path.

    A field inside another object or a list counts only if its value differs. A number is a way to
    be served only where a rule names its field.
    """
    found: dict[str, str] = {}
    for path, value in _members(usage, "", _DEPTH_MAX):
        outer, _, key = path.rpartition(".")
        is_number = type(value) in (int, float)
        if is_number and outer:
            continue
        name = with_underscores(key.removeprefix(BESIDE))
        if is_number and name not in known:
            continue
        if name == SERVICE_TIER or not is_billing_field(name, known):
            continue
        text = billing_value(value)
        if text is not None and text != found.get(name) and len(found) < _FIELDS_MAX:
            found.setdefault(f"{outer}.{name}" if outer else name, text)
    return found


def _members(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    """The values in objects and lists, those of the outer object first."""
    inner: list[tuple[str, object]] = []
    if isinstance(value, dict):
        inner = [(f"{path}.{key}" if path else str(key), each) for key, each in value.items()]
    elif isinstance(value, list):
        inner = [(path, each) for each in value]
    yield from ((name, each) for name, each in inner if each is not None)
    if depth:
        for name, each in inner:
            if isinstance(each, dict | list):
                yield from _members(each, name, depth - 1)


def sum_of(*parts: int | None) -> int | None:
    """The sum of the reported values; None if none was reported, or if the sum is not a valid
    count."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return count_of(sum(known))
