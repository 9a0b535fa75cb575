"""Database. Sessions of hosted agents: what a running total states beyond what is booked of it.

The rows of a session have its id, one origin and one dialect:

    SESSION_REQUEST   one model request, with its own figures
    SESSION_TOTAL     what a running total stated beyond all rows that were booked before it

So the sum of the rows is what was stated last. A total that states nothing new makes no row, but
for the first one of a session, which has its model. A request that is read after a total that has
it takes its figures from the rows of totals that were stated after it: they get a further reading.
A newer total below the one before it has NULL for what is less than is booked, and a remark.
"""

import sqlite3
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from ledger.model.charge import DIFFERS, Charge, remarked
from ledger.model.exchange import (
    SESSION_OPERATIONS,
    SESSION_REQUEST,
    SESSION_TOTAL,
    Exchange,
    Reading,
    State,
)
from ledger.model.money import usd_text
from ledger.model.usage import TOKENS, Usage
from ledger.store.keys import exchange_of, instant_text, reading_of
from ledger.store.writing import batch_insert

TAKEN = "requests of the session have rows of their own"
"""The reason of the further reading of a total."""
FELL = "the session's total of {} fell"
AMOUNT_LENGTH_MAX = 20
"""Digits of an amount that is stated as a text."""
PICOUSD_PER_CENT = 10**10
"""What a session states as its cost is in whole cents."""
DEPTH_MAX = 4
"""Of the objects in a usage object that are compared."""

_CURRENT = (
    "FROM exchanges e JOIN readings r ON r.opened_at = e.opened_at AND r.exchange_id = e.id "
    "WHERE e.session_id = ? AND e.origin = ? AND e.dialect = ? AND e.operation = ? "
    "AND e.state = 'settled' AND NOT EXISTS (SELECT 1 FROM readings n WHERE "
    "n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id AND n.revision > r.revision)"
)
_COST = "reported_cost_picousd"
_WRITES = ("cache_write_5m_tokens", "cache_write_1h_tokens")
_SUMS = f"SELECT {', '.join(f'SUM(r.{name})' for name in (*TOKENS, _COST))} {_CURRENT}"
_UNITS = f"""SELECT u.key, SUM(u.value) FROM (SELECT r.tool_units {_CURRENT}) t,
  json_each(t.tool_units) u GROUP BY u.key"""
_LAST = (
    f"SELECT e.settled_at, r.usage_json {_CURRENT} ORDER BY e.settled_at DESC, e.id DESC LIMIT 1"
)
_MODEL = (
    f"SELECT e.request_model {_CURRENT} AND e.request_model IS NOT NULL "
    "ORDER BY e.settled_at DESC LIMIT 1"
)
_OURS = f"""SELECT COALESCE(SUM(r.amount_picousd), 0), COUNT(CASE WHEN r.cost_state <> 'priced'
  THEN 1 END) {_CURRENT}"""
_EXCHANGE = batch_insert.EXCHANGE_COLUMNS
_READING = batch_insert.READING_COLUMNS
# The oldest first: a later request cannot be in it.
_HOLDING = (
    f"SELECT {', '.join(f'e.{name}' for name in _EXCHANGE)}, "
    f"{', '.join(f'r.{name}' for name in _READING)} {_CURRENT} "
    "AND e.settled_at >= ? AND (r.input_tokens > 0 OR r.output_tokens > 0) "
    "ORDER BY e.settled_at, e.id LIMIT ?"
)
HOLDING_MAX = 100
"""Rows of totals that one request takes its figures from: it is in the first one, nearly always."""
_IS_KNOWN = "SELECT 1 FROM exchanges WHERE id = ? AND state = 'settled'"
_PLACE = f"""INSERT INTO readings (id, exchange_id, opened_at, {", ".join(_READING)},
  {", ".join(batch_insert.PRICING)}, charges)
VALUES ({", ".join("?" * (len(_READING) + len(batch_insert.PRICING) + 4))})"""

type Price = Callable[[Exchange, Reading], tuple[Charge, ...]]


class _Total(NamedTuple):
    """A row of a total, with its current reading."""

    exchange: Exchange
    reading: Reading


def booked(
    connection: sqlite3.Connection, exchange: Exchange, reading: Reading, price: Price
) -> tuple[Exchange, Reading] | None:
    """The row to write for a statement; None: the ledger has it. In the caller's transaction."""
    if connection.execute(_IS_KNOWN, (exchange.id,)).fetchone() is not None:
        return None
    session = exchange.session_id, exchange.origin, exchange.dialect
    of_totals = (*session, SESSION_TOTAL)
    if exchange.request_model is None:
        model = connection.execute(_MODEL, of_totals).fetchone()
        exchange = replace(exchange, request_model=model and model[0])
    if exchange.operation == SESSION_REQUEST:
        left = {name: getattr(reading.usage, name) or 0 for name in TOKENS}
        since = instant_text(exchange.opened_at)
        for row in connection.execute(_HOLDING, (*of_totals, since, HOLDING_MAX)).fetchall():
            if left["input_tokens"] or left["output_tokens"]:
                _take(connection, _total_of(row), left, reading.read_at, price)
        return exchange, reading
    last = connection.execute(_LAST, of_totals).fetchone()
    is_newer = last is None or last[0] <= instant_text(exchange.settled_at or exchange.opened_at)
    usage = _difference(
        reading.usage,
        _sums(connection, of_totals),
        _sums(connection, (*session, SESSION_REQUEST)),
        dict(connection.execute(_UNITS, of_totals).fetchall()),
        has_fallen=last is not None and is_newer and _has_fallen(last[1], reading.usage_json),
    )
    counts = (*(getattr(usage, name) for name in TOKENS), *usage.tool_units.values())
    if last and not any(counts) and not getattr(usage, _COST) and not usage.remarks:
        return None
    booked_reading = replace(reading, usage=usage)
    theirs = reading.usage.reported_cost_picousd
    ours = (
        None if theirs is None else _our_cost(connection, session, exchange, booked_reading, price)
    )
    if theirs is not None and ours is not None and abs(theirs - ours) > PICOUSD_PER_CENT:
        differ = f"{DIFFERS}: ${usd_text(theirs)} for the session, and the list value is "
        remarks = (*usage.remarks, f"{differ}${usd_text(ours)}")
        booked_reading = replace(reading, usage=replace(usage, remarks=remarks))
    return exchange, booked_reading


def _our_cost(
    connection: sqlite3.Connection,
    session: tuple[object, ...],
    exchange: Exchange,
    reading: Reading,
    price: Price,
) -> int | None:
    """The list value of a session with this row; None: some of it has no price."""
    ours = 0
    for operation in SESSION_OPERATIONS:
        amount, unpriced = connection.execute(_OURS, (*session, operation)).fetchone()
        if unpriced:
            return None
        ours += amount
    for line in price(exchange, reading):
        if line.amount_picousd is None:
            return None
        ours += line.amount_picousd
    return ours


def _sums(connection: sqlite3.Connection, rows: tuple[object, ...]) -> dict[str, int]:
    sums = connection.execute(_SUMS, rows).fetchone()
    return {name: count or 0 for name, count in zip((*TOKENS, _COST), sums, strict=True)}


def _has_fallen(before: str | None, now: str | None) -> bool:
    """Whether a figure of the provider's is below the one that it stated last."""
    figures = _figures(_loaded(now))
    return any(
        figures.get(name, count) < count for name, count in _figures(_loaded(before)).items()
    )


def _loaded(usage: str | None) -> object:
    try:
        return None if usage is None else orjson.loads(usage)
    except orjson.JSONDecodeError:  # a number that no one can hold
        return None


def _figures(usage: object, place: str = "", depth: int = DEPTH_MAX) -> dict[str, float]:
    """The numbers of a usage object, by their places in it."""
    if isinstance(usage, dict):
        held = usage.items() if depth else ()
        inner = [_figures(value, f"{place}.{key}", depth - 1) for key, value in held]
        return {name: count for each in inner for name, count in each.items()}
    if isinstance(usage, str) and usage.isdecimal() and len(usage) <= AMOUNT_LENGTH_MAX:
        return {place: float(usage)}
    return {place: usage} if isinstance(usage, int | float) else {}


def _difference(
    stated: Usage,
    totals: Mapping[str, int],
    requests: Mapping[str, int],
    units: Mapping[str, int],
    *,
    has_fallen: bool,
) -> Usage:
    """What is stated beyond the totals before it and the requests."""
    remarks = []

    def beyond(name: str, count: int | None, before: int) -> int | None:
        left = None if count is None else count - before
        if left is None or left >= 0:
            return left
        if not has_fallen:
            return 0  # it is older than what is booked, or lags behind the requests
        remarks.append(FELL.format(name))
        return None

    found: dict[str, Any] = {
        name: beyond(name, getattr(stated, name), totals[name] + requests[name]) for name in TOKENS
    }
    if found["cache_write_tokens"] != sum(found[name] or 0 for name in _WRITES):
        found |= dict.fromkeys(_WRITES)  # the requests do not say how long theirs are kept
    found[_COST] = beyond("list cost", stated.reported_cost_picousd, totals[_COST])
    left = {name: beyond(name, n, units.get(name, 0)) for name, n in stated.tool_units.items()}
    tool_units = {name: count for name, count in left.items() if count}
    return replace(stated, **found, tool_units=tool_units, remarks=(*stated.remarks, *remarks))


def _take(
    connection: sqlite3.Connection,
    total: _Total,
    left: dict[str, int],
    at: datetime,
    price: Price,
) -> None:
    """Take what is left of a request's figures from a total, by a further reading."""
    usage, taken = total.reading.usage, dict[str, int | None]()
    for name in TOKENS:
        held = getattr(usage, name) or 0
        if held and left[name]:
            taken[name] = held - min(held, left[name])
            left[name] -= min(held, left[name])
    if not taken:
        return
    if "cache_write_tokens" in taken:
        taken |= dict.fromkeys(_WRITES, None if taken["cache_write_tokens"] else 0)
    reading = replace(
        total.reading,
        usage=replace(usage, **taken),
        revision=total.reading.revision + 1,
        read_at=at,
        reason=TAKEN,
    )
    lines = price(total.exchange, reading)
    row = batch_insert.settled_row(total.exchange, remarked(reading, lines), lines, None)
    place = len(_EXCHANGE)
    values = row[place : place + 1 + len(_READING) + len(batch_insert.PRICING) + 1]
    key = (values[0], total.exchange.id, instant_text(total.exchange.opened_at))
    connection.execute(_PLACE, (*key, *values[1:]))


def _total_of(row: tuple[Any, ...]) -> _Total:
    exchange = dict(zip(_EXCHANGE, row, strict=False))
    reading = dict(zip(_READING, row[len(_EXCHANGE) :], strict=True))
    reading |= {"exchange_id": exchange["id"], "opened_at": exchange["opened_at"]}
    for values in (exchange, reading):
        for name, value in values.items():
            if name.endswith("_at") and value is not None:
                values[name] = datetime.fromisoformat(value)
    if reading["is_byok"] is not None:
        reading["is_byok"] = bool(reading["is_byok"])
    assert exchange["state"] == State.SETTLED
    return _Total(exchange_of(exchange), reading_of(reading))
