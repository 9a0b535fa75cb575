"""Database. One partition per month on PostgreSQL, made before its rows come.

A month's partition keeps its indices small and is dropped as a whole when it is too old
(`retention.py`). A row without a partition goes to the default partition, where queries find it
too; such a month can no longer get a partition without moving its rows.
"""

from collections.abc import Iterable
from datetime import date

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.store.tables import PARTITIONED

MONTHS_AHEAD = 2
"""Months made in advance: operators have that long to notice that a proxy cannot create
partitions."""
YEARS_MAX = 10
"""How far back an import makes partitions: a wrong clock must not create thousands."""
LOCK_MS_MAX = 3_000
"""How long it waits for the lock on the tables, which it holds only briefly."""


def month_of(opened_at: str) -> date:
    """The month of an `opened_at` as text."""
    year, month, *_ = opened_at.split("-")
    return date(int(year), int(month), 1)


def coming(today: date) -> list[date]:
    """This month and the next `MONTHS_AHEAD`."""
    months = [today.replace(day=1)]
    for _ in range(MONTHS_AHEAD):
        months.append(after(months[-1]))
    return months


def ensure(engine: Engine, months: Iterable[date], today: date) -> dict[date, str | None]:
    """Create the partitions of these months; per month the reason why it has none, or None."""
    latest = coming(today)[-1]
    outcome: dict[date, str | None] = {}
    for month in sorted(set(months)):
        if not today.year - YEARS_MAX <= month.year or month > latest:
            outcome[month] = "too far from today"
            continue
        try:
            with engine.begin() as connection:
                _make(connection, month)
        except (sa.exc.ProgrammingError, sa.exc.IntegrityError) as error:
            # No right to make tables, or rows of that month in the default partition. Any other
            # error is temporary, and the rows wait for it: rows in the default partition stay
            # there.
            outcome[month] = " ".join(str(error.orig).split())
        else:
            outcome[month] = None
    return outcome


def after(month: date) -> date:
    """The next month."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def names(month: date) -> list[str]:
    """The partitions of a month; referring tables come before the tables that they refer to."""
    return [f"{table}_p{month:%Y_%m}" for table in reversed(PARTITIONED)]


def _make(connection: Connection, month: date) -> None:
    there = {
        name
        for name in names(month)
        if connection.execute(sa.select(sa.func.to_regclass(name))).scalar() is not None
    }
    if len(there) == len(PARTITIONED):
        return
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_MS_MAX}")
    for table in PARTITIONED:
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {table}_p{month:%Y_%m} PARTITION OF {table} "
            f"FOR VALUES FROM ('{month:%Y-%m-%d} 00:00Z') TO ('{after(month):%Y-%m-%d} 00:00Z')"
        )
