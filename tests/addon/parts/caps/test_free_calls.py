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


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/messages/count_tokens", "unknown"),
        ("/v1/messages/count_tokens?beta=true", "unknown"),
        ("/openai/v1/responses/input_tokens", "unknown"),
        ("/v1beta/models/gemini-3.5-flash:countTokens", "unknown"),
        ("/v1/moderations", "moderation"),
        ("/v1/responses/resp_1/cancel", "unknown"),
        ("/v1/batches/batch_1/cancel", "unknown"),
        ("/v1/files", "unknown"),
        ("/v1/vector_stores/vs_1/files", "unknown"),
        ("/v1/conversations/conv_1/items", "unknown"),
    ],
)
def test_what_costs_nothing_is_free(path: str, operation: str):
    assert is_free_call(path, operation)


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/files/v1/chat/completions", "chat"),
        ("/files/v1/images/generations", "image_generation"),
        ("/v1/files/v1/responses", "chat"),
        ("/v1/messages", "chat"),
        ("/v1/messages/count_tokens/x", "unknown"),
        ("/v1/chat/completion%73?x=/v1/files", "unknown"),
        ("/v1/responses/resp_1", "unknown"),
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
