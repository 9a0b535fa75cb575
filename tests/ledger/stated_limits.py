"""Exchanges whose answers state limits, to be written to a ledger."""

from datetime import timedelta
from typing import Any

from ledger.model.exchange import PPM, Quota, QuotaKind, UsageSource
from ledger.model.usage import Usage
from tests.ledger.written import NOON, reading, settled, writing

HOUR = timedelta(hours=1)


def stated(percent, resets_at, window="5h", **more):
    facts: dict[str, Any] = {"window_minutes": 300, "status": "allowed"} | more
    return Quota(
        window=window,
        window_name=window,
        kind=QuotaKind.PLAN,
        used_ppm=None if percent is None else int(percent * 10_000),
        resets_at=resets_at,
        **facts,
    )


def answered(name, minutes, session, key, quotas, tokens=100, **more):
    """An exchange of account `a` whose answer arrived at that minute."""
    at = NOON + timedelta(minutes=minutes)
    facts: dict[str, Any] = {"http_status": 200, "account": "a", "first_byte_at": at} | more
    exchange = settled(
        name, at=at, session_id=session, key_fingerprint=key, quotas=tuple(quotas), **facts
    )
    usage = Usage(input_tokens=tokens, cache_read_tokens=0, output_tokens=0)
    return exchange, reading(exchange, usage=usage, usage_source=UsageSource.REPORTED)


def rate_of(limit, left):
    name = "requests"
    used = (limit - left) * PPM // limit
    return Quota(
        window=name,
        window_name=name,
        kind=QuotaKind.RATE,
        limit=limit,
        remaining=left,
        used_ppm=used,
    )


def play(place, entries):
    """Write them into a URL or an engine's ledger, one after the other."""
    with writing(str(getattr(place, "url", place))) as written:
        for exchange, read in entries:
            assert written.settle(exchange, read).committed
