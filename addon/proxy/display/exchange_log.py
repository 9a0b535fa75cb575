"""Pure. The log line of one settled exchange (`tee_log=exchanges`)."""

from collections.abc import Callable

from addon.metering.settlement import Settled
from ledger.model.charge import Charge
from ledger.model.exchange import Exchange
from ledger.model.reading import Reading
from ledger.text.printable import printable

type Price = Callable[[Exchange, Reading], tuple[Charge, ...]]

PICOUSD_PER_MICROUSD = 1_000_000


def line_of(settled: Settled, price: Price) -> str:
    """Model, tokens, cost, outcome and milliseconds. A dash: not reported, or not known."""
    exchange, reading = settled
    usage = reading.usage
    model = exchange.response_model or exchange.request_model or exchange.dialect
    cached = f" ({usage.cache_read_tokens} cached)" if usage.cache_read_tokens else ""
    milliseconds = (
        round((exchange.settled_at - exchange.opened_at).total_seconds() * 1000)
        if exchange.settled_at is not None
        else None
    )
    return (
        f"{printable(model)} in {_shown(usage.input_tokens)}{cached} "
        f"out {_shown(usage.output_tokens)} {_cost(price(exchange, reading))} "
        f"{exchange.outcome} {_shown(milliseconds)} ms"
    )


def _cost(charges: tuple[Charge, ...]) -> str:
    amounts = [charge.amount_picousd for charge in charges]
    known = [amount for amount in amounts if amount is not None]
    if not known:
        return "unpriced" if amounts else "-"
    microusd = round(sum(known) / PICOUSD_PER_MICROUSD)
    more = ">= " if len(known) < len(amounts) else ""
    return f"{more}${microusd // 1_000_000}.{microusd % 1_000_000:06}"


def _shown(figure: int | None) -> str:
    return "-" if figure is None else str(figure)
