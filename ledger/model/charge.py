"""Pure. A charge: one priced line of a reading. Charges are append-only."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
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
) -> Amounts:
    """The amounts of one exchange; `lines` are amount and price source of its current charges."""
    lines = tuple(lines)
    known = [amount for amount, _ in lines if amount is not None]
    listed = [each for each, source in lines if each is not None and source != PROVIDER]
    is_estimated = usage_source == UsageSource.ESTIMATED
    is_covered = billing in COVERED
    amount = sum(known) if known and not is_covered else None
    has_usage = usage_source not in (None, UsageSource.NONE)
    return Amounts(
        cost_picousd=None if is_estimated else amount,
        estimated_cost_picousd=amount if is_estimated else None,
        list_value_picousd=sum(listed) if listed and not is_estimated else None,
        is_covered=is_covered,
        is_complete=len(known) == len(lines) and (bool(lines) or not has_usage),
    )
