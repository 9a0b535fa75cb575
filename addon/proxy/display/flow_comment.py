"""Pure. The texts beside a flow: one line for the list, and a page for the content view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from addon.dialects.transcript import Transcript
from ledger.model.charge import Charge, amounts_of
from ledger.model.exchange import Exchange, Outcome, Reading, UsageSource
from ledger.model.money import money_text, sum_of_known, usd_text
from ledger.pricing.price_lines import is_token_line


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedFlow:
    """One exchange as it was committed."""

    exchange: Exchange
    reading: Reading
    charges: tuple[Charge, ...]


def comment_of(booked: Sequence[BookedFlow]) -> str:
    """`in 1 204 (1 024 cached) out 87 · $0.0031`; of a WebSocket, over all its responses."""
    parts = []
    if len(booked) > 1:
        parts.append(f"{_spaced(len(booked))} responses")
    parts.append(_tokens(booked))
    parts.append(_cost(booked))
    outcome = booked[-1].exchange.outcome
    if outcome not in (None, Outcome.COMPLETE):
        parts.append(str(outcome).replace("_", " "))
    if any(each.exchange.degraded for each in booked):
        parts.append("degraded")
    return " · ".join(filter(None, parts))


def page_of(booked: BookedFlow, transcript: Transcript | None) -> str:
    """The answer, the tools that it calls, its usage and its charge lines."""
    return "\n".join(_page(booked, transcript)) + "\n"


def _page(booked: BookedFlow, transcript: Transcript | None) -> Iterator[str]:
    exchange, reading = booked.exchange, booked.reading
    yield comment_of([booked])
    model = exchange.model or "no model named"
    about = (model, exchange.provider, exchange.dialect, exchange.finish_reason)
    yield " · ".join(filter(None, about))
    if exchange.degraded:
        yield f"degraded: {exchange.degraded}"
    if transcript is not None:
        if transcript.reasoning:
            yield from ("", "Reasoning", "---------", transcript.reasoning)
        yield from ("", "Answer", "------", transcript.text or "(no text)")
        if transcript.is_cut:
            yield "(cut here: the rest is not shown)"
        if transcript.calls:
            yield from ("", "Tool calls", "----------")
            yield from (
                f"{call.name or '(no name)'}({call.arguments})" for call in transcript.calls
            )
    yield from ("", "Usage, as reported", "------------------")
    yield reading.usage_json or "(none)"
    if reading.usage_source is not UsageSource.REPORTED:
        yield f"usage source: {reading.usage_source}"
    yield from ("", "Charges", "-------")
    if not booked.charges:
        yield "(none)"
    yield from (_line(charge) for charge in booked.charges)
    yield from ("", f"tokentee show {exchange.id}")


def _line(charge: Charge) -> str:
    name = charge.line + (f" ({charge.model})" if charge.model else "")
    if charge.unit_picousd is None or charge.amount_picousd is None:
        return (
            f"{name:<24} {_spaced(charge.quantity):>12}  no price: {charge.reason or ''}".rstrip()
        )
    is_token = is_token_line(charge.line)
    unit = f"${usd_text(charge.unit_picousd * (10**6 if is_token else 1))}"
    per = "per 1M" if is_token else "each"
    amount = f"${usd_text(charge.amount_picousd)}"
    return (
        f"{name:<24} {_spaced(charge.quantity):>12} x {unit} {per} = {amount}  "
        f"({charge.price_source})"
    )


def _tokens(booked: Sequence[BookedFlow]) -> str:
    known = [each for each in booked if each.reading.usage_source is not UsageSource.NONE]
    if not known:
        return "no usage reported"
    about = "~" if any(each.reading.usage_source is UsageSource.ESTIMATED for each in known) else ""
    total_in = sum_of_known([each.reading.usage.input_tokens for each in known])
    cached = sum_of_known([each.reading.usage.cache_read_tokens for each in known])
    total_out = sum_of_known([each.reading.usage.output_tokens for each in known])
    part = f" ({_spaced(cached)} cached)" if cached else ""
    return f"in {_count(total_in, about)}{part} out {_count(total_out, about)}"


def _cost(booked: Sequence[BookedFlow]) -> str:
    """A cost with lines missing is a lower bound; one with none known is not zero. What a plan
    covers has its list value."""
    found = [
        amounts_of(
            each.reading.usage_source,
            each.reading.billing,
            ((line.amount_picousd, line.price_source) for line in each.charges),
        )
        for each in booked
    ]
    amount = sum_of_known([each.shown_picousd for each in found])
    plan = f"{booked[-1].reading.billing} " if found[-1].is_covered else ""
    has_usage = any(each.reading.usage_source is not UsageSource.NONE for each in booked)
    if amount is None:
        return plan.strip() or ("unpriced" if has_usage else "")
    bound = "" if all(each.is_complete for each in found) else "≥ "
    estimated = any(each.reading.usage_source is UsageSource.ESTIMATED for each in booked)
    return f"{plan}{bound}{'~' if estimated else ''}{money_text(amount)}"


def _count(count: int | None, about: str) -> str:
    return "?" if count is None else f"{about}{_spaced(count)}"


def _spaced(count: int | None) -> str:
    return "?" if count is None else f"{count:,}".replace(",", " ")
