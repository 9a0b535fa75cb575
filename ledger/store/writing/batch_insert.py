"""Database. A batch of exchanges, readings and charges as one SQLite statement.

A busy event loop holds the interpreter lock nearly all the time, and sqlite3 releases and
reacquires the lock at every step of a statement: each step may cost the 5 ms switch interval
(measured: 7 ms for one statement beside a busy thread, 16 ms for a transaction of four). So a batch
is a single `INSERT INTO intake VALUES (…), (…)` on a temporary view, whose trigger does everything
else inside SQLite with the lock released, and which is its own transaction: one wait, one fsync.

Bound parameters, and not one JSON document for `json_each`: measured 87 µs against 256 µs per
exchange for an open and a settled row, a reading and three charges. Statements come in sizes of a
power of two, padded with empty rows, so that the driver's cache holds them compiled.
"""

import hashlib
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Any, get_args, get_origin

import orjson
from msgspec.structs import asdict, astuple

from ledger.model.charge import Charge, Pricing, pricing_of
from ledger.model.columns import TEXT_CHARACTERS_MAX, columns_of
from ledger.model.exchange import Exchange, Quota, Reading
from ledger.model.usage import Usage
from ledger.store.keys import instant_text
from ledger.store.schema import links

ROWS_MAX = 32
"""Rows of one statement. Each size stays compiled once it was needed: all of them up to 64 rows
take 1 MB more, for a tenth less of CPU time per row in full batches (measured)."""

type Row = list[Any]

EXCHANGE_COLUMNS = tuple(columns_of(Exchange))
READING_COLUMNS = tuple(
    name
    for name in (*columns_of(Reading), *columns_of(Usage))
    if name not in ("exchange_id", "opened_at")
)
CHARGE_COLUMNS = tuple(name for name in columns_of(Charge) if name != "supersedes")
PRICING = Pricing.__struct_fields__

INTAKE_COLUMNS = (
    *EXCHANGE_COLUMNS,
    "reading_id",
    *(f"reading_{name}" for name in READING_COLUMNS),
    *PRICING,
    "charges",
    "segments",
    "quotas",
    "observed_at",
)
_NO_READING: Row = [None] * (len(INTAKE_COLUMNS) - len(EXCHANGE_COLUMNS))
_NO_ROW: Row = [None] * len(INTAKE_COLUMNS)

opened_at_of = itemgetter(EXCHANGE_COLUMNS.index("opened_at"))
"""The moment of a row, as text that sorts."""
_CHARGED = INTAKE_COLUMNS.index(PRICING[0])
_NODE = EXCHANGE_COLUMNS.index("node")
_DEGRADED = EXCHANGE_COLUMNS.index("degraded")


def _sql_value_of(kind: Any) -> Callable[[Any], Any] | None:
    """The function that converts a value of this type for SQLite; None: no conversion."""
    kind = next((each for each in get_args(kind) if NoneType in get_args(kind)), kind)
    if kind is datetime:
        return _instant
    if get_origin(kind) in (dict, Mapping):
        return _json
    if get_origin(kind) is tuple:
        return _json_array
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return operator.attrgetter("_value_")  # `value` is a property, five times as slow
    return None


def _values_of(kinds: Mapping[str, Any]) -> Callable[[Any], Row]:
    """A function that makes a row from a record: dotted names of its columns -> their types."""
    read = operator.attrgetter(*kinds)
    changes = tuple(
        (at, change, {_json: "{}", _json_array: "[]"}.get(change, ""))
        for at, kind in enumerate(kinds.values())
        if (change := _sql_value_of(kind)) is not None
    )

    def values_of(record: Any) -> Row:
        values = list(read(record))
        for at, change, empty in changes:
            if value := values[at]:
                values[at] = change(value)
            elif value is not None:
                values[at] = empty
        return values

    return values_of


def open_row(exchange: Exchange, node: str | None) -> Row:
    """The row of an exchange that has no reading yet."""
    return _exchange_row(exchange, node) + _NO_READING


def settled_row(
    exchange: Exchange, reading: Reading, lines: Sequence[Charge], node: str | None
) -> Row:
    """The row of an exchange with its reading and charges."""
    values = reading_values(reading)
    charged = _charged(lines)
    return [
        *_exchange_row(exchange, node),
        _digest(reading.exchange_id, values, charged),
        *values,
        *astuple(pricing_of(lines, reading.usage_source)),
        charged.decode(),
        exchange.segments,
        quota_rows(exchange.quotas) if exchange.quotas else None,
        _instant(exchange.first_byte_at or exchange.settled_at or exchange.opened_at),
    ]


def reading_row(reading: Reading, lines: Sequence[Charge]) -> dict[str, Any]:
    """The row of a reading alone, by column, with its moments as such. Its id is a digest of it and
    of its charges: the same wherever they are written."""
    values, charged = reading_values(reading), _charged(lines)
    return {
        "id": _digest(reading.exchange_id, values, charged),
        "exchange_id": reading.exchange_id,
        **dict(zip(READING_COLUMNS, cleaned(values), strict=True)),
        "opened_at": reading.opened_at,
        "read_at": reading.read_at,
        **asdict(pricing_of(lines, reading.usage_source)),
        "charges": charged.decode(),
    }


def cleaned(row: Row) -> Row:
    """The row without lone surrogates, which JSON can hold and no database accepts as text."""
    return [
        value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for value in row
    ]


def uncharged(row: Row) -> Row:
    """The row without its charges: an unpriced row is better than none."""
    if row[_CHARGED + len(PRICING)] is None:
        return row
    unpriced = ["unpriced", *[None] * (len(PRICING) - 1), "[]"]
    return [*row[:_CHARGED], *unpriced, *row[_CHARGED + len(unpriced) :]]


def note(row: Row, reason: str) -> None:
    """Add a reason to the row's `degraded`, in front; once."""
    noted = row[_DEGRADED]
    if noted is None:
        row[_DEGRADED] = reason
    elif not noted.startswith(reason):
        row[_DEGRADED] = f"{reason}; {noted}"[:TEXT_CHARACTERS_MAX]


def statement(rows: Sequence[Row]) -> tuple[str, Row]:
    """The statement that inserts these rows, and its parameters."""
    assert 0 < len(rows) <= ROWS_MAX
    size = 1 << (len(rows) - 1).bit_length()
    parameters = list(chain(*rows, *[_NO_ROW] * (size - len(rows))))
    return _text(size), parameters


@cache
def _text(size: int) -> str:
    row = f"({', '.join('?' * len(INTAKE_COLUMNS))})"
    return f"INSERT INTO intake VALUES {', '.join([row] * size)}"


def _exchange_row(exchange: Exchange, node: str | None) -> Row:
    values = _exchange_values(exchange)
    if node is not None:
        values[_NODE] = node
    return values


def _digest(exchange_id: str, values: Row, charged: bytes) -> str:
    content = _dumps([exchange_id, *values]) + charged
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _charged(lines: Sequence[Charge]) -> bytes:
    return _dumps([charge_values(line) for line in lines])


def quota_rows(quotas: Sequence[Quota]) -> str:
    """JSON rows of `QUOTA_COLUMNS`."""
    rows = [
        (
            each.kind.value,
            each.window,
            each.window_name,
            each.window_minutes,
            each.limit,
            each.remaining,
            each.used_ppm,
            each.status,
            each.resets_at and _instant(each.resets_at),
        )
        for each in quotas
    ]
    return _dumps(rows).decode()


def _json(mapping: Any) -> str:
    return _dumps(dict(mapping)).decode()


def _json_array(values: Any) -> str:
    return _dumps(values).decode()


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=asdict)
    except TypeError:
        # A lone surrogate, which JSON can hold and UTF-8 cannot.
        text = json.dumps(value, ensure_ascii=False, default=asdict)
        return text.encode("utf-8", "replace")


@lru_cache(maxsize=64)  # a row has its moments twice: a fifth of the time to make it (measured)
def _instant(moment: datetime) -> str:
    if moment.tzinfo is not UTC:
        return instant_text(moment)
    return moment.isoformat(" ", "microseconds")[:26] + "Z"  # three times as fast as strftime


_exchange_values = _values_of({name: kind for name, (kind, _) in columns_of(Exchange).items()})
charge_values = _values_of({name: columns_of(Charge)[name][0] for name in CHARGE_COLUMNS})
"""The values of `CHARGE_COLUMNS` of a charge."""
reading_values = _values_of(
    {
        f"usage.{name}" if name in columns_of(Usage) else name: kind
        for name, (kind, _) in {**columns_of(Reading), **columns_of(Usage)}.items()
        if name in READING_COLUMNS
    }
)
"""The values of `READING_COLUMNS` of a reading."""


def setup(*, spooling: bool) -> list[str]:
    """The statements that create the intake of a connection."""
    noting = [_NOTE_CHANGE] if spooling else []
    programs = {
        # An open row is only inserted; everything else is done at its end (a sixth less, measured).
        "NEW.state = 'open'": [_UPSERT, *noting],
        "NEW.state <> 'open'": [_UPSERT, _READ, _SEGMENTS, _QUOTAS, _LINK, *noting],
    }
    return [
        *links.sqlite_linking(_LINKING),
        *links.taking_in("intake", INTAKE_COLUMNS, programs),
    ]


FURTHER = (
    "exchanges.state = 'open' AND excluded.state <> 'open' "
    "OR exchanges.state = 'lost' AND excluded.state = 'settled'"
)
"""When a row replaces one with the same key."""

# One row of the intake. A settled row stays as it is, so inserting a row twice is idempotent; an
# open or lost row is replaced.
_FACTS = [name for name in EXCHANGE_COLUMNS if name not in ("opened_at", "id")]
_UPSERT = f"""
INSERT INTO exchanges ({", ".join(EXCHANGE_COLUMNS)})
SELECT {", ".join(f"NEW.{name}" for name in EXCHANGE_COLUMNS)} WHERE true
ON CONFLICT (opened_at, id) DO UPDATE SET {", ".join(f"{n} = excluded.{n}" for n in _FACTS)}
WHERE {FURTHER}
"""

_READING_VALUES = ", ".join(
    # Usage that is not JSON is stored verbatim as a JSON string. SQLite before 3.45 calls NULL
    # invalid.
    "CASE WHEN NEW.reading_usage_json IS NOT NULL AND NOT json_valid(NEW.reading_usage_json) "
    "THEN json_quote(NEW.reading_usage_json) ELSE NEW.reading_usage_json END"
    if name == "usage_json"
    else f"NEW.reading_{name}"
    for name in READING_COLUMNS
)
_READ = f"""
INSERT INTO readings (id, exchange_id, opened_at, {", ".join(READING_COLUMNS)},
  {", ".join(PRICING)}, charges)
SELECT NEW.reading_id, NEW.id, NEW.opened_at, {_READING_VALUES},
  {", ".join(f"NEW.{name}" for name in PRICING)}, NEW.charges
WHERE NEW.reading_id IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM readings
  WHERE opened_at = NEW.opened_at AND exchange_id = NEW.id
    AND (revision >= MAX(NEW.reading_revision, 1) OR id = NEW.reading_id))
"""

_SEGMENTS = """
INSERT INTO segments (opened_at, exchange_id, packed)
SELECT NEW.opened_at, NEW.id, NEW.segments WHERE NEW.segments IS NOT NULL
ON CONFLICT DO NOTHING
"""

QUOTA_COLUMNS = (
    *("kind", "window", "window_name", "window_minutes"),
    *("limit_value", "remaining", "used_ppm", "status", "resets_at"),
)
RESET_SECONDS = 5
"""A reset that moves by less has not changed: some providers state it as a wait."""
_STATED = ", ".join(f"stated.value ->> {at}" for at in range(len(QUOTA_COLUMNS)))
_SAME_FIGURES = " AND ".join(
    f"last.{name} IS stated.value ->> {QUOTA_COLUMNS.index(name)}"
    for name in ("limit_value", "remaining", "used_ppm", "status")
)
# The last that was known of the same window before: a row only where a figure changed.
_QUOTAS = f"""
INSERT INTO quotas (opened_at, exchange_id, provider, key_fingerprint, account, holder,
  observed_at, {", ".join(f'"{name}"' for name in QUOTA_COLUMNS)})
SELECT NEW.opened_at, NEW.id, NEW.provider, NEW.key_fingerprint, NEW.account,
  COALESCE(NEW.account, NEW.key_fingerprint, ''), NEW.observed_at, {_STATED}
FROM json_each(NEW.quotas) AS stated
WHERE NEW.quotas IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM (
    SELECT * FROM quotas known WHERE known.provider = NEW.provider
      AND known.holder = COALESCE(NEW.account, NEW.key_fingerprint, '')
      AND known.kind = stated.value ->> 0 AND known."window" = stated.value ->> 1
      AND known.observed_at <= NEW.observed_at AND known.exchange_id <> NEW.id
    ORDER BY known.observed_at DESC LIMIT 1) last
  WHERE {_SAME_FIGURES} AND (last.resets_at IS stated.value ->> 8
    OR abs(julianday(last.resets_at) - julianday(stated.value ->> 8)) * 86400 < {RESET_SECONDS}))
ON CONFLICT DO NOTHING
"""

# Nearly every response is alone in its group, and then one lookup is enough. The stored row is
# linked: it may differ from the new one if the exchange had been settled before.
_LINKING = "linking"
_LINK = links.inserting(
    _LINKING,
    "NEW.state <> 'open' AND NEW.response_id IS NOT NULL "
    "AND e.opened_at = NEW.opened_at AND e.id = NEW.id",
)

_NOTE_CHANGE = "INSERT INTO outbox (exchange_id, opened_at) VALUES (NEW.id, NEW.opened_at)"
