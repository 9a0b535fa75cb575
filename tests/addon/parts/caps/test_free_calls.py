"""What is known to cost nothing is free by its path and by no other word of it; and a hold is at the speed that
was asked for."""

import pytest
from msgspec.structs import replace

from addon.dialects.vendors.anthropic import MESSAGES
from addon.parts.caps.holds import Holds
from addon.parts.caps.limits import is_free_call, read_limits
from ledger.model.exchange import Billing
from ledger.pricing.prices import PriceBook
from tests.ledger.written import NOON, opened


def test_what_costs_nothing_is_free():
    assert is_free_call("/v1/moderations?x", "moderation")


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/files/v1/chat/completions", "chat"),
        ("/v1/moderations", "chat"),
        ("/v1/moderations/x", "moderation"),
    ],
)
def test_anything_else_is_bounded_as_ever(path: str, operation: str):
    assert not is_free_call(path, operation)


@pytest.mark.parametrize("speed", ["fast", "standard", None])
def test_a_hold_knows_the_speed_that_was_asked_for(speed: str | None):
    """Fast mode has prices of its own, above those of the list
    (https://platform.claude.com/docs/en/build-with-claude/fast-mode)."""
    exchange = replace(
        opened("e", at=NOON),
        origin="https://api.anthropic.com",
        provider="anthropic",
        dialect="anthropic.messages",
        request_model="claude-opus-4-6",
    )
    limits = read_limits(MESSAGES, {"max_tokens": 1_000}, b"{}")
    fields = {} if speed is None else {"speed": speed}
    found, why = Holds(PriceBook.load(None)).hold(exchange, limits, fields, Billing.METERED)
    plain, _ = Holds(PriceBook.load(None)).hold(exchange, limits, {}, Billing.METERED)
    assert why == ""
    assert found.usd is not None
    assert plain.usd is not None
    assert (found.usd > plain.usd) is (speed == "fast")
