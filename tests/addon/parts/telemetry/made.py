"""Exchanges, readings and charges for the tests of telemetry."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from addon.parts.telemetry.observer import Observed, observed
from ledger.model.charge import Charge
from ledger.model.exchange import Exchange, Outcome, Reading, State, UsageSource
from ledger.model.usage import Usage

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def exchange(**changed) -> Exchange:
    made = Exchange(
        id="e1",
        origin="https://api.openai.com:443",
        provider="openai",
        dialect="openai.chat",
        operation="chat",
        path="/v1/chat/completions",
        opened_at=NOON,
        state=State.SETTLED,
        outcome=Outcome.COMPLETE,
        http_status=200,
        request_model="gpt-4.1",
        response_model="gpt-4.1-2025-04-14",
        response_id="chatcmpl-1",
        finish_reason="stop",
        first_token_at=NOON + timedelta(milliseconds=250),
        settled_at=NOON + timedelta(seconds=2),
        session_id="s1",
    )
    return replace(made, **changed)


def reading(source: UsageSource = UsageSource.REPORTED, **usage) -> Reading:
    return Reading(
        exchange_id="e1",
        opened_at=NOON,
        meter_version="1",
        usage_source=source,
        usage=Usage(**(usage or {"input_tokens": 1_204, "output_tokens": 87})),
        read_at=NOON,
    )


def line(amount: int | None = 3_100_000_000, name: str = "output") -> Charge:
    return Charge(
        line=name,
        quantity=1,
        unit_picousd=amount,
        amount_picousd=amount,
        price_source="list",
        priced_at=NOON,
    )


def one(
    read: Reading | None = None, charges: tuple[Charge, ...] | None = None, **changed
) -> Observed:
    charges = (line(),) if charges is None else charges
    return observed(exchange(**changed), read or reading(), charges)
