"""Database. Prices booked readings again: a pricing is added, nothing is changed.

A line whose quantity, model or unit price differs gets a charge of the next revision, which names
the one it replaces and the reason. A line that is the same is kept, even if its price now comes
from another source, so repricing twice adds nothing. Reports take the newest pricing; the old
figures stay where they were.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
import sqlalchemy as sa
from msgspec.structs import asdict, replace
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from ledger.model.charge import Charge, pricing_of
from ledger.model.exchange import Exchange
from ledger.model.money import sum_of_known
from ledger.pricing.charges import NO_SOURCE, charge
from ledger.pricing.price_lists import PriceQuestion
from ledger.pricing.prices import PriceBook
from ledger.store import db
from ledger.store.keys import reading_of, usage_source_of
from ledger.store.schema.charged import KEPT, OWN
from ledger.store.scope import Scope, conditions, requests, within
from ledger.store.tables import current_charges, pricings, readings
from ledger.store.writing import batch_insert

BATCH = 1000
"""Exchanges read and written at once: a transaction of some milliseconds beside a live proxy."""

UNPRICED_MAX = 10_000
"""Kinds of unpriced requests that are looked up, the most frequent first."""

_FIGURES = ("line", "model", "quantity", "unit_picousd", "amount_picousd")
_SOURCE = ("price_source", "priced_at", "reason")

_PRICED_BY = (
    *("id", "opened_at", "origin", "provider", "dialect", "operation", "path"),
    *("request_model", "response_model", "service_tier"),
)
"""What of an exchange its prices depend on, and what every exchange has."""

type Row = Mapping[Any, Any]  # SQLAlchemy's RowMapping takes columns as keys, too


@dataclass(frozen=True, slots=True, kw_only=True)
class RepriceChange:
    """What repricing changes for one model. None: no line had, or has, a price."""

    requests: int = 0
    lines: int = 0
    before_picousd: int | None = None
    after_picousd: int | None = None
    lost_prices: int = 0
    """Lines of at least one unit that had a price and would have none."""

    def __add__(self, other: "RepriceChange") -> "RepriceChange":
        return RepriceChange(
            requests=self.requests + other.requests,
            lines=self.lines + other.lines,
            before_picousd=sum_of_known((self.before_picousd, other.before_picousd)),
            after_picousd=sum_of_known((self.after_picousd, other.after_picousd)),
            lost_prices=self.lost_prices + other.lost_prices,
        )


def changes(
    engine: Engine, book: PriceBook, scope: Scope, *, now: datetime, only_unpriced: bool = False
) -> dict[str | None, RepriceChange]:
    """What would change, by model; writes nothing."""
    found: dict[str | None, RepriceChange] = defaultdict(RepriceChange)
    with engine.connect() as connection:
        for repriced in _all(connection, book, scope, now, "", only_unpriced=only_unpriced):
            found[repriced.model] += repriced.change
    return dict(found)


def apply(
    engine: Engine,
    book: PriceBook,
    scope: Scope,
    *,
    now: datetime,
    reason: str,
    only_unpriced: bool = False,
) -> int:
    """Append the pricings; how many lines changed."""
    added = 0
    with engine.connect() as reader:
        batch: list[Row] = []
        for repriced in _all(reader, book, scope, now, reason, only_unpriced=only_unpriced):
            added += repriced.change.lines
            batch.append(repriced.pricing)
            if len(batch) >= BATCH:
                _append(engine, batch)
                batch = []
        _append(engine, batch)
    return added


def unpriced_questions(engine: Engine) -> list[tuple[PriceQuestion, str | None, datetime, int]]:
    """The look-ups of requests without any price, each with tier, last moment and how many."""
    r = requests.c
    facts = (r.origin, r.provider, r.path, r.request_model, r.response_model, r.service_tier)
    query = (
        sa.select(*facts, sa.func.max(r.opened_at).label("at"), sa.func.count().label("count"))
        .where(r.cost_state == "unpriced")
        .group_by(*facts)
        .order_by(sa.func.count().desc())
        .limit(UNPRICED_MAX)
    )
    with engine.connect() as connection:
        return [
            (
                PriceQuestion(
                    origin=row.origin,
                    provider=row.provider,
                    path=row.path,
                    request_model=row.request_model,
                    response_model=row.response_model,
                ),
                row.service_tier,
                row.at,
                row._mapping["count"],
            )
            for row in connection.execute(query)
        ]


@dataclass(frozen=True, slots=True)
class _Repriced:
    model: str | None
    change: RepriceChange
    pricing: Row


def _all(
    connection: Connection,
    book: PriceBook,
    scope: Scope,
    now: datetime,
    reason: str,
    *,
    only_unpriced: bool,
) -> Iterator[_Repriced]:
    """The readings whose charges differ now."""
    for batch in _batches(connection, scope, only_unpriced=only_unpriced):
        # The current charges of each reading, in order, and the newest of its further pricings.
        c, p = current_charges.c, pricings.c
        span = batch[0]["opened_at"], batch[-1]["opened_at"]
        wanted = {row["reading_id"] for row in batch}
        booked: dict[str, list[Row]] = defaultdict(list)
        query = sa.select(current_charges).where(c.opened_at.between(*span)).order_by(c.ordinal)
        for line in connection.execute(query).mappings():
            if line["reading_id"] in wanted:
                booked[line["reading_id"]].append(line)
        newest = sa.select(p.reading_id, sa.func.max(p.revision)).where(p.opened_at.between(*span))
        further = connection.execute(newest.group_by(p.reading_id))
        revisions = {pricing[0]: pricing[1] for pricing in further}
        for row in batch:
            of = row["reading_id"]
            exchange = Exchange(**{name: row[f"exchange_{name}"] for name in _PRICED_BY})
            lines = charge(exchange, reading_of(row), book, priced_at=now)
            # Charges of zero for booked lines that today's pricing no longer has.
            source = lines[0].price_source if lines else NO_SOURCE
            is_priced = any(line.amount_picousd is not None for line in lines)
            for gone in booked[of][len(lines) :]:
                unit = 0 if is_priced else None
                if gone["quantity"] == 0 and (gone["amount_picousd"] is not None) == is_priced:
                    unit = gone["unit_picousd"]
                lines += (
                    Charge(
                        line=gone["line"],
                        model=gone["model"],
                        quantity=0,
                        unit_picousd=unit,
                        amount_picousd=None if unit is None else 0,
                        price_source=source,
                        priced_at=now,
                        reason="no longer a line",
                    ),
                )
            repriced = _reprice(row, booked[of], lines, revisions.get(of, 1) + 1, reason)
            if repriced is not None:
                yield repriced


def _batches(
    connection: Connection, scope: Scope, *, only_unpriced: bool
) -> Iterator[Sequence[Row]]:
    """Exchanges with their current reading, in the order of their keys."""
    r = requests.c
    names = [r[name].label(f"exchange_{name}") for name in _PRICED_BY]
    query = (
        sa.select(*names, *readings.c, r.model, r.reading_id)
        .select_from(
            requests.join(
                readings,
                (readings.c.opened_at == r.opened_at)
                & (readings.c.exchange_id == r.id)
                & (readings.c.id == r.reading_id),
            )
        )
        # PostgreSQL does not see by itself that readings are of the period, too.
        .where(*conditions(scope, connection.dialect.name), *within(scope, readings.c.opened_at))
        .order_by(r.opened_at, r.id)
        .limit(BATCH)
    )
    if only_unpriced:
        query = query.where(r.cost_state.in_(("unpriced", "partial")))
    rows = connection.execute(query).mappings().all()
    while rows:
        yield rows
        at = sa.literal(rows[-1]["opened_at"], r.opened_at.type)
        is_later = sa.tuple_(r.opened_at, r.id) > sa.tuple_(at, sa.literal(rows[-1]["exchange_id"]))
        rest = query.where(is_later, r.opened_at >= at, readings.c.opened_at >= at)
        rows = connection.execute(rest).mappings().all()


def _reprice(
    reading: Row, booked: list[Row], now: Sequence[Charge], revision: int, reason: str
) -> _Repriced | None:
    """The pricing of this revision; None: every line is as booked."""
    lines: list[Charge] = []
    documents: list[list[Any]] = []
    own: list[str] = []
    for ordinal, line_now in enumerate(now):
        line = line_now
        old = booked[ordinal] if ordinal < len(booked) else None
        if old is not None and all(getattr(line, name) == old[name] for name in _FIGURES):
            line = replace(line, **{name: old[name] for name in _SOURCE})
            place = [old["id"], ordinal, old["revision"], old["supersedes"], KEPT]
        else:
            # Of the content, so that a ledger merged with one that was repriced alike is the same.
            line_revision = old["revision"] + 1 if old else 1
            own.append(f"{ordinal}.{line_revision}.{line_digest(line)}")
            name = f"{reading['reading_id']}.{own[-1]}"
            place = [name, ordinal, line_revision, old and old["id"], OWN]
            line = replace(line, reason=f"{reason}; {line.reason}" if line.reason else reason)
        lines.append(line)
        documents.append([*batch_insert.charge_values(line), *place])
    if not own:
        return None
    usage_source = usage_source_of(reading["usage_source"])
    pricing = {
        "id": f"{revision}:{','.join(own)}",
        "exchange_id": reading["exchange_id"],
        "opened_at": reading["opened_at"],
        "reading_id": reading["reading_id"],
        "revision": revision,
        **asdict(pricing_of(lines, usage_source)),
        "charges": orjson.dumps(documents).decode(),
    }
    change = RepriceChange(
        requests=1,
        lines=len(own),
        before_picousd=sum_of_known(old["amount_picousd"] for old in booked),
        after_picousd=sum_of_known(line.amount_picousd for line in lines),
        lost_prices=sum(
            bool(old["quantity"]) and old["unit_picousd"] is not None and line.unit_picousd is None
            for old, line in zip(booked, lines, strict=False)
        ),
    )
    return _Repriced(reading["model"], change, pricing)


def line_digest(line: Any) -> str:
    """The end of the id of a line that was priced again: a digest of what it costs."""
    content = f"{line.line}|{line.model}|{line.quantity}|{line.unit_picousd}|{line.price_source}"
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def _append(engine: Engine, rows: Sequence[Row]) -> None:
    if rows:
        insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert(pricings)
        with db.writing(engine) as connection:
            connection.execute(insert.on_conflict_do_nothing(), list(rows))
