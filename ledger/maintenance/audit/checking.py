"""Database. Checks whether the rows of a ledger keep its promises.

Each promise is one query for the rows that break it. Python reads only breaches, and of these only
the first few.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.maintenance.audit.promises import PROMISES, Promise
from ledger.maintenance.audit.reading_digests import altered
from ledger.store.schema.columns import Instant
from ledger.store.scope import snapshot
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
        if since is None:
            with engine.connect() as connection:
                yield _integrity(connection)
        else:
            yield Finding(INTEGRITY, 0, (), is_checked=False)
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


def _integrity(connection: Connection) -> Finding:
    try:
        found = connection.exec_driver_sql(f"PRAGMA integrity_check({SHOWN_MAX})").scalars().all()
    except sa.exc.DBAPIError as error:
        found = [reason_of(error)]
    faults = [] if found == ["ok"] else [("", " ".join(str(line).split())) for line in found]
    return Finding(INTEGRITY, len(faults), tuple(faults))


def _digests(connection: Connection, since: datetime) -> Finding:
    count = 0
    examples: list[tuple[str, str]] = []
    try:
        for count, found in enumerate(altered(connection, since), 1):  # noqa: B007
            if len(examples) < SHOWN_MAX:
                examples.append((found.exchange_id, f"reading {found.reading_id} was changed"))
    except (sa.exc.DBAPIError, ValueError, TypeError) as error:
        why = reason_of(error) if isinstance(error, sa.exc.DBAPIError) else type(error).__name__
        return Finding(DIGESTS, 1, (("", f"cannot be asked: {why}"),))
    return Finding(DIGESTS, count, tuple(examples))
