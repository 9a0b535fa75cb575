"""Pure. A charge: one priced line of a reading; a pricing: all lines of one reading, and what they
add up to. Both are append-only."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from ledger.model.columns import TEXT_CHARACTERS_MAX, Column
from ledger.model.exchange import COVERED, Reading, UsageSource

PROVIDER = "provider"
"""The price source of a cost that the provider reports."""
DIFFERS = "the provider's own figure differs"
"""Begins the reason of a charge, and the remark of a request, whose cost the provider states and
whose list value is another by more than a thousandth: one of the two is wrong, or the seller's."""


class Charge(Struct, frozen=True, kw_only=True):
    """One priced line of a reading: quantity x unit price = amount, exactly."""

    line: Annotated[
        str,
        Column(
            "uncached_input, cache_read, cache_write_5m, output, …; a further iteration's kind "
            "stands before a dot: compaction.output"
        ),
    ]
    model: Annotated[str | None, Column("The model priced, where it is not the answer's own")] = (
        None
    )
    quantity: Annotated[int, Column("Number of units")]
    unit_picousd: Annotated[
        int | None, Column("Price of one unit in pico-USD; NULL: no price is known")
    ]
    amount_picousd: Annotated[
        int | None, Column("quantity x unit_picousd, exactly; NULL: no price is known")
    ]
    price_source: Annotated[str, Column("Library and version, override file digest, or provider")]
    priced_at: Annotated[datetime, Column("When it was priced, UTC")]
    supersedes: Annotated[str | None, Column("The id of the charge that this one replaces")] = None
    reason: Annotated[
        str | None, Column("Why there is no price, or why it was priced again", TEXT_CHARACTERS_MAX)
    ] = None


def remarked(reading: Reading, lines: Iterable[Charge]) -> Reading:
    """The reading with a remark if the provider's own figure differs from ours."""
    for line in lines:
        if line.reason and line.reason.startswith(DIFFERS):
            remark = line.reason.partition("; ")[0]
            usage = replace(reading.usage, remarks=(*reading.usage.remarks, remark))
            return replace(reading, usage=usage)
    return reading


class Pricing(Struct, frozen=True):
    """What the charges of one reading add up to. Reports add up millions of requests, and reading
    the lines of each costs 25 µs on SQLite, its whole row 1 µs (measured)."""

    cost_state: Annotated[
        str | None,
        Column(
            "priced, partial (some lines have no price), unpriced, or reported (the provider's own "
            "figure); NULL: no usage to price"
        ),
    ]
    amount_picousd: Annotated[int | None, Column("Sum of the lines; NULL: none is priced")]
    list_value_picousd: Annotated[
        int | None, Column("The same without the provider's own figures, which are no list price")
    ]
    saved_picousd: Annotated[
        int | None,
        Column("What the cached tokens would have cost as uncached input, less their cost"),
    ]
    extra_input_tokens: Annotated[
        int | None, Column("Input tokens of further iterations, billed beside input_tokens")
    ]
    extra_output_tokens: Annotated[
        int | None, Column("Output tokens of further iterations, billed beside output_tokens")
    ]


_CACHED = ("cache_read", "cache_write", "cache_write_5m", "cache_write_1h", "cache_write_12h")
_INPUT = ("uncached_input", "cache_", "input_")
_OUTPUT = ("output", "reasoning", "citation")
_UNITS_MAX = 10**9
"""No real line has more, and no token costs a thousandth of a USD. Upstream figures are untrusted:
larger ones are left out where a product would exceed 64 bits."""
_TOTAL_MAX = 9 * 10**18
"""64 bits just hold it; a larger total is not known."""


def pricing_of(lines: Iterable[Charge], usage_source: UsageSource) -> Pricing:
    """What the lines of a pricing add up to."""
    count = priced = reported = amount = listed = cached_amount = 0
    cached: int | None = None
    uncached_unit: int | None = None
    extra_input: int | None = None
    extra_output: int | None = None
    for line in lines:
        count += 1
        name, is_bounded = line.line, line.quantity <= _UNITS_MAX
        if line.amount_picousd is not None:
            priced += 1
            amount += line.amount_picousd
            is_reported = line.price_source == PROVIDER
            reported += is_reported
            listed += 0 if is_reported else line.amount_picousd
            if name in _CACHED and is_bounded:
                cached = (cached or 0) + line.quantity
                cached_amount += line.amount_picousd
            elif name == "uncached_input":
                uncached_unit = line.unit_picousd
        if "." in name and is_bounded:
            part = name.rpartition(".")[2]
            if part.startswith(_INPUT):
                extra_input = (extra_input or 0) + line.quantity
            elif part.startswith(_OUTPUT):
                extra_output = (extra_output or 0) + line.quantity
    state = "partial" if priced < count else "reported" if reported == count else "priced"
    if not priced:
        state = "unpriced"
    saved = None
    if cached is not None and uncached_unit is not None and uncached_unit <= _UNITS_MAX:
        saved = cached * uncached_unit - cached_amount
    return Pricing(
        state if count or usage_source is not UsageSource.NONE else None,
        amount if priced and amount <= _TOTAL_MAX else None,
        listed if priced > reported and listed <= _TOTAL_MAX else None,
        saved,
        extra_input,
        extra_output,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeCost:
    """What one exchange costs, as the view `requests` has it (`ledger.store.schema.charged`)."""

    cost_picousd: int | None = None
    """Of reported usage that is billed by tokens; None: no price is known, or nothing is billed."""
    estimated_cost_picousd: int | None = None
    list_value_picousd: int | None = None
    """What its reported tokens cost at list prices, whoever pays them."""
    is_covered: bool = False
    """By a plan, or free."""
    is_complete: bool = True
    """Every line has a price, and there is one for reported usage."""

    @property
    def shown_picousd(self) -> int | None:
        """The one amount to show of an exchange: its cost, its estimate, or what a plan covers."""
        if self.is_covered:
            return self.list_value_picousd
        return self.estimated_cost_picousd if self.cost_picousd is None else self.cost_picousd


def amounts_of(
    usage_source: str | None, billing: str | None, lines: Iterable[tuple[int | None, str]]
) -> ExchangeCost:
    """The amounts of one exchange; `lines` are amount and price source of its current charges."""
    lines = tuple(lines)
    known = [amount for amount, _ in lines if amount is not None]
    listed = [each for each, source in lines if each is not None and source != PROVIDER]
    is_estimated = usage_source == UsageSource.ESTIMATED
    is_covered = billing in COVERED
    amount = sum(known) if known and not is_covered else None
    has_usage = usage_source not in (None, UsageSource.NONE)
    return ExchangeCost(
        cost_picousd=None if is_estimated else amount,
        estimated_cost_picousd=amount if is_estimated else None,
        list_value_picousd=sum(listed) if listed and not is_estimated else None,
        is_covered=is_covered,
        is_complete=len(known) == len(lines) and (bool(lines) or not has_usage),
    )


def cost_of(reading: Reading, charges: Iterable[Charge]) -> ExchangeCost:
    """The amounts of one exchange by its current reading and charges."""
    lines = ((line.amount_picousd, line.price_source) for line in charges)
    return amounts_of(reading.usage_source, reading.billing, lines)
