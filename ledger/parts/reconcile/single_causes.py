"""Pure. The table of causes that multiply some of the ledger's charges by a factor that is not
fitted."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

from ledger.pricing.price_lines import TOKEN_LINES
from ledger.pricing.published import tier_name

VALUES_MAX = 10
"""Models, keys, hosts … that are tried, those with the highest costs."""
REGION_FACTORS = (1.1, 1.2, 1.25)
"""Of the published rules that depend on no tier."""
_READS = ("cache_read",)
TWICE = (
    (_READS, "cached tokens{of} are billed twice, as input and as cached"),
    (
        (*_READS, "cache_write", "cache_write_5m", "cache_write_1h"),
        "cached and written tokens{of} are billed twice, as input and on their own",
    ),
)
"""Lines that a bill has twice: on the meter of plain input, too. Azure's had so of gpt-5.6
(https://github.com/Azure/azure-rest-api-specs/issues/45178)."""
TIER_FACTORS = {"batch or flex": (0.5,), "priority": (1.75, 1.8, 2.0), "fast": (2.0, 6.0)}
"""Prices of service tiers, as multiples of the standard ones (`billing_rules.toml`, and the prices
of tiers in genai-prices)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Charges of one line that are alike in all that a cause depends on."""

    opened: datetime
    """The hour, in UTC."""
    is_late: bool = False
    """The requests ended on a later day."""
    name: str | None
    """As the cells have it: the model, key or project, or the word for items without a model."""
    model: str = ""
    host: str = ""
    tier: str = ""
    key: str = ""
    project: str = ""
    outcome: str = "complete"
    line: str
    region: Decimal = Decimal(1)
    """The factor of a region's rule that is in the price."""
    quantity: int
    picousd: int
    is_priced: bool = True

    @property
    def is_token(self) -> bool:
        """Whether the line is one of tokens."""
        return self.line.rpartition(".")[2] in TOKEN_LINES


type Factor = Callable[[Alike, Mapping[str, Alike]], float]
"""A group, and all lines of the same requests -> what a cause multiplies it by; 1: nothing."""
type Row = tuple[str, str, tuple[str, ...], Factor]
"""Kind, sentence, the words whose values it is tried with ("": everything), factor."""


def _times(by: float, is_of: Callable[[Alike], bool]) -> Factor:
    return lambda group, _: by if is_of(group) else 1


def _is_listed(group: Alike) -> bool:
    return group.is_token and group.region == 1


def _is_standard(group: Alike) -> bool:
    return group.is_token and tier_name(group.tier) is None


def _is_at(tier: str, group: Alike) -> bool:
    return group.is_token and bool(group.tier) and group.tier in tier


def _is_on(line: str, group: Alike) -> bool:
    return group.line == line


def _is_since(moment: datetime, group: Alike) -> bool:
    return group.opened >= moment


def _at_input_price(of: tuple[str, ...], group: Alike, lines: Mapping[str, Alike]) -> float:
    """The price of input as a multiple of the price of cached tokens; 0: not about them."""
    other = lines.get("uncached_input")
    if group.line not in of or not group.picousd or not (other and other.quantity):
        return 0
    return other.picousd / other.quantity * group.quantity / group.picousd


def _twice(of: tuple[str, ...], group: Alike, lines: Mapping[str, Alike]) -> float:
    return 1 + _at_input_price(of, group, lines)


def _without_cached(group: Alike, lines: Mapping[str, Alike]) -> float:
    read = lines.get("cache_read")
    if group.line != "uncached_input" or not read or not 0 < group.quantity >= read.quantity:
        return 1
    return 1 - read.quantity / group.quantity


def _table(last: date) -> Iterator[Row]:
    every = ("", "model", "host", "key", "project", "tier")
    for by in REGION_FACTORS:
        text = f"tokens{{of}} are billed with a region's factor x{by:g}, booked without"
        yield "region", text, every, _times(by, _is_listed)
    text = "tokens{of} are booked with a region's factor, billed without"
    yield "region", text, every, lambda g, _: 1 / float(g.region) if g.is_token else 1
    for tier, factors in TIER_FACTORS.items():
        for by in factors:
            text = f"tokens{{of}} are billed at tier {tier} (x{by:g}), booked at standard"
            yield "tier", text, every, _times(by, _is_standard)
            text = f"tokens{{of}} are booked at tier {tier} (x{by:g}), billed at standard"
            yield "tier", text, every, _times(1 / by, partial(_is_at, tier))
    for billed, text in TWICE:
        yield "cached tokens", text, ("", "model"), partial(_twice, billed)
    text = "cached tokens{of} are billed as input, without the discount"
    yield "cached tokens", text, ("", "model"), lambda g, of: _at_input_price(_READS, g, of) or 1
    text = "cached tokens{of} are booked twice, as input and as cached"
    yield "cached tokens", text, ("", "model"), _without_cached
    for line, by, text in (
        ("cache_read", 0.0, "cached tokens{of} are not billed"),
        ("cache_write_1h", 0.625, "cache writes for one hour{of} are billed as for five minutes"),
        ("cache_write_5m", 1.6, "cache writes for five minutes{of} are billed as for one hour"),
    ):
        yield "cached tokens", text, ("", "model"), _times(by, partial(_is_on, line))
    for word in ("key", "project", "host", "model"):
        yield f"missing {word}", f"{word} {{value}} is not in the statement", (word,), lambda *_: 0
    yield "item", "{value} are not billed", ("line",), lambda g, _: g.is_token
    text = "answers that did not end are not billed"
    yield "broken answers", text, ("",), lambda g, _: g.outcome == "complete"
    for hour in range(1, 24):
        text = f"the statement ends on {last} at {hour:02}:00 UTC; later rows are to come"
        end = datetime(last.year, last.month, last.day, hour, tzinfo=UTC)
        yield "late rows", text, ("",), _times(0, partial(_is_since, end))


def _priced_alike(group: Alike) -> tuple[str, str, str, Decimal]:
    return group.model, group.host, group.tier, group.region


def single_causes(
    groups: Sequence[Alike], last: date
) -> Iterator[tuple[str, str, dict[int, float]]]:
    """The causes of the table: kind, sentence, and the factor of each group that changes, by its
    place. `last`: the statement's last day."""
    lines: dict[Alike, dict[str, Alike]] = defaultdict(dict)
    requests = [replace(group, line="", quantity=0, picousd=0) for group in groups]
    for request, group in zip(requests, groups, strict=True):
        lines[request][group.line] = group
    # Requests whose input was cached as a whole show no price of input: others of their model do.
    plain = {_priced_alike(g): g for g in groups if g.line == "uncached_input" and g.quantity}
    for request, of_request in lines.items():
        if (other := plain.get(_priced_alike(request))) and not (
            (own := of_request.get("uncached_input")) and own.quantity
        ):
            of_request["uncached_input"] = other
    of_requests = [lines[request] for request in requests]
    words = ("model", "host", "key", "project", "tier", "line")
    varied = {word for word in words if len({getattr(group, word) for group in groups}) > 1}
    for kind, text, tried, factor in _table(last):
        factors = map(factor, groups, of_requests)
        changed = {place: float(by) for place, by in enumerate(factors) if by != 1}
        for word in tried:
            if not word:
                yield kind, text.format(of=""), changed
            elif word in varied:
                values: dict[str, dict[int, float]] = defaultdict(dict)
                for place, by in changed.items():
                    values[getattr(groups[place], word) or "(none)"][place] = by
                costs = {v: sum(groups[place].picousd for place in values[v]) for v in values}
                for value in sorted(values, key=lambda v: -costs[v])[:VALUES_MAX]:
                    yield kind, text.format(of=f" of {word} {value}", value=value), values[value]
