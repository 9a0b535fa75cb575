"""Database. Sessions of hosted agents: what counts of running totals that overlap.

The rows of a session have its id, one origin and one dialect:

    SESSION_REQUEST   one model request, with its own figures
    SESSION_TOTAL     a running total: its first reading has what was stated, the current one what
                      that is beyond the totals and the requests before it

So the sum of the rows is what was stated last. `counted` is the rule. What it finds depends on the
set of rows alone, so rows may come in any order, and from other ledgers: whoever adds some calls
`further` for the readings that the others need then. A total that changes no sum makes no row, but
for the first one of a session, which has its model. A newer total below the one before it has NULL
for what is less than is booked, and a remark.

A request is in a total that was stated later, or that was fetched after the request was read: the
moment of a fetched total is of our clock, and the request's of the provider's.
"""

import sqlite3
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, groupby, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from ledger.model.charge import DIFFERS, Charge, pricing_of
from ledger.model.exchange import SESSION_OPERATIONS, SESSION_TOTAL, Exchange, Reading
from ledger.model.money import usd_text
from ledger.model.usage import TOKENS, Usage
from ledger.store.keys import exchange_of, instant_text, list_of, object_of, reading_of
from ledger.store.schema.charged import READING_ORDER, joined_reading
from ledger.store.writing import batch_insert

BEYOND = "what the total states beyond the session's other rows"
"""The reason of the further reading of a total."""
AGAIN = "the session has this request in another row"
FELL = "the session's total of {} fell"
AMOUNT_LENGTH_MAX = 20
"""Digits of an amount that is stated as a text."""
PICOUSD_PER_CENT = 10**10
"""What a session states as its cost is in whole cents."""
DEPTH_MAX = 4
"""Of the objects in a usage object that are compared."""

_COST = "reported_cost_picousd"
_COUNTS = (*TOKENS, _COST)
_COUNTED = (*_COUNTS, "tool_units", "remarks")
_WRITES = ("cache_write_5m_tokens", "cache_write_1h_tokens")
SESSION = (
    "e.session_id = :session_id AND e.origin = :origin AND e.dialect = :dialect "
    f"AND e.operation IN {SESSION_OPERATIONS} AND e.state = 'settled' AND e.outcome = 'complete'"
)
"""The rows of a session, for both databases. A refused request to a session states nothing."""
# For both databases: JSON as text.
_COLUMNS = f"""e.opened_at, e.id, e.operation, e.settled_at, r.id, r.read_at,
  CAST(r.usage_json AS TEXT), CAST(r.tool_units AS TEXT), CAST(r.remarks AS TEXT), r.cost_state,
  r.amount_picousd, {", ".join(f"r.{name}" for name in _COUNTS)}"""
_FROM = (
    "FROM exchanges e JOIN readings r ON r.opened_at = e.opened_at AND r.exchange_id = e.id "
    f"WHERE {SESSION}"
)
_ORDER = f"ORDER BY e.opened_at, e.id, {READING_ORDER.format('r')}"
READINGS = f"SELECT {_COLUMNS} {_FROM} {_ORDER}"
"""All readings of a session, for `rows_of`."""
# Of what is older than anything new, the writer needs the sums alone: a session that is fetched
# every second has thousands of totals.
_IS_TOTAL = f"e.operation = '{SESSION_TOTAL}'"
_AT = f"CASE WHEN {_IS_TOTAL} THEN COALESCE(e.settled_at, e.opened_at) ELSE e.opened_at END"
_SINCE = f"SELECT {_COLUMNS} {_FROM} AND {_AT} >= :since {_ORDER}"
_BEFORE = f"FROM exchanges e {joined_reading('sqlite')} WHERE {SESSION} AND {_AT} < :since"
_READ_AT = f"""CASE WHEN {_IS_TOTAL} THEN CASE WHEN e.opened_at = {_AT} THEN e.opened_at
  ELSE (SELECT MIN(f.read_at) FROM readings f WHERE f.opened_at = e.opened_at
    AND f.exchange_id = e.id) END END"""
_SUMS = f"""SELECT MAX({_READ_AT}),
  COUNT(CASE WHEN r.cost_state <> 'priced' THEN 1 END), SUM(r.amount_picousd),
  SUM(CASE WHEN {_IS_TOTAL} THEN r.{_COST} END), {", ".join(f"SUM(r.{name})" for name in TOKENS)}
{_BEFORE}"""
_UNITS = f"""SELECT u.key, SUM(u.value) FROM (SELECT r.tool_units {_BEFORE} AND {_IS_TOTAL}) t,
  json_each(t.tool_units) u GROUP BY u.key"""
_LAST = f"SELECT {_COLUMNS} {_BEFORE} AND {_IS_TOTAL} ORDER BY e.settled_at DESC, e.id DESC LIMIT 1"
_EXCHANGE = batch_insert.EXCHANGE_COLUMNS
_READING = batch_insert.READING_COLUMNS
_WHOLE = f"""SELECT {", ".join(f"e.{name}" for name in _EXCHANGE)},
  {", ".join(f"r.{name}" for name in _READING)}
FROM exchanges e JOIN readings r ON r.opened_at = e.opened_at AND r.exchange_id = e.id
WHERE e.opened_at = ? AND e.id = ? AND r.id = ?"""
_MODEL = (
    f"SELECT e.request_model FROM exchanges e WHERE {SESSION} AND e.request_model IS NOT NULL "
    f"AND e.operation = '{SESSION_TOTAL}' ORDER BY e.settled_at DESC LIMIT 1"
)
_IS_KNOWN = "SELECT 1 FROM exchanges WHERE id = ? AND state = 'settled'"

type Price = Callable[[Exchange, Reading], tuple[Charge, ...]]
type Further = tuple[Exchange, Reading, tuple[Charge, ...]]


class Row(NamedTuple):
    """What the rows of one session need to know of each other."""

    opened_at: datetime
    id: str
    reading_id: str
    """Of the current reading."""
    is_total: bool
    at: datetime
    """When it was stated."""
    read_at: datetime
    """When it was read first."""
    usage_json: str | None
    stated: Usage
    booked: Usage
    """Of the current reading."""
    amount: int | None
    """Its list value; None: some of it has no price."""


class Before(NamedTuple):
    """What counts before the rows that are looked at."""

    counts: Mapping[str, int] = {}
    """Tokens."""
    of_totals: Mapping[str, int] = {}
    """The list cost and the units, which requests do not state."""
    ours: int | None = 0
    """The list value of all; None: some of it has no price."""
    last: Row | None = None
    """The last total."""
    read_by: datetime | None = None
    """When the latest of the totals was read: requests that were read before are in it."""


NOTHING = Before()


def book(
    connection: sqlite3.Connection, exchange: Exchange, reading: Reading
) -> tuple[Exchange, Reading] | None:
    """The row to write for a statement, as stated; None: it says nothing new. Call `settle` behind
    it, in the same transaction."""
    if connection.execute(_IS_KNOWN, (exchange.id,)).fetchone() is not None:
        return None
    session = _name_of(exchange)
    if exchange.request_model is None:
        model = connection.execute(_MODEL, session).fetchone()
        exchange = replace(exchange, request_model=model and model[0])
    if exchange.operation == SESSION_TOTAL:
        rows, before = _looked_at(connection, exchange, moment_of(exchange))
        row = Row(
            opened_at=exchange.opened_at,
            id=exchange.id,
            reading_id="",
            is_total=True,
            at=moment_of(exchange),
            read_at=reading.read_at,
            usage_json=reading.usage_json,
            stated=reading.usage,
            booked=reading.usage,
            amount=None,
        )
        if before.last or any(each.is_total for each in rows):
            found = [*counted([*rows, row], before)]
            own = next(usage for each, usage in found if each is row)
            if own.remarks == () and _sums(found) == _sums(counted(rows, before)):
                return None
    return exchange, reading


def settle(
    connection: sqlite3.Connection, of: Exchange, since: datetime, price: Price, at: datetime
) -> None:
    """Give the rows of a session the readings that they need, in the caller's transaction. `of`:
    one of its rows; `since`: the earliest moment of a new one; `at`: the time of the readings."""

    def whole(row: Row) -> tuple[Exchange, Reading]:
        key = instant_text(row.opened_at), row.id, row.reading_id
        return _whole(connection.execute(_WHOLE, key).fetchone())

    rows, before = _looked_at(connection, of, since)
    for exchange, reading, lines in [*further(rows, whole, price, at, before)]:
        row = batch_insert.settled_row(exchange, reading, lines, None)
        connection.execute(*batch_insert.statement([row]))


def moment_of(exchange: Exchange) -> datetime:
    """When it was stated."""
    is_total = exchange.operation == SESSION_TOTAL
    return (exchange.settled_at if is_total else None) or exchange.opened_at


def _looked_at(
    connection: sqlite3.Connection, of: Exchange, since: datetime
) -> tuple[list[Row], Before]:
    """The rows of a session from a moment on, and what counts before them."""
    named = {**_name_of(of), "since": instant_text(since)}
    rows = rows_of(connection.execute(_SINCE, named))
    last = rows_of(connection.execute(_LAST, named))
    read_by, unpriced, ours, cost, *counts = connection.execute(_SUMS, named).fetchone()
    units = dict(connection.execute(_UNITS, named).fetchall())
    return rows, Before(
        counts={name: count or 0 for name, count in zip(TOKENS, counts, strict=True)},
        of_totals={_COST: cost or 0, **units},
        ours=None if unpriced else ours or 0,
        last=last[0] if last else None,
        read_by=read_by and datetime.fromisoformat(read_by),
    )


def rows_of(found: Iterable[Any]) -> list[Row]:
    """The rows of a session; `found`: those of `READINGS`."""
    rows = []
    for (opened_at, name), readings in groupby(found, itemgetter(0, 1)):
        current, *others = readings
        first = others[-1] if others else current
        is_total = current[2] == SESSION_TOTAL
        amount = current[10] if current[9] == "priced" else None
        booked = _usage(current)
        rows.append(
            Row(
                opened_at=_moment(opened_at),
                id=name,
                reading_id=current[4],
                is_total=is_total,
                at=_moment(current[3] if is_total and current[3] is not None else opened_at),
                read_at=min(_moment(each[5]) for each in (current, *others)),
                usage_json=first[6],
                stated=_usage(first) if others else booked,
                booked=booked,
                amount=0 if current[9] is None else amount,
            )
        )
    return rows


def further(
    rows: Sequence[Row],
    whole: Callable[[Row], tuple[Exchange, Reading]],
    price: Price,
    at: datetime,
    before: Before = NOTHING,
) -> Iterator[Further]:
    """The readings that the rows of a session need, so that each has what counts of it. `whole`
    gives a row's exchange and its current reading."""

    def again(row: Row, usage: Usage) -> Further:
        exchange, reading = whole(row)
        found = {name: getattr(usage, name) for name in _COUNTED}
        reading = replace(
            reading,
            usage=replace(reading.usage, **found),
            revision=reading.revision + 1,
            read_at=at,
            reason=BEYOND if row.is_total else AGAIN,
        )
        return exchange, reading, price(exchange, reading)

    ours = before.ours
    for row, counts in counted(rows, before):
        usage, amount, made, has = counts, row.amount, None, row.booked
        if _plain(usage) != _plain(has):
            made, has = again(row, usage), usage
            pricing = pricing_of(made[2], made[1].usage_source)
            amount = pricing.amount_picousd if pricing.cost_state == "priced" else None
        ours = None if ours is None or amount is None else ours + amount
        theirs = row.stated.reported_cost_picousd if row.is_total else None
        if theirs is not None and ours is not None and abs(theirs - ours) > PICOUSD_PER_CENT:
            differ = f"{DIFFERS}: ${usd_text(theirs)} for the session, and the list value is "
            usage = replace(usage, remarks=(*usage.remarks, f"{differ}${usd_text(ours)}"))
        if usage.remarks != has.remarks:
            made = again(row, usage)
        if made is not None:
            yield made


def counted(rows: Sequence[Row], earlier: Before = NOTHING) -> Iterator[tuple[Row, Usage]]:
    """What counts of each row of a session, in the order of time: what a request has, once, and
    what a total states beyond all that counts before it."""
    totals = sorted((row for row in rows if row.is_total), key=lambda row: (row.at, row.id))
    stated_at = [row.at for row in totals]
    # One with a moment of the provider's own began and ended then.
    read_at = [row.at if row.opened_at == row.at else row.read_at for row in totals]
    read_by = [*accumulate(read_at, max)]
    before: list[list[Row]] = [[] for _ in range(len(totals) + 1)]
    again, known = set[int](), set[str]()
    for row in rows:
        if not row.is_total:
            place = min(bisect_left(stated_at, row.at), bisect_right(read_by, row.read_at))
            is_in_earlier = earlier.read_by is not None and row.read_at < earlier.read_by
            before[0 if is_in_earlier else place].append(row)
            if row.id in known:
                again.add(id(row))
            known.add(row.id)
    counts, of_totals, last = Counter(earlier.counts), Counter(earlier.of_totals), earlier.last
    for requests, total in zip_longest(before, totals):
        for row in requests:
            usage = row.booked
            if id(row) in again:
                none = {name: getattr(usage, name) and 0 for name in TOKENS}
                usage = replace(usage, **none, tool_units={})
            counts.update({name: getattr(usage, name) or 0 for name in TOKENS})
            yield row, usage
        if total is not None:
            usage = _difference(total, counts, of_totals, last)
            counts.update({name: getattr(usage, name) or 0 for name in TOKENS})
            of_totals.update({_COST: usage.reported_cost_picousd or 0, **usage.tool_units})
            last = total
            yield total, usage


def _difference(
    total: Row, counts: Mapping[str, int], of_totals: Mapping[str, int], last: Row | None
) -> Usage:
    """What is stated beyond what counts before it. `of_totals`: of the list cost and of units,
    which requests do not state; `last`: the total before it."""
    stated, remarks = total.stated, []

    def beyond(name: str, count: int | None, before: int) -> int | None:
        left = None if count is None else count - before
        if left is None or left >= 0:
            return left
        is_newer = last is not None and last.read_at <= total.read_at
        if last is None or not is_newer or not _has_fallen(last.usage_json, total.usage_json):
            return 0  # it lags behind the requests
        remarks.append(FELL.format(name))
        return None

    found: dict[str, Any] = {
        name: beyond(name, getattr(stated, name), counts[name]) for name in TOKENS
    }
    if found["cache_write_tokens"] != sum(found[name] or 0 for name in _WRITES):
        # The requests do not say how long theirs are kept.
        found |= dict.fromkeys(_WRITES, None if found["cache_write_tokens"] else 0)
    found[_COST] = beyond("list cost", stated.reported_cost_picousd, of_totals[_COST])
    units = {name: beyond(name, n, of_totals[name]) for name, n in stated.tool_units.items()}
    # Without those that are booked; one that is stated as none stays.
    tool_units = {name: n for name, n in units.items() if n or n == stated.tool_units[name]}
    return replace(stated, **found, tool_units=tool_units, remarks=(*stated.remarks, *remarks))


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


def _sums(found: Iterable[tuple[Row, Usage]]) -> Counter[str]:
    """What the rows of a session add up to."""
    sums: Counter[str] = Counter()
    for _, usage in found:
        sums.update({name: getattr(usage, name) or 0 for name in _COUNTS})
        sums.update(usage.tool_units)
    return sums


def _plain(usage: Usage) -> tuple[object, ...]:
    """The figures to compare, without the remark on a list cost that differs."""
    remarks = [each for each in usage.remarks if not each.startswith(DIFFERS)]
    return (*(getattr(usage, name) for name in _COUNTS), dict(usage.tool_units), remarks)


def _name_of(exchange: Exchange) -> dict[str, str | None]:
    """The parameters of `SESSION`."""
    names = "session_id", "origin", "dialect"
    return {name: getattr(exchange, name) for name in names}


def _usage(row: Sequence[Any]) -> Usage:
    return Usage(
        **dict(zip(_COUNTS, row[11:], strict=True)),
        tool_units=object_of(row[7], int),
        remarks=tuple(list_of(row[8], str)),
    )


def _moment(value: Any) -> datetime:
    """A moment as PostgreSQL or SQLite gives it."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _whole(row: tuple[Any, ...]) -> tuple[Exchange, Reading]:
    exchange = dict(zip(_EXCHANGE, row, strict=False))
    reading = dict(zip(_READING, row[len(_EXCHANGE) :], strict=True))
    reading |= {"exchange_id": exchange["id"], "opened_at": exchange["opened_at"]}
    for values in (exchange, reading):
        for name, value in values.items():
            if name.endswith("_at") and value is not None:
                values[name] = datetime.fromisoformat(value)
    if reading["is_byok"] is not None:
        reading["is_byok"] = bool(reading["is_byok"])
    return exchange_of(exchange), reading_of(reading)
