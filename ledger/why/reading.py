"""Database. Reads requests with their segments, and adds up what cache misses cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.model.money import PICOUSD_PER_USD
from ledger.model.segments import unpack
from ledger.pricing.price_lists import PriceQuestion
from ledger.pricing.prices import PriceBook
from ledger.store.requests_view import requests
from ledger.store.schema.instants import instant_text
from ledger.store.scope import Scope, conditions, snapshot
from ledger.store.tables import segments
from ledger.why.cache import Asked, Judge, Verdict

BEFORE = timedelta(days=1)
"""Requests of this time before a period are read too, so that its first ones have a predecessor."""
BY = ("reason", "session", "model", "key")


@dataclass(frozen=True, slots=True)
class Priced:
    """A verdict with its price."""

    verdict: Verdict
    lost_picousd: int | None
    """At the price that was paid, less the price of cached tokens; None: no price is known."""

    def value(self, by: str) -> str | None:
        """The value of a dimension."""
        asked = self.verdict.asked
        values = {"session": asked.session, "model": asked.model, "key": asked.key}
        return str(self.verdict.reason) if by == "reason" else values[by]


def priced(engine: Engine, scope: Scope, session: str | None, book: PriceBook) -> Iterator[Priced]:
    """The verdicts on the requests of a scope, in the order of their time."""
    of = requests.c
    wider = replace(scope, since=scope.since and scope.since - BEFORE)
    query = (
        sa.select(
            *(of.opened_at, of.id, of.provider, of.dialect, of.model, of.key_fingerprint),
            *(of.session_id, of.input_tokens, of.cache_read_tokens, of.cache_write_tokens),
            *(of.origin, of.path, of.service_tier, of.response_model, of.request_model),
            segments.c.packed,
        )
        .join(
            segments,
            sa.and_(segments.c.opened_at == of.opened_at, segments.c.exchange_id == of.id),
        )
        .where(*conditions(wider, engine.dialect.name), of.usage_source == "reported")
        .where(of.input_tokens > 0)
        .order_by(of.opened_at, of.id)
    )
    if session is not None:
        query = query.where(of.session_id == session)
    judge = Judge()
    with snapshot(engine) as connection:
        for row in connection.execute(query):
            parts = unpack(row.packed)
            if parts is None:
                continue
            verdict = judge.judge(
                Asked(
                    id=row.id,
                    opened_at=row.opened_at,
                    provider=row.provider,
                    dialect=row.dialect,
                    model=row.model,
                    key=row.key_fingerprint,
                    session=row.session_id,
                    segments=parts,
                    input_tokens=row.input_tokens,
                    read_tokens=row.cache_read_tokens or 0,
                    write_tokens=row.cache_write_tokens or 0,
                )
            )
            if scope.since is None or row.opened_at >= scope.since:
                yield Priced(verdict, _lost(verdict, row, book))


def _lost(verdict: Verdict, row: Any, book: PriceBook) -> int | None:
    if not verdict.lost_tokens:
        return 0
    asked = verdict.asked
    question = PriceQuestion(
        origin=row.origin,
        provider=row.provider,
        path=row.path,
        response_model=row.response_model or None,
        request_model=row.request_model or None,
    )
    sheet = book.look_up(question, tier=row.service_tier, at=asked.opened_at)
    written = min(verdict.lost_tokens, asked.write_tokens)
    cached, plain = sheet.rate("cache_read"), sheet.rate("uncached_input")
    write = sheet.rate("cache_write") or sheet.rate("cache_write_5m") or plain
    if cached is None or plain is None or write is None:
        return None
    rates = [rate.at(asked.input_tokens) for rate in (plain, write, cached)]
    paid = (verdict.lost_tokens - written) * rates[0] + written * rates[1]
    return max(0, paid - verdict.lost_tokens * rates[2])


def rows(found: Iterator[Priced], by: str | None) -> list[dict[str, object]]:
    """The causes, the dearest first; `by` groups by one of `BY` instead.

    A column that is not the same in a whole group is None.
    """
    groups: dict[tuple[str | None, ...], list[Priced]] = {}
    for each in found:
        one = each.verdict
        cause = (str(one.reason), one.how, one.kind, one.segment)
        groups.setdefault((each.value(by),) if by else cause, []).append(each)
    made = [_row(group) for group in groups.values()]

    def order(row: dict[str, object]) -> tuple[float, int, str]:
        return (-float(str(row["list_value_usd"] or 0)), -int(str(row["tokens"])), str(row))

    return sorted(made, key=order)


def _row(group: Sequence[Priced]) -> dict[str, object]:
    verdicts = [each.verdict for each in group]
    lost = [each.lost_picousd for each in group]
    known = [each for each in lost if each is not None]

    def fixed(values: list[str | None]) -> str | None:
        return values[0] if len(set(values)) == 1 else None

    dearest = max(verdicts, key=lambda one: one.lost_tokens)
    return {
        "reason": fixed([str(one.reason) for one in verdicts]),
        "how": fixed([one.how for one in verdicts]),
        "segment": fixed([one.segment for one in verdicts]),
        "kind": fixed([one.kind for one in verdicts]),
        "name": fixed([one.name for one in verdicts]),
        "session": fixed([one.asked.session for one in verdicts]),
        "model": fixed([one.asked.model for one in verdicts]),
        "key": fixed([one.asked.key for one in verdicts]),
        "requests": len(verdicts),
        "tokens": sum(one.lost_tokens for one in verdicts),
        "list_value_usd": sum(known) / PICOUSD_PER_USD if known else None,
        "first_at": instant_text(min(one.asked.opened_at for one in verdicts)),
        "last_at": instant_text(max(one.asked.opened_at for one in verdicts)),
        "example": dearest.asked.id,
    }
