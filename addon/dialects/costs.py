"""Pure. The cost that a provider reports, as exact pico-USD; kept beside our own figure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from addon.dialects.counts import Counts
from addon.dialects.facts import Facts

PICOUSD_PER_TICK = 100
"""xAI's `cost_in_usd_ticks`: 10^10 ticks make a USD
(https://docs.x.ai/docs/guides/usage-and-cost; grok-4.3 at 71 x 1.25 + 128 x 0.20 + 160 x 2.50
USD per million tokens is 5 143 500 ticks)."""


class Costs(Struct, frozen=True, kw_only=True):
    """What a provider says it charges, in pico-USD. None: it does not say."""

    own: int | None = None
    upstream: int | None = None
    """Billed separately by the upstream, and only under BYOK."""
    is_byok: bool | None = None


_NO_COSTS = Costs()
_KEYS = frozenset({"cost", "estimated_cost", "cost_in_usd_ticks", "cost_details", "is_byok"})
"""Of a usage object with costs."""


def costs_of(usage: Mapping[str, Any], counts: Counts, facts: Facts) -> Costs:
    """`usage.cost` is a number (OpenRouter, Avian, Vercel) or an object: `{total_cost}`
    (Perplexity), `{usd}` (Charm Hyper, which bills in credits beside it)."""
    if facts.cost is None and usage.keys().isdisjoint(_KEYS):
        return _NO_COSTS
    if isinstance(usage.get("cost"), dict):
        own = counts.picousd("cost.total_cost", "cost.usd")
    else:
        own = counts.picousd("cost", "estimated_cost")  # DeepInfra says `estimated_cost`
    if own is None:
        ticks = counts.first("cost_in_usd_ticks")
        own = ticks * PICOUSD_PER_TICK if ticks is not None else None
    if own is None and isinstance(facts.cost, dict):
        own = Counts(facts.cost).picousd("usd")
    is_byok = usage.get("is_byok")
    return Costs(
        own=own,
        upstream=counts.picousd("cost_details.upstream_inference_cost"),
        is_byok=is_byok if isinstance(is_byok, bool) else None,
    )
