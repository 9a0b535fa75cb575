"""Pure. The log line of one settled exchange (`tee_log=exchanges`)."""

from addon.metering.settlement import Settled
from ledger.model.charge import Charge, amounts_of
from ledger.model.exchange import Reading
from ledger.model.money import money_text
from ledger.store.writing.batches import Price
from ledger.text.figures import until_text
from ledger.text.printable import printable


def line_of(settled: Settled, price: Price) -> str:
    """Model, tokens, cost or what a plan covers, outcome and duration. A dash: not reported, or
    not known."""
    exchange, reading = settled
    usage = reading.usage
    model = exchange.model or exchange.dialect
    cached = f" ({usage.cache_read_tokens} cached)" if usage.cache_read_tokens else ""
    took = until_text(exchange.settled_at, exchange.opened_at) or "-"
    return (
        f"{printable(model)} in {_shown(usage.input_tokens)}{cached} "
        f"out {_shown(usage.output_tokens)} {_cost(reading, price(exchange, reading))} "
        f"{exchange.outcome} {took}"
    )


def _cost(reading: Reading, charges: tuple[Charge, ...]) -> str:
    found = amounts_of(
        reading.usage_source,
        reading.billing,
        ((charge.amount_picousd, charge.price_source) for charge in charges),
    )
    amount = found.shown_picousd
    plan = f"{reading.billing} " if found.is_covered else ""
    if amount is None:
        return plan.strip() or ("unpriced" if charges else "-")
    more = "" if found.is_complete else ">= "
    return f"{plan}{more}{money_text(amount)}"


def _shown(figure: int | None) -> str:
    return "-" if figure is None else str(figure)
