"""Pure. Decides when to ask an upstream for usage that the client did not ask for."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from ledger.model import provider_table
from ledger.model.learned import Learned
from ledger.model.providers import StreamUsage


class UsageHabit(StrEnum):
    """The lesson from an unknown upstream's first streams."""

    OPT_IN = "opt_in"
    AUTOMATIC = "automatic"
    REFUSES = "refuses"
    MOVES = "moves"
    """Asking moves something else of the stream, too (vLLM's `system_fingerprint`), so the client
    would not get what it gets without us."""


LEARNED_FOR = {
    UsageHabit.OPT_IN: timedelta(days=7),
    UsageHabit.AUTOMATIC: timedelta(days=30),
    UsageHabit.REFUSES: timedelta(days=7),
    UsageHabit.MOVES: timedelta(days=7),
}
"""Lessons expire and are learnt again: gateways are upgraded, and one unasked stream costs one
estimate."""


def asks_of(
    provider: str, learned: Learned | None, *, now: datetime, is_named: bool = False
) -> bool:
    """Whether `auto` asks here. A lesson overrides the table, because it was observed here.

    `is_named`: the operator says that LLMs answer here. Then an upstream of which nothing is known
    is asked, too: one that refuses costs a second request, one that is not asked a stream's usage.
    """
    if learned is not None and learned.expires_at > now:
        return learned.verdict == UsageHabit.OPT_IN
    usage = provider_table.TABLE.stream_usage_of(provider)
    return usage is StreamUsage.OPT_IN or (is_named and usage is StreamUsage.UNKNOWN)


def is_known(provider: str) -> bool:
    """Whether the table already decides for a provider's streams."""
    return provider_table.TABLE.stream_usage_of(provider) is not StreamUsage.UNKNOWN


def lesson(
    origin: str,
    path: str,
    verdict: UsageHabit,
    *,
    now: datetime,
    known: Mapping[tuple[str, str], Learned],
) -> Learned | None:
    """The lesson to store about an upstream; None if an equal one is stored and fresh."""
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
