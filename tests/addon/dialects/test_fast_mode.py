"""Fast mode of Claude is in no plan."""

from addon.dialects.billing import of_answer
from ledger.model.exchange import Billing
from tests.named import for_each

LIMITS = {"anthropic-ratelimit-unified-status": "allowed"}


@for_each(
    "provider, tier, billing",
    [
        ("anthropic", "fast", Billing.METERED),
        ("anthropic", "standard", Billing.PLAN),
        ("anthropic", None, Billing.PLAN),
        ("openai", "fast", Billing.PLAN),
    ],
)
def test_fast_mode_on_a_plan_is_billed_by_tokens(provider, tier, billing):
    found, _ = of_answer(Billing.PLAN, LIMITS, provider=provider, service_tier=tier)
    assert found is billing
