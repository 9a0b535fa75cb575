"""Database. Checks whether the rows of a ledger keep its promises.

Each promise is one query for the rows that break it. Python reads only breaches, and of these only
the first few.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.maintenance.promises import PROMISES, Promise
from ledger.store.keys import instant_text
from ledger.store.schema.columns import Instant
from ledger.store.scope import snapshot
from ledger.store.tables import charges, readings
from ledger.store.writing.batch_insert import CHARGE_COLUMNS, READING_COLUMNS
from ledger.sync.merging import reason_of

SHOWN_MAX = 20
"""Breaches of one promise that are named; all are counted."""
BEGINNING = datetime(1000, 1, 1, tzinfo=UTC)
"""Before every exchange, and with four digits of a year, so that it sorts as text."""

DIGESTS = Promise(
    "digests", "readings and their charges are what was written, by their digests", ""
)
INTEGRITY = Promise("file", "the SQLite file is sound (PRAGMA integrity_check)", "")

_DAY = {
    "sqlite": "date(v.opened_at)",
    "postgresql": "CAST(v.opened_at AT TIME ZONE 'UTC' AS date)",
}

_IDS = "SELECT p.response_id FROM exchanges p WHERE p.opened_at >= :since"
_OF_PERIOD = {
    "sqlite": f"response_id IN ({_IDS})",
    # As an array, since PostgreSQL would rather read all exchanges than join these to them.
    "postgresql": f"response_id = ANY (ARRAY({_IDS}))",
}
"""What an answer of the period is compared with may be older, and is found by its id."""

ROWS_AT_A_TIME = 1_000
_COLUMNS_0_1 = (
    "revision",
    "meter_version",
    "usage_source",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
    "tool_units",
    "further",
    "remarks",
    "usage_json",
    "estimated_output_tokens",
    "reported_cost_picousd",
    "reported_upstream_cost_picousd",
    "is_byok",
    "read_at",
    "reason",
)
"""In which order version 0.1 made its ids."""
_CHARGE_COLUMNS_0_1 = (
    "line",
    "model",
    "quantity",
    "unit_picousd",
    "amount_picousd",
    "price_source",
    "priced_at",
    "reason",
)
_REPRICED = ("line", "model", "quantity", "unit_picousd", "price_source")
"""What the id of a charge is a digest of that was added by `reprice`."""
_FORMS = tuple(
    dict.fromkeys(
        (
            (tuple(READING_COLUMNS), tuple(CHARGE_COLUMNS)),
            (tuple(name for name in READING_COLUMNS if name != "billing"), tuple(CHARGE_COLUMNS)),
            (_COLUMNS_0_1, _CHARGE_COLUMNS_0_1),
        )
    )
)
"""The orders of columns that ids were made with, the latest first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """How many rows break a promise, and the first of them: (id, what was found)."""

    promise: Promise
    count: int
    examples: tuple[tuple[str, str], ...]
    is_checked: bool = True
    """False: it was left out, because it cannot be checked for a period alone."""


def verify(engine: Engine, since: datetime | None = None) -> Iterator[Finding]:
    """Check each promise in turn, for the exchanges opened from `since` on.

    With `since` the work is that of the period: the file as a whole is not checked.
    """
    if engine.dialect.name == "sqlite":
        faults: list[tuple[str, str]] = []
        if since is None:
            try:
                with engine.connect() as connection:
                    query = f"PRAGMA integrity_check({SHOWN_MAX})"
                    found = connection.exec_driver_sql(query).scalars().all()
            except sa.exc.DBAPIError as error:
                found = [reason_of(error)]
            if found != ["ok"]:
                faults = [("", " ".join(str(line).split())) for line in found]
        yield Finding(INTEGRITY, len(faults), tuple(faults), is_checked=since is None)
    for promise in PROMISES:
        # Each in a snapshot of its own: a long snapshot would delay the clean-up of a live ledger.
        with snapshot(engine) as connection:
            yield _ask(connection, promise, since)
    with snapshot(engine) as connection:
        yield _digests(connection, since or BEGINNING)


def _ask(connection: Connection, promise: Promise, begin: datetime | None) -> Finding:
    words = {
        "day": _DAY[connection.dialect.name],
        "of_period": "true" if begin is None else _OF_PERIOD[connection.dialect.name],
    }
    since = begin or BEGINNING
    midnight = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    bounds: dict[str, sa.BindParameter[Any]] = {
        "since": sa.bindparam("since", since, Instant()),
        "midnight": sa.bindparam("midnight", midnight, Instant()),
        "day": sa.bindparam("day", midnight.date(), sa.Date()),
    }
    broken = promise.broken
    for word, meant in words.items():
        broken = broken.replace(f"{{{word}}}", meant)
    used = [bound for name, bound in bounds.items() if f":{name}" in broken]
    found = (
        sa.text(broken)
        .bindparams(*used)
        .columns(sa.column("id", sa.Text), sa.column("detail", sa.Text))
        .subquery()
    )
    count = sa.func.count().over()
    try:
        rows = connection.execute(sa.select(found.c.id, found.c.detail, count).limit(SHOWN_MAX))
        examples = rows.all()
    except sa.exc.DBAPIError as error:
        return Finding(promise, 1, (("", f"cannot be asked: {reason_of(error)}"),))
    return Finding(
        promise,
        examples[0][2] if examples else 0,
        tuple((row.id, row.detail or "") for row in examples),
    )


def _digests(connection: Connection, since: datetime) -> Finding:
    count = 0
    examples: list[tuple[str, str]] = []
    try:
        for count, (exchange, reading) in enumerate(_altered(connection, since), 1):  # noqa: B007
            if len(examples) < SHOWN_MAX:
                examples.append((exchange, f"reading {reading} was changed"))
    except (sa.exc.DBAPIError, ValueError, TypeError) as error:
        why = reason_of(error) if isinstance(error, sa.exc.DBAPIError) else type(error).__name__
        return Finding(DIGESTS, 1, (("", f"cannot be asked: {why}"),))
    return Finding(DIGESTS, count, tuple(examples))


def _altered(connection: Connection, since: datetime) -> Iterator[tuple[str, str]]:
    """The readings opened since then whose id is not the digest of their columns and charges, each
    after its exchange.

    The id of a reading covers its first charges, too, so a change of any of their columns shows.
    This is the one promise for which every row passes through Python: in the order of the tables,
    holding one reading at a time. The id of a reading that the database stored only without its
    charges includes these charges, so a reading without charges is not checked.
    """
    connection = connection.execution_options(yield_per=ROWS_AT_A_TIME)
    charged = _Charges(connection, since)
    rows = connection.execute(
        sa.select(readings)
        .where(readings.c.opened_at >= since, readings.c.revision >= 1)
        .order_by(
            readings.c.opened_at,
            _by_bytes(connection, readings.c.exchange_id),
            _by_bytes(connection, readings.c.id),
        )
    )
    for row in rows.mappings():
        lines = charged.of((row["opened_at"], row["exchange_id"], row["id"]))
        first = [line for line in lines if line["id"] == f"{row['id']}.{line['ordinal']}"]
        later = [line for line in lines if line["id"] != f"{row['id']}.{line['ordinal']}"]
        if (first and not _is_as_written(row, first)) or not all(map(_is_as_priced, later)):
            yield row["exchange_id"], row["id"]


class _Charges:
    """The charges of each reading, in the order in which readings are asked for."""

    def __init__(self, connection: Connection, since: datetime) -> None:
        rows = connection.execute(
            sa.select(charges)
            .where(charges.c.opened_at >= since)
            .order_by(
                charges.c.opened_at,
                _by_bytes(connection, charges.c.exchange_id),
                _by_bytes(connection, charges.c.reading_id),
                charges.c.ordinal,
            )
        ).mappings()
        self._groups = groupby(
            rows, lambda row: (row["opened_at"], row["exchange_id"], row["reading_id"])
        )
        self._next: tuple[Any, list[Any]] | None = None
        self._step()

    def of(self, key: tuple[Any, ...]) -> list[Any]:
        """The charges of a reading."""
        while self._next is not None and self._next[0] < key:
            self._step()  # of a reading that is not there: another promise
        if self._next is None or self._next[0] != key:
            return []
        lines = self._next[1]
        self._step()
        return lines

    def _step(self) -> None:
        found = next(self._groups, None)
        self._next = None if found is None else (found[0], list(found[1]))


def _by_bytes(connection: Connection, column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """A text in the order of Python's, whatever the database's own order of texts is."""
    return column if connection.dialect.name == "sqlite" else column.collate("C")


def _is_as_priced(line: Any) -> bool:
    """Whether a charge that was added by pricing again is what its id says."""
    content = "|".join(str(line[name]) for name in _REPRICED)
    digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return bool(line["id"] == f"{line['reading_id']}.{line['ordinal']}.{line['revision']}.{digest}")


def _is_as_written(row: Any, lines: Sequence[Any]) -> bool:
    """Whether the id of a reading is the digest of its columns and charges, in a known form."""
    for columns, charge_columns in _FORMS:
        if "billing" not in columns and row["billing"] is not None:
            continue
        charged = orjson.dumps([[_plain(line[name]) for name in charge_columns] for line in lines])
        for usage_json in _spellings(row["usage_json"]):
            values = [usage_json if name == "usage_json" else _plain(row[name]) for name in columns]
            content = orjson.dumps([row["exchange_id"], *values]) + charged
            if row["id"] == hashlib.blake2b(content, digest_size=16).hexdigest():
                return True
    return False


def _spellings(usage_json: str | None) -> Iterator[str | None]:
    """A usage object as it is kept, and as it was if it is no JSON: then a JSON text holds it."""
    yield usage_json
    if usage_json is not None and usage_json.startswith('"'):
        try:
            yield json.loads(usage_json)
        except ValueError:
            return


def _plain(value: Any) -> Any:
    return instant_text(value) if isinstance(value, datetime) else value
