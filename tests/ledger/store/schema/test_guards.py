"""What the databases themselves refuse."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from ledger.model.exchange import Outcome, State
from ledger.model.quota import Quota, QuotaKind
from ledger.store import retention
from tests.ledger.written import (
    NOON,
    alter,
    on_postgres,
    on_sqlite,
    opened,
    put,
    row,
    settled,
    whole,
)

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
