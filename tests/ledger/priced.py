"""Exchanges and readings for the tests of money."""

from datetime import UTC, datetime

from ledger.records import Exchange, Reading, UsageSource
from ledger.usage import Usage

NOVEMBER = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)

ORIGINS = {
    "openai": "https://api.openai.com:443",
    "anthropic": "https://api.anthropic.com:443",
    "google": "https://generativelanguage.googleapis.com:443",
    "deepseek": "https://api.deepseek.com:443",
    "openrouter": "https://openrouter.ai:443",
}


def exchange(model="gpt-4.1", *, provider="openai", origin=None, at=NOVEMBER, **more):
    return Exchange(
        **{
            "id": "e1",
            "origin": origin or ORIGINS[provider],
            "provider": provider,
            "dialect": "openai.chat",
            "operation": "chat",
            "path": "/v1/chat/completions",
            "opened_at": at,
            "response_model": model,
            **more,
        }
    )


def reading(at=NOVEMBER, usage_source=UsageSource.REPORTED, **usage):
    return Reading(
        exchange_id="e1",
        opened_at=at,
        meter_version="1",
        usage_source=usage_source,
        usage=Usage(**usage),
        read_at=at,
    )


def amounts(charges):
    """line -> (quantity, unit price, amount)."""
    return {each.line: (each.quantity, each.unit_picousd, each.amount_picousd) for each in charges}


def cost(charges):
    return sum(each.amount_picousd for each in charges)
