"""Database. Checks whether the rows of a ledger keep its promises.

Each promise is one query for the rows that break it. Python reads only breaches, and of these only
the first few.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.maintenance.promises import PROMISES, Promise
from ledger.maintenance.reprice import line_digest
from ledger.model.charge import Charge, pricing_of
from ledger.model.exchange import NO_METER
from ledger.store.engines.refusals import reason_of
from ledger.store.keys import instant_text, usage_source_of
from ledger.store.schema.charged import KEPT, LINE, PAST
from ledger.store.schema.columns import Instant
from ledger.store.scope import snapshot
from ledger.store.tables import pricings, readings
from ledger.store.writing.batch_insert import CHARGE_COLUMNS, PRICING, READING_COLUMNS

FAULTS_SHOWN_MAX = 20
"""Breaches of one promise that are named; all are counted."""
BEGINNING = datetime(1000, 1, 1, tzinfo=UTC)
"""Before every exchange, and with four digits of a year, so that it sorts as text."""

DIGESTS = Promise(
    "digests",
    "readings and their charges are what was written, by their digests, and a charge that was "
    "priced again replaces one that is there",
    "",
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
    *("revision", "meter_version", "usage_source", "input_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "output_tokens"),
    *("reasoning_tokens", "input_audio_tokens", "output_audio_tokens", "tool_units", "further"),
    *("remarks", "usage_json", "estimated_output_tokens", "reported_cost_picousd"),
    *("reported_upstream_cost_picousd", "is_byok", "read_at", "reason"),
)
"""In which order version 0.1 made its ids."""
_FORMS = (
    READING_COLUMNS,
    tuple(name for name in READING_COLUMNS if name != "billing"),
    _COLUMNS_0_1,
)
"""The orders of columns that ids were made with, the latest first."""
_LINE = tuple(name for name, _ in LINE)


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
                    query = f"PRAGMA integrity_check({FAULTS_SHOWN_MAX})"
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
    count = 0
    examples: list[tuple[str, str]] = []
    with snapshot(engine) as connection:
        try:
            for exchange, reading in _altered(connection, since or BEGINNING):
                count += 1
                if count <= FAULTS_SHOWN_MAX:
                    examples.append((exchange, f"reading {reading} was changed"))
        except (sa.exc.DBAPIError, ValueError, TypeError) as error:
            why = reason_of(error) if isinstance(error, sa.exc.DBAPIError) else type(error).__name__
            count, examples = 1, [("", f"cannot be asked: {why}")]
    yield Finding(DIGESTS, count, tuple(examples))


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
        rows = connection.execute(
            sa.select(found.c.id, found.c.detail, count)
            .order_by(found.c.id, found.c.detail)
            .limit(FAULTS_SHOWN_MAX)
        )
        examples = rows.all()
    except sa.exc.DBAPIError as error:
        return Finding(promise, 1, (("", f"cannot be asked: {reason_of(error)}"),))
    return Finding(
        promise,
        examples[0][2] if examples else 0,
        tuple((row.id, row.detail or "") for row in examples),
    )


def _altered(connection: Connection, since: datetime) -> Iterator[tuple[str, str]]:
    """The readings opened since then whose id is not the digest of their columns and charges, each
    after its exchange.

    The id of a reading covers its own charges, too, so a change of any of their columns shows. This
    is the one promise for which every row passes through Python, one at a time. The id of a reading
    that the database stored only without its charges includes these charges, so a reading without
    charges is not checked.
    """
    connection = connection.execution_options(yield_per=ROWS_AT_A_TIME)
    # A caller that wants no more leaves no cursor open.
    with connection.execute(
        sa.select(readings).where(
            readings.c.opened_at >= since, readings.c.meter_version != NO_METER
        )
    ) as rows:
        for row in rows.mappings():
            lines = orjson.loads(row["charges"])
            if (lines and not _is_as_written(row, lines)) or not _adds_up(row, lines):
                yield row["exchange_id"], row["id"]
    query = (
        sa.select(pricings, readings.c.usage_source, readings.c.charges.label("first"))
        .join(
            readings,
            (readings.c.opened_at == pricings.c.opened_at)
            & (readings.c.exchange_id == pricings.c.exchange_id)
            & (readings.c.id == pricings.c.reading_id),
        )
        .where(pricings.c.opened_at >= since)
        .order_by(*pricings.primary_key.columns)
    )
    reading, booked = "", dict[str, _Booked]()
    with connection.execute(query) as rows:
        for row in rows.mappings():
            if row["reading_id"] != reading:
                reading = row["reading_id"]
                booked = {
                    f"{reading}.{at}": (at, 1, values)
                    for at, values in enumerate(orjson.loads(row["first"]))
                }
            if not _is_as_priced(row, orjson.loads(row["charges"]), booked):
                yield row["exchange_id"], row["reading_id"]


type _Booked = tuple[int, int, list[Any]]
"""Ordinal, revision and values of a line."""


def _is_as_priced(row: Any, lines: Sequence[list[Any]], booked: dict[str, _Booked]) -> bool:
    """Whether a further pricing is what its id says: each line that it keeps is as it was booked,
    and each of its own is what the line's id says, a first one or one that replaces an earlier one
    at the same place. One line counts at every place. `booked`: the lines of the reading and of its
    earlier pricings by their ids; its own are added."""
    kept, own, counted = dict[str, _Booked](), [], []
    first = [at for name, (at, _, _) in booked.items() if name == f"{row['reading_id']}.{at}"]
    for values in lines:
        line = dict(zip(_LINE, values, strict=True))
        content = line["ordinal"], line["revision"], values[: len(CHARGE_COLUMNS)]
        if line["place"] == KEPT:
            kept[line["id"]] = content
        else:
            own.append(line)
            booked[line["id"]] = content
        if line["place"] != PAST:
            counted.append(line["ordinal"])
    if any(booked.get(name) != content for name, content in kept.items()):
        return False
    if sorted(counted) != list(range(max([-1, *first, *counted]) + 1)):
        return False
    for line in own:
        name = f"{line['ordinal']}.{line['revision']}.{line_digest(SimpleNamespace(**line))}"
        if line["id"] != f"{row['reading_id']}.{name}":
            return False
        if line["supersedes"] is None:
            if line["revision"] != 1:
                return False
        else:
            ordinal, revision, _ = booked.get(line["supersedes"], (None, 0, None))
            if ordinal != line["ordinal"] or revision >= line["revision"]:
                return False
    ids = ",".join(line["id"][len(row["reading_id"]) + 1 :] for line in own)
    is_named = row["id"] == f"{row['revision']}:{ids}"
    return is_named and _adds_up(row, [values for values in lines if values[-1] != PAST])


def _adds_up(row: Any, lines: Sequence[list[Any]]) -> bool:
    """Whether the figures of a pricing are those of its lines."""
    charges = [
        Charge(**dict(zip(CHARGE_COLUMNS, values[: len(CHARGE_COLUMNS)], strict=True)))
        for values in lines
    ]
    found = pricing_of(charges, usage_source_of(row["usage_source"]))
    return all(row[name] == getattr(found, name) for name in PRICING)


def _is_as_written(row: Any, lines: Sequence[list[Any]]) -> bool:
    """Whether the id of a reading is the digest of its columns and charges, in a known form."""
    charged = orjson.dumps(lines)
    # A usage object as it is kept, and as it was if it is no JSON: then a JSON text holds it.
    spellings = [row["usage_json"]]
    if (row["usage_json"] or "").startswith('"'):
        with contextlib.suppress(ValueError):
            spellings.append(json.loads(row["usage_json"]))
    for columns in _FORMS:
        if "billing" not in columns and row["billing"] is not None:
            continue
        for usage_json in spellings:
            plain = {**row, "usage_json": usage_json}
            values = [
                instant_text(each) if isinstance(each := plain[name], datetime) else each
                for name in columns
            ]
            content = orjson.dumps([row["exchange_id"], *values]) + charged
            if row["id"] == hashlib.blake2b(content, digest_size=16).hexdigest():
                return True
    return False
