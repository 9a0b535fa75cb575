"""Database. A batch of exchanges, readings and charges as one SQLite statement.

The proxy's event loop holds the interpreter lock nearly all of the time when it is busy, and
sqlite3 gives the lock up and asks for it again at every step of a statement: each may cost the
5 ms switch interval (measured: 7 ms for one statement beside a busy thread, 16 ms for a
transaction of four). So a batch is a single `INSERT INTO intake VALUES (…), (…)` on a temporary
view, whose trigger does everything else inside SQLite with the lock released, and which is its own
transaction: one wait, one fsync.

Bound parameters, and not one JSON document for `json_each`: measured 87 µs against 256 µs per
exchange for an open and a settled row, a reading and three charges. Statements come in sizes of a
power of two, padded with empty rows, so that the driver's cache holds them compiled.
"""

import hashlib
import json
import operator
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from functools import cache
from typing import Any

import orjson

from ledger.model.records import Charge, Exchange, Reading
from ledger.store.tables import charges, exchanges, instant_text, readings

ROWS_MAX = 256
"""Rows of one statement: 20 000 parameters, below SQLite's default of 32 766, and at the
2 000 exchanges/s that a proxy core may see an eighth of a second."""

type Row = list[Any]

EXCHANGE_COLUMNS = tuple(field.name for field in fields(Exchange))
DERIVED_COLUMNS = ("duplicate_of", "id_collision")
READING_COLUMNS = tuple(
    column.name for column in readings.c if column.name not in ("id", "exchange_id", "opened_at")
)
CHARGE_COLUMNS = (
    "line",
    "model",
    "quantity",
    "unit_picousd",
    "amount_picousd",
    "price_source",
    "priced_at",
    "reason",
)
assert {*EXCHANGE_COLUMNS, *DERIVED_COLUMNS} == set(exchanges.c.keys())
assert {*CHARGE_COLUMNS} < set(charges.c.keys())

INTAKE_COLUMNS = (
    *EXCHANGE_COLUMNS,
    "reading_id",
    *(f"reading_{name}" for name in READING_COLUMNS),
    "charges",
)
LINK_COLUMNS = ("opened_at", "id", "state", "origin", "response_id", "content_digest")
_NO_READING: Row = [None] * (len(INTAKE_COLUMNS) - len(EXCHANGE_COLUMNS))
_NO_ROW: Row = [None] * len(INTAKE_COLUMNS)

_values_of = operator.attrgetter(*EXCHANGE_COLUMNS)
_figures_of = operator.attrgetter(
    *(name for name in READING_COLUMNS if name.endswith("_tokens") and "estimated" not in name)
)
_INSTANTS = tuple(
    EXCHANGE_COLUMNS.index(name)
    for name in ("opened_at", "first_byte_at", "first_token_at", "settled_at")
)
_WORDS = tuple(EXCHANGE_COLUMNS.index(name) for name in ("state", "source", "outcome"))
_TAGS = EXCHANGE_COLUMNS.index("tags")
_NODE = EXCHANGE_COLUMNS.index("node")
_CHARGE = operator.attrgetter(*CHARGE_COLUMNS)


def open_row(exchange: Exchange, node: str) -> Row:
    """The row of an exchange that has no reading yet."""
    return _exchange_values(exchange, node) + _NO_READING


def settled_row(
    exchange: Exchange, reading: Reading, lines: Sequence[Charge], node: str | None
) -> Row:
    """The row of an exchange with its reading and the charges of it."""
    values = reading_values(reading)
    charged = _charged(lines)
    found = _digest(reading.exchange_id, values, charged)
    return [*_exchange_values(exchange, node), found, *values, charged.decode()]


def reading_id(reading: Reading, lines: Sequence[Charge]) -> str:
    """A digest of the reading and its charges: the same wherever they are written."""
    return _digest(reading.exchange_id, reading_values(reading), _charged(lines))


def cleaned(row: Row) -> Row:
    """The row without what no database takes as text: lone surrogates, which JSON can hold."""
    return [
        value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for value in row
    ]


def uncharged(row: Row) -> Row:
    """The row without its charges: better unpriced than not recorded."""
    return [*row[:-1], None if row[-1] is None else "[]"]


def statement(rows: Sequence[Row]) -> tuple[str, Row]:
    """The statement that takes these rows in, and its parameters."""
    assert 0 < len(rows) <= ROWS_MAX
    size = 1 << (len(rows) - 1).bit_length()
    parameters = [value for row in rows for value in row]
    parameters += _NO_ROW * (size - len(rows))
    return _text(size), parameters


@cache
def _text(size: int) -> str:
    row = f"({', '.join('?' * len(INTAKE_COLUMNS))})"
    return f"INSERT INTO intake VALUES {', '.join([row] * size)}"


def _exchange_values(exchange: Exchange, node: str | None) -> Row:
    values = list(_values_of(exchange))
    for at in _INSTANTS:
        if (moment := values[at]) is not None:
            values[at] = _instant(moment)
    for at in _WORDS:
        if (word := values[at]) is not None:
            values[at] = word.value
    values[_TAGS] = _json(values[_TAGS])
    if node is not None:
        values[_NODE] = node
    return values


def reading_values(reading: Reading) -> Row:
    """The values of `READING_COLUMNS`."""
    usage = reading.usage
    return [
        reading.revision,
        reading.meter_version,
        reading.usage_source.value,
        *_figures_of(usage),
        _json(usage.tool_units),
        _dumps(usage.further).decode() if usage.further else "[]",
        _dumps(usage.remarks).decode() if usage.remarks else "[]",
        reading.usage_json,
        reading.estimated_output_tokens,
        usage.reported_cost_picousd,
        usage.reported_upstream_cost_picousd,
        usage.is_byok,
        _instant(reading.read_at),
        reading.reason,
    ]


def _digest(exchange_id: str, values: Row, charged: bytes) -> str:
    content = _dumps([exchange_id, *values]) + charged
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _charged(lines: Sequence[Charge]) -> bytes:
    return _dumps([_charge_values(line) for line in lines])


def _charge_values(line: Charge) -> Row:
    values = list(_CHARGE(line))
    values[6] = _instant(line.priced_at)
    return values


def _json(mapping: Any) -> str:
    return _dumps(dict(mapping)).decode() if mapping else "{}"


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # A lone surrogate, which JSON can hold and UTF-8 cannot.
        text = json.dumps(value, ensure_ascii=False, default=asdict)
        return text.encode("utf-8", "replace")


def _instant(moment: datetime) -> str:
    text = moment.isoformat(" ", "microseconds")
    if not text.endswith("+00:00"):
        return instant_text(moment)
    return f"{text[:26]}Z"  # three times as fast as strftime


def setup(*, spooling: bool) -> list[str]:
    """The statements that give a connection its intake."""
    steps = [_UPSERT, _READ, _CHARGE_LINES, _LINK]
    if spooling:
        steps.append(_NOTE_CHANGE)
    return [*relink_setup(), *_view("intake", INTAKE_COLUMNS, steps)]


def relink_setup() -> list[str]:
    """The same for a connection that takes in exchanges by other ways, and then links them."""
    return _view("relink", LINK_COLUMNS, [_FLAG_COLLISION, _POINT_AT_FIRST, _POINT_OTHERS])


def _view(name: str, columns: Sequence[str], steps: Sequence[str]) -> list[str]:
    """A view that takes rows in, and does this for each of them that is one."""
    nothing = ", ".join(f"NULL AS {column}" for column in columns)
    program = "; ".join(steps)
    when = f"INSTEAD OF INSERT ON {name} WHEN NEW.id IS NOT NULL"
    return [
        f"CREATE TEMP VIEW IF NOT EXISTS {name} AS SELECT {nothing}",
        f"CREATE TEMP TRIGGER IF NOT EXISTS {name}_row {when} BEGIN {program}; END",
    ]


FURTHER = (
    "exchanges.state = 'open' AND excluded.state <> 'open' "
    "OR exchanges.state = 'lost' AND excluded.state = 'settled'"
)
"""When a row takes the place of one with the same key."""

# One row of the intake. What is settled stays as it is, which makes taking a row in twice the same
# as taking it in once; what was open or given up as lost is replaced.
_FACTS = [name for name in EXCHANGE_COLUMNS if name not in ("opened_at", "id")]
_UPSERT = f"""
INSERT INTO exchanges ({", ".join(EXCHANGE_COLUMNS)})
SELECT {", ".join(f"NEW.{name}" for name in EXCHANGE_COLUMNS)} WHERE true
ON CONFLICT (opened_at, id) DO UPDATE SET {", ".join(f"{n} = excluded.{n}" for n in _FACTS)}
WHERE {FURTHER}
"""

_READING_VALUES = ", ".join(
    # Verbatim also where a provider's usage is no JSON: then as a JSON text.
    # SQLite before 3.45 calls NULL invalid.
    "CASE WHEN NEW.reading_usage_json IS NOT NULL AND NOT json_valid(NEW.reading_usage_json) "
    "THEN json_quote(NEW.reading_usage_json) ELSE NEW.reading_usage_json END"
    if name == "usage_json"
    else f"NEW.reading_{name}"
    for name in READING_COLUMNS
)
_READ = f"""
INSERT INTO readings (id, exchange_id, opened_at, {", ".join(READING_COLUMNS)})
SELECT NEW.reading_id, NEW.id, NEW.opened_at, {_READING_VALUES}
WHERE NEW.reading_id IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM readings
  WHERE opened_at = NEW.opened_at AND exchange_id = NEW.id AND revision >= 1)
"""

_LINE_VALUES = ", ".join(f"line.value ->> {at}" for at in range(len(CHARGE_COLUMNS)))
_CHARGE_LINES = f"""
INSERT INTO charges (id, exchange_id, opened_at, reading_id, ordinal, revision,
  {", ".join(CHARGE_COLUMNS)})
SELECT NEW.reading_id || '.' || line.key, NEW.id, NEW.opened_at, NEW.reading_id, line.key, 1,
  {_LINE_VALUES}
FROM json_each(NEW.charges) AS line
WHERE EXISTS (
  SELECT 1 FROM readings
  WHERE opened_at = NEW.opened_at AND exchange_id = NEW.id AND id = NEW.reading_id)
ON CONFLICT DO NOTHING
"""

# Linking, as `duplicates.link` has it, for one new member. All members of a group that collides are
# flagged and all of one that does not are not, so the unflagged ones of a colliding group are the
# new ones, and `ix_exchanges_response_id` has them and the first of each digest at hand: no step
# looks at every member, except when the answer changes for every member. Where it does not, the
# CASE is NULL and matches nothing.
_MEMBERS = "response_id = NEW.response_id AND origin = NEW.origin AND content_digest IS NOT NULL"
_FLAG_COLLISION = f"""
UPDATE exchanges SET id_collision = 1
WHERE response_id = (
    SELECT CASE WHEN
      EXISTS (SELECT 1 FROM exchanges WHERE {_MEMBERS} AND id_collision = 1)
      OR (SELECT MIN(content_digest) FROM exchanges WHERE {_MEMBERS} AND id_collision = 0)
      <> (SELECT MAX(content_digest) FROM exchanges WHERE {_MEMBERS} AND id_collision = 0)
    THEN NEW.response_id END)
  AND origin = NEW.origin AND id_collision = 0 AND content_digest IS NOT NULL
"""
_SAME = """response_id = NEW.response_id AND origin = NEW.origin
  AND id_collision = (SELECT id_collision FROM exchanges
                      WHERE opened_at = NEW.opened_at AND id = NEW.id)
  AND content_digest = NEW.content_digest"""
_FIRST = f"(SELECT id FROM exchanges WHERE {_SAME} ORDER BY opened_at, id LIMIT 1)"
_POINT_AT_FIRST = f"""
UPDATE exchanges SET duplicate_of = NULLIF({_FIRST}, NEW.id)
WHERE opened_at = NEW.opened_at AND id = NEW.id
  AND duplicate_of IS NOT NULLIF({_FIRST}, NEW.id)
"""
_POINT_OTHERS = f"""
UPDATE exchanges SET duplicate_of = NEW.id
WHERE response_id = (
    SELECT CASE WHEN {_FIRST} = NEW.id THEN NEW.response_id END)
  AND origin = NEW.origin
  AND id_collision = (SELECT id_collision FROM exchanges
                      WHERE opened_at = NEW.opened_at AND id = NEW.id)
  AND content_digest = NEW.content_digest AND id <> NEW.id AND duplicate_of IS NOT NEW.id
"""

# Nearly every response is alone in its group; then one look is all there is to it. An exchange that
# had been settled before, as something else, is what it was.
_LINK = f"""
INSERT INTO relink
SELECT {", ".join(f"NEW.{name}" for name in LINK_COLUMNS)}
WHERE NEW.state = 'settled' AND NEW.response_id IS NOT NULL AND NEW.content_digest IS NOT NULL
  AND EXISTS (SELECT 1 FROM exchanges WHERE {_MEMBERS} AND id <> NEW.id)
  AND EXISTS (SELECT 1 FROM exchanges WHERE opened_at = NEW.opened_at AND id = NEW.id
                AND content_digest = NEW.content_digest AND {_MEMBERS})
"""

_NOTE_CHANGE = "INSERT INTO outbox (exchange_id, opened_at) VALUES (NEW.id, NEW.opened_at)"
