"""Pure. When to ask an upstream for usage that its client did not ask for."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from ledger.model.records import Learned

OPT_IN_PROVIDERS = frozenset(
    {"openai", "azure.ai.openai", "aivene", "chuizi", "dashscope", "fireworks", "together"}
)
"""Providers whose streams carry usage only when asked, by their documentation."""
AUTOMATIC_PROVIDERS = frozenset(
    {"opentoken", "sansa", "openrouter", "perplexity", "mistral_ai", "deepseek", "groq", "x_ai"}
)
"""Usage comes by itself (WIRE §2), or the parameter is refused: never anything to ask."""


class Verdict(StrEnum):
    """What an unknown upstream's first streams have taught."""

    OPT_IN = "opt_in"
    AUTOMATIC = "automatic"
    REFUSES = "refuses"


LEARNED_FOR = {
    Verdict.OPT_IN: timedelta(days=7),
    Verdict.AUTOMATIC: timedelta(days=30),
    Verdict.REFUSES: timedelta(days=7),
}
"""Then it is learned anew: gateways are upgraded, and one watched stream costs one estimate."""


def asks_of(provider: str, learned: Learned | None, *, now: datetime) -> bool:
    """Whether `auto` asks here. What was learned outranks the table: it was seen here."""
    if learned is not None and learned.expires_at > now:
        return learned.verdict == Verdict.OPT_IN
    return provider in OPT_IN_PROVIDERS


def is_known(provider: str) -> bool:
    """Whether there is nothing to learn about a provider's streams."""
    return provider in OPT_IN_PROVIDERS or provider in AUTOMATIC_PROVIDERS


def lesson(
    origin: str,
    path: str,
    verdict: Verdict,
    *,
    now: datetime,
    known: Mapping[tuple[str, str], Learned],
) -> Learned | None:
    """What to remember of an upstream; None if it is known already and still fresh."""
    old = known.get((origin, path))
    if (
        old is not None
        and old.verdict == verdict
        and old.expires_at - now > LEARNED_FOR[verdict] / 2
    ):
        return None
    return Learned(
        origin=origin,
        path=path,
        verdict=str(verdict),
        learned_at=now,
        expires_at=now + LEARNED_FOR[verdict],
    )
