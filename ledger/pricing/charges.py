"""Pure. A reading and prices -> charges.

The price is asked for the moment the exchange was opened, the model that answered and the service
tier it answered with. What has no price is a charge all the same: quantity known, unit price and
amount None, and why. No price is ever guessed to be zero.
"""

from dataclasses import replace
from datetime import datetime
from typing import Protocol

from ledger.model.charge import Charge
from ledger.model.exchange import Exchange
from ledger.model.money import AMOUNT_MAX
from ledger.model.reading import Reading
from ledger.model.usage import Usage
from ledger.pricing.price_lines import Quantity, Sheet, input_tokens_of_one_request, quantities

NO_SOURCE = "none"
"""The price source of a line that no list prices."""
PROVIDER = "provider"
"""The price source of what the provider says it charges."""
REPORTED = "reported_cost"
"""The one line of a reading whose cost is known from the provider alone."""

BEYOND = "the amount is beyond 64 bits"


class Book(Protocol):
    """Where sheets come from; `ledger.pricing.prices.PriceBook` is the one in use."""

    def sheet(self, exchange: Exchange, *, model: str | None = None) -> Sheet:
        """The prices for an exchange, or for another model that answered in it."""


def charge(
    exchange: Exchange, reading: Reading, book: Book, *, priced_at: datetime | None = None
) -> tuple[Charge, ...]:
    """What the reading costs, line by line; empty if nothing was reported.

    What the provider says it charges stands beside our own figures, in the reading, and is never
    added to them. Only where we know no price at all is it the cost, as one line of its own.

    `priced_at` is when that was worked out; the time of the reading if it is not given.
    """
    at = priced_at or reading.read_at
    usage = reading.usage
    sheet = book.sheet(exchange)
    lines = [_charge(quantity, usage, sheet, at) for quantity in quantities(usage, sheet.rates)]
    if lines and "requests" in sheet.rates:
        lines.append(_charge(("requests", 1, None), usage, sheet, at))
    if not lines:
        lines = _zero_charges(usage, sheet, at)
    for further in usage.further:
        sheet = book.sheet(exchange, model=further.model)
        lines += [
            _charge(quantity, further.usage, sheet, at, kind=further.kind, model=further.model)
            for quantity in quantities(further.usage, sheet.rates)
        ]
    if sum(line.amount_picousd or 0 for line in lines) > AMOUNT_MAX:
        lines = [_beyond(line) for line in lines]
    if all(line.amount_picousd is None for line in lines):
        reported = reported_picousd(usage)
        if reported is not None and reported <= AMOUNT_MAX:
            return (_reported(reported, lines[0].reason if lines else None, at),)
    return tuple(lines)


def reported_picousd(usage: Usage) -> int | None:
    """What the provider says this exchange costs the customer.

    A gateway bills its own figure; what its upstream takes comes on top only where the customer
    brought the key to it. Elsewhere it is inside already, and adding it doubles the cost
    (yvgude/lean-ctx#746).
    """
    if usage.is_byok and usage.reported_upstream_cost_picousd is not None:
        return (usage.reported_cost_picousd or 0) + usage.reported_upstream_cost_picousd
    return usage.reported_cost_picousd


def _charge(
    quantity: Quantity,
    usage: Usage,
    sheet: Sheet,
    at: datetime,
    *,
    kind: str | None = None,
    model: str | None = None,
) -> Charge:
    line, count, note = quantity
    rate = sheet.rate(line)
    if rate is not None and rate.is_once and count > 1:
        count, note = 1, f"{count} reported, billed once for the request"
    unit = amount = None
    input_tokens = input_tokens_of_one_request(usage)
    if rate is None:
        reason: str | None = sheet.absent
    elif rate.above and input_tokens is None:
        # The size of the request decides its price, and this one's is not known.
        reason = "the price depends on the input tokens, which are not reported"
    else:
        reason = note or rate.note
        unit = rate.at(input_tokens) if input_tokens is not None else rate.picousd
        amount = count * unit
        if amount > AMOUNT_MAX:
            unit = amount = None
            reason = BEYOND
    return Charge(
        line=line if kind is None else f"{kind}.{line}",
        model=model,
        quantity=count,
        unit_picousd=unit,
        amount_picousd=amount,
        price_source=rate.source if rate else NO_SOURCE,
        priced_at=at,
        reason=reason,
    )


def _beyond(line: Charge) -> Charge:
    """Lines that each fit and whose sum does not: no column or view could hold the cost."""
    return replace(line, unit_picousd=None, amount_picousd=None, reason=BEYOND)


def _reported(picousd: int, reason: str | None, at: datetime) -> Charge:
    return Charge(
        line=REPORTED,
        quantity=1,
        unit_picousd=picousd,
        amount_picousd=picousd,
        price_source=PROVIDER,
        priced_at=at,
        reason=reason,
    )


def _zero_charges(usage: Usage, sheet: Sheet, at: datetime) -> list[Charge]:
    """A reading of zeros costs nothing, which is a known cost, unlike that of no reading."""
    return [
        _charge((line, 0, None), usage, sheet, at)
        for line, total in (
            ("uncached_input", usage.input_tokens),
            ("output", usage.output_tokens),
        )
        if total is not None
    ]
