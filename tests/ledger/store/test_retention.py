"""Dropping old exchanges: whole ones, ended ones, and nothing else."""

from datetime import date, timedelta

import pytest
import sqlalchemy as sa

from ledger.model.quota import Quota, QuotaKind
from ledger.store import retention
from ledger.store.engines import migration
from tests.ledger.written import (
    NOON,
    on_postgres,
    opened,
    put,
    row,
    rows,
    settled,
    whole,
)


def test_what_is_old_and_has_ended_goes_whole(engine, monkeypatch):
    monkeypatch.setattr(retention, "DROP_EXCHANGES_MAX", 2)
    at = {name: NOON + timedelta(days=number) for number, name in enumerate("abcdefg")}
    quotas = (Quota(window="5h", window_name="5h", kind=QuotaKind.PLAN, used_ppm=1),)
    put(
        engine,
        *(whole(settled(name, at=at[name], quotas=quotas)) for name in at if name != "b"),
    )
    put(engine, (opened("b", at=at["b"]), None, ()))
    assert retention.count_before(engine, at["f"]) == 4
    seen: list[int] = []
    assert retention.drop_before(engine, at["f"], on_progress=seen.append) == 4
    assert seen == [2, 4]
    assert rows(engine, "SELECT id FROM exchanges ORDER BY id") == [("b",), ("f",), ("g",)]
    for table in ("readings", "charges", "quotas"):
        assert rows(engine, f"SELECT DISTINCT exchange_id FROM {table} ORDER BY 1") == [
            ("f",),
            ("g",),
        ]
    assert retention.drop_before(engine, at["f"]) == 0
    assert rows(engine, "SELECT * FROM meta WHERE key = 'retention'") == []
    with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError):
        connection.execute(sa.text("DELETE FROM exchanges"))


@on_postgres
def test_a_month_that_is_old_goes_with_its_partitions(engine):
    today = date(2026, 11, 2)
    months = [date(2026, month, 1) for month in (8, 9, 10, 11)]
    assert set(retention.make_partitions(engine, months, today).values()) == {None}
    moments = {
        "a": NOON.replace(month=8),
        "b": NOON.replace(month=9),
        "open": NOON.replace(month=9),
        "c": NOON.replace(month=10),
        "d": NOON,
    }
    put(
        engine,
        *(whole(settled(name, at=at)) for name, at in moments.items() if name != "open"),
        (opened("open", at=moments["open"]), None, ()),
    )
    # August goes as a partition. That it is gone is noted, as for rows that go one by one.
    assert retention.drop_before(engine, NOON.replace(month=9, day=1)) == 1
    assert row(engine, f"SELECT value FROM meta WHERE key = '{retention.DROPPED_UNTIL}'") == (
        "2026-09-01 00:00:00.000000Z",
    )
    assert retention.drop_before(engine, NOON.replace(month=10, day=20)) == 2
    assert rows(engine, "SELECT id FROM exchanges ORDER BY id") == [("d",), ("open",)]
    left = rows(
        engine,
        "SELECT relname FROM pg_class WHERE relname LIKE 'exchanges_p2%' AND relkind = 'r' "
        "ORDER BY relname",
    )
    # September holds an open exchange, October is not over at the moment that is asked for.
    assert left == [("exchanges_p2026_09",), ("exchanges_p2026_10",), ("exchanges_p2026_11",)]
    assert row(engine, "SELECT COUNT(*) FROM charges") == (3,)
    assert migration.differences(engine) == []


@on_postgres
def test_partitions(engine):
    today = date(2026, 12, 15)
    assert retention.coming_months(today) == [date(2026, 12, 1), date(2027, 1, 1), date(2027, 2, 1)]
    far = [date(2027, 3, 1), date(1999, 1, 1)]
    outcome = retention.make_partitions(engine, [*retention.coming_months(today), *far], today)
    assert outcome == {
        date(2026, 12, 1): None,
        date(2027, 1, 1): None,
        date(2027, 2, 1): None,
        date(2027, 3, 1): "too far from today",
        date(1999, 1, 1): "too far from today",
    }
    # A month whose rows are in the default partition stays there, and says so.
    put(engine, whole(settled("stray", at=NOON.replace(year=2025))))
    outcome = retention.make_partitions(engine, [date(2025, 11, 1)], today)
    assert "exchanges_pdefault" in (outcome[date(2025, 11, 1)] or "")
    put(engine, whole(settled("another", at=NOON.replace(year=2025, day=3))))
    assert row(engine, "SELECT COUNT(*) FROM requests") == (2,)
    # The last instant of a month and the first of the next lie in two partitions.
    edge = NOON.replace(year=2027, month=1, day=1, hour=0)
    put(engine, whole(settled("b", at=edge)), whole(settled("a", at=edge - edge.resolution)))
    found = rows(
        engine,
        "SELECT id, tableoid::regclass::text FROM exchanges WHERE id IN ('a', 'b') ORDER BY id",
    )
    assert found == [("a", "exchanges_p2026_12"), ("b", "exchanges_p2027_01")]


def test_the_month_of_a_moment():
    assert retention.month_of("2026-12-31 23:59:59.999999Z") == date(2026, 12, 1)
    assert retention.next_month(date(2026, 12, 1)) == date(2027, 1, 1)
