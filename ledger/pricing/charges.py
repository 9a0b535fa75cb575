"""Pure. Makes the charges of a reading from prices.

The price depends on the moment when the exchange was opened, and on the model and the service tier
of the answer. A line without a price is a charge, too: with its quantity and the reason, unit price
and amount None. No price is ever assumed to be zero.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from ledger.model.charge import DIFFERS, PROVIDER, Charge
from ledger.model.exchange import COVERED, SESSION_TOTAL, Exchange, Reading
from ledger.model.money import AMOUNT_MAX, usd_text
from ledger.model.usage import REFUSAL, REFUSED, Usage
from ledger.pricing.price_lines import (
    OUTPUT_LINES,
    Quantity,
    Sheet,
    billed_output_tokens,
    input_tokens_of_one_request,
    quantities,
)
from ledger.pricing.rules import REPORTED_BILL

NO_SOURCE = "none"
"""The price source of a line without a price."""
REPORTED = "reported_cost"
"""The single line of a reading that costs what the provider reports."""
UPSTREAM = "upstream_cost"
"""The line of what an upstream bills the customer's own key (BYOK)."""
BILLING_FIELD = "billing_field"
"""The line of a billing-relevant field whose value no rule knows; its reason names both."""

BEYOND = "the amount is beyond 64 bits"


class Sheets(Protocol):
    """A source of sheets; `ledger.pricing.prices.PriceBook` implements it."""

    def fields(self, reading: Reading) -> Mapping[str, str]:
        """The billing fields of a reading's usage object."""

    def sheet(
        self,
        exchange: Exchange,
        fields: Mapping[str, str],
        *,
        model: str | None = None,
        is_covered: bool = False,
    ) -> Sheet:
        """The prices for an exchange, or for another model that answered in it; `is_covered`: the
        list prices of what is not billed by tokens."""


def charge(
    exchange: Exchange, reading: Reading, book: Sheets, *, priced_at: datetime | None = None
) -> tuple[Charge, ...]:
    """The charges of a reading, line by line; empty if no usage was reported.

    The cost that the provider reports is the cost, as one line, where the provider's own guide
    says that it is the bill (`Sheet.bill`), and where we know no price at all. Everywhere else it
    stays in the reading and is never added to our own figures. What a plan covers, or what is free,
    is charged at list prices: the lines are its list value, and no cost.

    `priced_at` is the time of pricing; by default the time of the reading.
    """
    at = priced_at or reading.read_at
    usage = reading.usage
    fields = dict(book.fields(reading))
    category = fields.pop(REFUSED, "") or ("none" if exchange.finish_reason == REFUSAL else "")
    refused = {REFUSED: category} if category and usage.output_tokens == 0 else {}
    is_covered = reading.billing in COVERED
    own = sheet = book.sheet(exchange, fields | refused, is_covered=is_covered)
    billed = quantities(usage, sheet.rates)
    fee = sheet.rates.get("requests")
    if fee is not None and bool(billed) == bool(fee.picousd):
        # A fee beside the tokens; of what is free, a known cost where no usage is reported.
        billed.append(("requests", 1, None))
    if not billed:
        # A reading of zeros has the known cost 0; an exchange without a reading an unknown one.
        totals = (("uncached_input", usage.input_tokens), ("output", usage.output_tokens))
        billed = [(line, 0, None) for line, total in totals if total is not None]
    lines = _charges(billed, usage, sheet, at)
    partial = dict.fromkeys(own.partial)
    for further in usage.further:
        category = further.kind.partition(f"{REFUSAL}_")[2]
        refused = {REFUSED: category} if category else {}
        sheet = book.sheet(exchange, fields | refused, model=further.model, is_covered=is_covered)
        billed = quantities(further.usage, sheet.rates)
        lines += _charges(billed, further.usage, sheet, at, kind=further.kind, model=further.model)
        partial |= dict.fromkeys(sheet.partial)
    if sum([line.amount_picousd or 0 for line in lines]) > AMOUNT_MAX:
        # Each fits, and no column or view could hold their sum.
        lines = [
            replace(line, unit_picousd=None, amount_picousd=None, reason=BEYOND) for line in lines
        ]
    if exchange.operation == SESSION_TOTAL:
        # Its list cost is that of the session's other rows, too.
        usage = replace(usage, reported_cost_picousd=None)
    if lines and not is_covered and (difference := _difference(lines, usage, own)):
        reason = "; ".join(filter(None, (difference, lines[0].reason)))
        lines[0] = replace(lines[0], reason=reason)
    bill = _bill(usage, own) if own.bill and not is_covered else None
    if bill is not None:
        return _reported(bill, usage, _list_value(lines, own), at)
    if not [line for line in lines if line.amount_picousd is not None]:
        reported = reported_picousd(usage)
        if reported is not None and reported <= AMOUNT_MAX:
            return _reported(reported, usage, lines[0].reason if lines else None, at)
    else:
        # Without an amount, so that a request whose price is known in part is `partial`.
        lines += [
            Charge(
                line=BILLING_FIELD,
                quantity=1,
                unit_picousd=None,
                amount_picousd=None,
                price_source=NO_SOURCE,
                priced_at=at,
                reason=reason,
            )
            for reason in partial
        ]
    return tuple(lines)


def _bill(usage: Usage, sheet: Sheet) -> int | None:
    """What the provider bills by its own figure; None if no rule makes a figure the bill, or the
    answer has none."""
    if sheet.bill == REPORTED_BILL:
        bill = reported_picousd(usage)
    else:
        units, rate = usage.tool_units.get(sheet.bill), sheet.rate(sheet.bill)
        bill = units * rate.picousd if units and rate is not None else None
    return bill if bill is not None and bill <= AMOUNT_MAX else None


def _listed(lines: list[Charge], sheet: Sheet) -> tuple[int | None, bool]:
    """What the lines cost at the list price, without the provider's own unit, and whether that is
    all; None: no price is known."""
    amounts = [line.amount_picousd for line in lines if line.line != sheet.bill]
    known = [amount for amount in amounts if amount is not None]
    return (sum(known) if known else None), len(known) == len(amounts) and not sheet.partial


def _list_value(lines: list[Charge], sheet: Sheet) -> str:
    """The list value, for the reason of a line with the provider's bill."""
    listed, is_whole = _listed(lines, sheet)
    reason = lines[0].reason if lines else None
    if listed is None:
        return f"the provider's own bill; {reason or 'no list value'}"
    of = (each.price_source for each in lines if each.line != sheet.bill)
    sources = ", ".join(dict.fromkeys(of))
    value = f"list value {'' if is_whole else 'at least '}{usd_text(listed)} ({sources})"
    begin = f"{reason.partition('; ')[0]}; " if reason and reason.startswith(DIFFERS) else ""
    return f"{begin}the provider's own bill; {value}"


def _difference(lines: list[Charge], usage: Usage, sheet: Sheet) -> str | None:
    """How the provider's own figure differs from the list value, by more than a thousandth."""
    theirs = reported_picousd(usage) if sheet.bill in ("", REPORTED_BILL) else _bill(usage, sheet)
    if theirs is None:
        return None
    ours, is_whole = _listed(lines, sheet)
    is_known = not usage.is_byok or usage.reported_upstream_cost_picousd is not None
    if ours is None or not (is_whole and is_known):
        return None
    if abs(theirs - ours) * 1000 <= theirs:
        return None
    return f"{DIFFERS}: ${usd_text(theirs)}, and the list value is ${usd_text(ours)}"


def reported_picousd(usage: Usage) -> int | None:
    """The cost of this exchange for the customer, as the provider reports it.

    A gateway bills its own figure. The cost of its upstream is added only if the customer brought
    the upstream key. Otherwise it is already included, and adding it would double the cost
    (yvgude/lean-ctx#746).
    """
    if usage.is_byok and usage.reported_upstream_cost_picousd is not None:
        return (usage.reported_cost_picousd or 0) + usage.reported_upstream_cost_picousd
    return usage.reported_cost_picousd


def _charges(
    billed: list[Quantity],
    usage: Usage,
    sheet: Sheet,
    at: datetime,
    *,
    kind: str | None = None,
    model: str | None = None,
) -> list[Charge]:
    once = usage.tool_units.get("batch_results", 1)
    input_tokens = input_tokens_of_one_request(usage)
    has_output = billed_output_tokens(usage) is not None
    charges = []
    for line, quantity, cut in billed:
        count, note = quantity, cut
        rate = sheet.rates.get(line, sheet.rest)
        if rate is not None and rate.is_once and count > once:
            count, note = once, f"{count} reported, billed once for a request"
        elif rate is not None and count < rate.at_least:
            count, note = rate.at_least, f"{count} reported, billed as at least {rate.at_least}"
        unit = amount = None
        if rate is None or rate.is_unknown:
            reason: str | None = rate.note if rate else sheet.absent
            rate = None
        elif line in OUTPUT_LINES and not has_output:
            # The rest may hold the same tokens again.
            reason = "a part of the output tokens, whose total is not reported"
        elif rate.above and input_tokens is None:
            # The price depends on the size of the request, which is unknown here.
            reason = "the price depends on the input tokens, which are not reported"
        else:
            reason = note or rate.note
            unit = rate.picousd
            for start, picousd in rate.above:
                if input_tokens is not None and input_tokens > start:
                    unit = picousd
            amount = count * unit
            if amount > AMOUNT_MAX:
                unit = amount = None
                reason = BEYOND
        charges.append(
            Charge(
                line=line if kind is None else f"{kind}.{line}",
                model=model,
                quantity=count,
                unit_picousd=unit,
                amount_picousd=amount,
                price_source=rate.source if rate else NO_SOURCE,
                priced_at=at,
                reason=reason,
            )
        )
    return charges


def _reported(picousd: int, usage: Usage, reason: str | None, at: datetime) -> tuple[Charge, ...]:
    """The provider's figure; and a line without an amount for an upstream that bills the customer
    beside it, where the answer does not say how much (PrimeIntellect-ai/prime-agent#2144)."""
    own = Charge(
        line=REPORTED,
        quantity=1,
        unit_picousd=picousd,
        amount_picousd=picousd,
        price_source=PROVIDER,
        priced_at=at,
        reason=reason,
    )
    if not usage.is_byok or usage.reported_upstream_cost_picousd is not None:
        return (own,)
    upstream = replace(
        own,
        line=UPSTREAM,
        unit_picousd=None,
        amount_picousd=None,
        price_source=NO_SOURCE,
        reason="the upstream bills the customer's own key, and the answer does not say how much",
    )
    return (own, upstream) if picousd else (upstream,)
