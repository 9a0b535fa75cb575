"""Dropping old exchanges: whole ones, ended ones, and nothing else. What the databases themselves refuse."""

from datetime import date, timedelta

import pytest
import sqlalchemy as sa

from ledger.model.exchange import Outcome, State
from ledger.model.quota import Quota, QuotaKind
from ledger.store import retention
from ledger.store.engines import migration
from tests.ledger.written import (
    NOON,
    alter,
    on_postgres,
    on_sqlite,
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


STATED = Quota(window="5h", window_name="5h", kind=QuotaKind.PLAN, used_ppm=1)


@pytest.fixture
def filled(engine):
    put(engine, whole(settled("a", quotas=(STATED,))), (opened("b"), None, ()))
    return engine


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE exchanges SET provider = 'x' WHERE id = 'a'", "settled exchange does not change"),
        ("UPDATE exchanges SET state = 'open' WHERE id = 'a'", "settled exchange does not change"),
        ("UPDATE exchanges SET tags = '{}' WHERE id = 'a'", "settled exchange does not change"),
        ("UPDATE exchanges SET id = 'x' WHERE id = 'b'", "id and opened_at"),
        ("UPDATE readings SET input_tokens = 0", "readings are append-only"),
        ("UPDATE charges SET amount_picousd = 0, unit_picousd = 0", "charges are append-only"),
        ("UPDATE quotas SET used_ppm = 0", "quotas are append-only"),
        ("DELETE FROM quotas", "quotas are only dropped by retention"),
        ("DELETE FROM exchanges WHERE id = 'b'", "exchanges are only dropped by retention"),
        ("DELETE FROM readings", "readings are only dropped by retention"),
        ("DELETE FROM charges", "charges are only dropped by retention"),
    ],
)
def test_refused(filled, statement, said):
    with filled.connect() as connection, pytest.raises(sa.exc.DBAPIError, match=said):
        connection.execute(sa.text(statement))
    assert row(filled, "SELECT COUNT(*), SUM(input_tokens) FROM requests") == (1, 100)


def test_derived_columns_and_open_exchanges_do_change(filled):
    alter(
        filled,
        "UPDATE exchanges SET id_collision = true, duplicate_of = 'b' WHERE id = 'a'",
        "UPDATE exchanges SET provider = 'x' WHERE id = 'b'",
    )


def test_what_was_given_up_may_still_be_settled_but_not_reopened(engine):
    lost = settled("a", state=State.LOST, outcome=Outcome.LOST)
    put(engine, (lost, None, ()))
    with (
        engine.connect() as connection,
        pytest.raises(sa.exc.DBAPIError, match="settled exchange does not change"),
    ):
        connection.execute(
            sa.text("UPDATE exchanges SET state = 'open', outcome = NULL, settled_at = NULL")
        )
    alter(engine, "UPDATE exchanges SET state = 'settled', outcome = 'complete'")


REPLACED = {
    "exchanges": "provider",
    "readings": "meter_version",
    "charges": "price_source",
    "quotas": "window_name",
}


@pytest.mark.parametrize("table", REPLACED)
@on_sqlite
def test_replacing_a_row_leaves_it(engine, table):
    """SQLite's REPLACE deletes without asking the triggers that guard against it."""
    put(engine, whole(settled("a", quotas=(STATED,))))
    before = row(engine, f"SELECT * FROM {table} ORDER BY 1, 2 LIMIT 1")
    columns = [f'"{name}"' for name in before._fields]
    values = ["'forged'" if name == f'"{REPLACED[table]}"' else name for name in columns]
    alter(
        engine,
        "PRAGMA foreign_keys = OFF",
        (
            f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) "
            f"SELECT {', '.join(values)} FROM {table} ORDER BY 1, 2 LIMIT 1"
        ),
    )
    assert row(engine, f"SELECT * FROM {table} ORDER BY 1, 2 LIMIT 1") == before


@pytest.mark.parametrize("table", REPLACED)
@on_postgres
def test_truncating_is_refused(engine, table):
    with (
        engine.connect() as connection,
        pytest.raises(sa.exc.DBAPIError, match="only dropped by retention"),
    ):
        connection.exec_driver_sql(f"TRUNCATE {table} CASCADE")


def test_retention_may(filled):
    assert retention.drop_before(filled, NOON + timedelta(days=1)) == 1
    assert row(filled, "SELECT COUNT(*), MIN(id) FROM exchanges") == (1, "b")
    for table in ("readings", "charges", "quotas"):
        assert row(filled, f"SELECT COUNT(*) FROM {table}") == (0,)
    with filled.connect() as connection, pytest.raises(sa.exc.DBAPIError):
        connection.execute(sa.text("DELETE FROM exchanges"))
