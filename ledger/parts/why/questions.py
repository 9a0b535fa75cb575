"""Database. Reads requests with their segments, and adds up what cache misses cost, what fills the
input, and what another model would have cost."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.model.charge import Charge
from ledger.model.exchange import Exchange, Reading, UsageSource
from ledger.model.money import PICOUSD_PER_USD, sum_of_known
from ledger.model.providers import VENDOR
from ledger.model.segments import OPERATIONS, Segments, unpack
from ledger.model.usage import Usage
from ledger.parts.why.cache import AskedRequest, Judge, Verdict
from ledger.parts.why.context import Context
from ledger.pricing.charges import charge
from ledger.pricing.price_lines import INPUT_LINES
from ledger.pricing.prices import PriceBook
from ledger.store.adding_up import charged
from ledger.store.keys import instant_text
from ledger.store.schema.charged import sum_of
from ledger.store.scope import Scope, as_text, conditions, requests, snapshot
from ledger.store.tables import current_charges, segments

BEFORE = timedelta(days=1)
"""Requests of this time before a period are read too, so that its first ones have a predecessor."""
NO_SEGMENTS = Segments(())


def facts_of(engine: Engine, exchange: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the page of a request says on the prompt cache."""
    session = exchange["session_id"]
    verdict = verdict_of(engine, session, exchange["opened_at"]) if session else None
    return [("Cache", verdict.text)] if verdict else []


def verdict_of(engine: Engine, session: str, opened_at: datetime) -> Verdict | None:
    """The verdict on the request of a session that was opened then; None: it has no segments, or no
    reported input."""
    judge, found = Judge(), None
    scope = Scope(since=opened_at - BEFORE, until=opened_at + timedelta(microseconds=1))
    for row, asked in _asked(engine, scope, session):
        verdict = judge.judge(asked) if asked.segments.parts else None
        found = verdict if row.opened_at == opened_at else None
    return found


def _asked(
    engine: Engine, scope: Scope, session: str | None, *names: str, shown: Scope | None = None
) -> Iterator[tuple[Any, AskedRequest]]:
    """The requests of a scope with reported input, in the order of their time; without segments,
    if it has none. `names`: columns that are read beside those of `AskedRequest`; some take time.
    `shown`: `is_shown` is whether a request is within it; those of the time before are read, too.
    """
    of, dialect = requests.c, engine.dialect.name
    columns = [as_text(of[name]).label(name) for name in (*_READ, *names)]
    if shown is not None:
        is_shown = sa.and_(sa.true(), *conditions(shown, dialect))
        columns.append(sa.case((is_shown, 1), else_=0).label("is_shown"))
        scope = replace(scope, since=scope.since and scope.since - BEFORE)
    query = (
        sa.select(*columns, segments.c.packed)
        .select_from(
            requests.outerjoin(
                segments,
                sa.and_(segments.c.opened_at == of.opened_at, segments.c.exchange_id == of.id),
            )
        )
        .where(*conditions(scope, dialect), of.usage_source == "reported")
        .where(of.input_tokens > 0, of.operation.in_(OPERATIONS))
        .order_by(of.opened_at, of.id)
    )
    if session is not None:
        query = query.where(of.session_id == session)
    with snapshot(engine) as connection:
        for row in connection.execution_options(yield_per=1_000).execute(query):
            yield (
                row,
                AskedRequest(
                    id=row.id,
                    opened_at=row.opened_at,
                    provider=row.provider,
                    dialect=row.dialect,
                    model=row.model,
                    key=row.key_fingerprint,
                    session=row.session_id,
                    segments=(row.packed and unpack(row.packed)) or NO_SEGMENTS,
                    input_tokens=row.input_tokens,
                    read_tokens=row.cache_read_tokens or 0,
                    write_tokens=row.cache_write_tokens or 0,
                    account=row.account,
                    diagnosis=row.cache_diagnosis,
                ),
            )


_READ = (
    *("opened_at", "id", "provider", "dialect", "model", "key_fingerprint", "session_id"),
    *("input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_diagnosis", "account"),
)
_PRICED = (
    *("origin", "path", "operation", "service_tier", "usage_json"),
    *("cache_write_5m_tokens", "cache_write_1h_tokens"),
)
_USED = (
    *("output_tokens", "reasoning_tokens", "input_audio_tokens", "output_audio_tokens"),
    *("tool_units", "list_value_picousd"),
)


def _lost(verdict: Verdict, row: Any, book: PriceBook) -> int | None:
    """What the input would have cost less, had the lost tokens been read; those that were written
    first."""
    left = verdict.lost_tokens
    if not left:
        return 0
    asked = verdict.asked
    written: dict[str, int | None] = {"cache_write_tokens": max(0, asked.write_tokens - left)}
    for name in ("cache_write_1h_tokens", "cache_write_5m_tokens"):
        tokens = getattr(row, name)
        written[name] = tokens and max(0, tokens - left)
        left -= (tokens or 0) - (written[name] or 0)
    paid = Usage(
        input_tokens=asked.input_tokens,
        cache_read_tokens=asked.read_tokens,
        cache_write_tokens=asked.write_tokens,
        cache_write_5m_tokens=row.cache_write_5m_tokens,
        cache_write_1h_tokens=row.cache_write_1h_tokens,
    )
    read = msgspec.structs.replace(
        paid, cache_read_tokens=asked.read_tokens + verdict.lost_tokens, **written
    )
    costs = []
    for usage in (paid, read):
        amounts = [line.amount_picousd for line in _charged(row, asked.model or "", usage, book)]
        if not amounts or None in amounts:
            return None
        costs.append(sum(amount or 0 for amount in amounts))
    return max(0, costs[0] - costs[1])


class Causes(NamedTuple):
    """Why the requests of a scope were not served from the prompt cache."""

    rows: list[dict[str, object]]
    """The dearest first. A column that is not the same in a whole group is None."""
    without_segments: int
    """Requests that are left out."""


def causes(
    engine: Engine, scope: Scope, session: str | None, book: PriceBook, by: str | None = None
) -> Causes:
    """The causes; `by` groups by reason, session, model or key instead."""
    groups: dict[tuple[str | None, ...], dict[str, Any]] = {}
    dearest: dict[tuple[str | None, ...], int] = {}
    without = 0
    # Each is judged by all that was asked before, also with another model or key.
    judge = Judge()
    for row, asked in _asked(engine, replace(scope, only=()), session, *_PRICED, shown=scope):
        one = judge.judge(asked) if asked.segments.parts else None
        if not row.is_shown:
            continue
        if one is None:
            without += 1
            continue
        facts = {"reason": str(one.reason), "how": one.how, "segment": one.segment}
        facts |= {"kind": one.kind, "name": one.name, "session": asked.session}
        named = facts | {"model": asked.model, "key": asked.key}
        key = (named[by],) if by else (facts["reason"], one.how, one.kind, one.segment)
        at = instant_text(asked.opened_at)
        if (group := groups.get(key)) is None:
            sums = {"requests": 0, "tokens": 0, "list_value_usd": None}
            times = {"first_at": at, "last_at": at, "example": asked.id}
            groups[key] = group = {**({by: named[by]} if by else {}), **facts, **sums, **times}
        for name, fact in facts.items():
            if group[name] != fact:
                group[name] = None
        group["requests"] += 1
        group["tokens"] += one.lost_tokens
        group["list_value_usd"] = sum_of_known((group["list_value_usd"], _lost(one, row, book)))
        group["last_at"] = at
        if one.lost_tokens > dearest.get(key, -1):
            group["example"], dearest[key] = asked.id, one.lost_tokens
    for group in groups.values():
        if group["list_value_usd"] is not None:
            group["list_value_usd"] /= PICOUSD_PER_USD

    def order(row: dict[str, Any]) -> tuple[float, int, str]:
        return (-(row["list_value_usd"] or 0), -row["tokens"], str(row))

    return Causes(sorted(groups.values(), key=order), without)


class Filled(NamedTuple):
    """What fills the input of the requests of a scope."""

    rows: list[dict[str, object]]
    """As `Context.rows`."""
    requests: int
    without_segments: int
    """Requests that are left out."""
    per_month: float
    """How many times the time from the first to the last request, at least a day, fits 30 days."""


def context(engine: Engine, scope: Scope, session: str | None) -> Filled:
    """What fills the input of the requests of a scope."""
    filled, without, first, last = Context(), 0, None, None
    # What the input of each request was charged, of those with a price.
    c, of = current_charges.c, requests.c
    query = (
        sa.select(of.id, sa.literal_column(sum_of("current_charges.amount_picousd"), sa.BigInteger))
        .select_from(charged())
        .where(*conditions(scope, engine.dialect.name))
        .where(c.line.in_(INPUT_LINES), c.amount_picousd.is_not(None))
        .group_by(of.id)
    )
    with snapshot(engine) as connection:
        amounts = {name: int(amount) for name, amount in connection.execute(query) if amount}
    for row, asked in _asked(engine, scope, session, "agent"):
        if not asked.segments.parts:
            without += 1
            continue
        first, last = first or row.opened_at, row.opened_at
        filled.add(
            asked.session,
            row.agent,
            asked.segments,
            input_tokens=asked.input_tokens,
            picousd=amounts.get(row.id),
        )
    days = max(1.0, (last - first) / timedelta(days=1)) if first and last else 1.0
    return Filled(list(filled.rows()), filled.requests(), without, 30 / days)


def _charged(row: Any, model: str, usage: Usage, book: PriceBook) -> tuple[Charge, ...]:
    """The charges where the request was sent; where that has no price, at the model's vendor."""
    exchange = Exchange(
        id=row.id,
        origin=row.origin,
        provider=row.provider,
        dialect=row.dialect,
        operation=row.operation,
        path=row.path,
        opened_at=row.opened_at,
        request_model=model,
        response_model=model,
        service_tier=row.service_tier,
        node="",
    )
    reading = Reading(
        exchange_id=row.id,
        opened_at=row.opened_at,
        meter_version="",
        usage_source=UsageSource.REPORTED,
        usage=usage,
        usage_json=row.usage_json,
        read_at=row.opened_at,
    )
    found = charge(exchange, reading, book)
    if any(line.amount_picousd is not None for line in found):
        return found
    elsewhere = msgspec.structs.replace(exchange, origin="", provider=VENDOR, service_tier=None)
    return charge(elsewhere, msgspec.structs.replace(reading, usage_json=None), book)
