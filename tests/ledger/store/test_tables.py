"""The schema keeps its own rules, on both databases; rows come back as the values they were written from.
Dropping old exchanges: whole ones, ended ones, and nothing else. What the databases themselves refuse."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import asdict, replace

from ledger.model.exchange import Outcome, Quota, QuotaKind, State, UsageSource
from ledger.model.usage import FurtherUsage, Usage
from ledger.store import retention
from ledger.store.engines import migration
from ledger.store.keys import exchange_of, instant_text, reading_of
from ledger.store.schema.columns import Instant, JsonText
from ledger.store.tables import OF_EXCHANGES, PARTITIONED, exchanges, metadata, readings
from tests.ledger import priced
from tests.ledger.written import (
    NOON,
    alter,
    charge_again,
    on_postgres,
    on_sqlite,
    opened,
    put,
    row,
    rows,
    settled,
    whole,
)
from tests.named import for_each

PARTITIONED_TABLES = [metadata.tables[name] for name in PARTITIONED]


@for_each("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_every_column_says_what_it_holds(table):
    assert table.comment
    assert [column.name for column in table.c if not column.comment] == []


@for_each("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_money_and_tokens_are_integers_and_constraints_have_names(table):
    for column in table.c:
        assert column.type.__class__.__name__ not in ("Float", "Numeric"), column.name
        if column.name.endswith(("_picousd", "_tokens", "_bytes")):
            assert isinstance(column.type, sa.BigInteger), column.name
    assert all(constraint.name for constraint in table.constraints)


def test_every_table_with_rows_of_an_exchange_loses_them_with_it():
    inner = {"unpriced_lines", "outbox", "set_aside"}  # sums, and what a spool has yet to ship
    keyed = {
        table.name
        for table in metadata.sorted_tables
        if "opened_at" in table.c and ("exchange_id" in table.c or table is exchanges)
    }
    assert keyed - inner == {table.name for table in OF_EXCHANGES}


@for_each("table", PARTITIONED_TABLES, ids=lambda table: table.name)
def test_every_key_can_be_partitioned_by_time_and_spread_by_exchange(table):
    exchange_id = "id" if table is exchanges else "exchange_id"
    keys = [
        constraint
        for constraint in table.constraints
        if isinstance(constraint, sa.PrimaryKeyConstraint | sa.UniqueConstraint)
    ]
    assert keys
    for key in keys:
        assert {"opened_at", exchange_id} <= {column.name for column in key.columns}
    assert not [index for index in table.indexes if index.unique]


@on_sqlite
def test_on_sqlite_readings_and_charges_refer_to_what_they_are_of(engine):
    inspector = sa.inspect(engine)
    found = {
        table: [(key["referred_table"], key["constrained_columns"]) for key in keys]
        for table in ("readings", "pricings")
        if (keys := inspector.get_foreign_keys(table))
    }
    assert found == {
        "readings": [("exchanges", ["opened_at", "exchange_id"])],
        "pricings": [("readings", ["opened_at", "exchange_id", "reading_id"])],
    }


@on_sqlite
def test_instants_sort_as_text_and_are_understood_by_sqlite(engine):
    moments = [
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC),
    ]
    texts = [instant_text(moment) for moment in moments]
    assert texts[0] == "2026-01-02 03:04:05.000000Z"
    assert texts == sorted(texts)
    assert row(
        engine,
        "SELECT datetime(:a), date(:a), :a > datetime(:a, '-1 second'), "
        ":a < datetime(:a, '+1 second')",
        a=texts[0],
    ) == ("2026-01-02 03:04:05", "2026-01-02", 1, 1)


def test_an_instant_comes_back_in_utc(engine):
    east = timezone(timedelta(hours=5, minutes=30))
    moment = datetime(2026, 1, 2, 8, 34, 5, 123_456, tzinfo=east)
    with engine.connect() as connection:
        found = connection.scalar(sa.select(sa.literal(moment, Instant())))
    assert found == moment
    assert found.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "text", ['{"b":  1, "a": [1.50, "\\u00e9é"]}', '"not an object"', "1.0", "[]"]
)
def test_a_document_is_kept_to_the_byte_and_takes_json_operators(engine, text):
    exchange = settled("a")
    put(engine, whole(exchange, usage_json=text))
    with engine.connect() as connection:
        readings = metadata.tables["readings"]
        assert isinstance(readings.c.usage_json.type, JsonText)
        assert connection.scalar(sa.select(readings.c.usage_json)) == text
    if text.startswith("{"):
        assert row(engine, "SELECT usage_json ->> 'b' FROM requests")[0] in (1, "1")


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [
        pytest.param({"state": "gone"}, "ck_exchanges_", id="state"),
        pytest.param({"outcome": "fine"}, "ck_exchanges_", id="outcome"),
        pytest.param({"outcome": None}, "ck_exchanges_outcome_when_ended", id="no outcome"),
        pytest.param({"settled_at": None}, "ck_exchanges_settled_at_when_ended", id="no end"),
        pytest.param({"outcome": "lost"}, "ck_exchanges_lost_is_lost", id="settled, yet lost"),
        pytest.param({"duplicate_of": "a"}, "ck_exchanges_not_its_own_duplicate", id="of itself"),
        pytest.param({"events": -1}, "ck_exchanges_events_not_negative", id="negative"),
        pytest.param({"source": "guess"}, "ck_exchanges_source", id="source"),
    ],
)
def test_checks_repeat_the_invariants(engine, changes, constraint):
    known = {name: value for name, value in asdict(settled("a")).items() if value is not None}
    values = {name: known[name] for name in known if name in exchanges.c} | {"tags": "{}"}
    with engine.connect() as connection:
        connection.execute(sa.insert(exchanges).values(values))
        connection.rollback()
        with pytest.raises(sa.exc.IntegrityError, match=constraint):
            connection.execute(sa.insert(exchanges).values(values | changes))


CHECKS_OF_A_PRICING = (
    ("cost_state", "'paid'", "cost_state"),
    ("cost_state", "'unpriced'", "amount_where_priced"),
    ("cost_state", "NULL", "amount_where_priced"),
    ("amount_picousd", "-1", "amount_picousd_not_negative"),
    ("list_value_picousd", "-1", "list_value_picousd_not_negative"),
    ("extra_input_tokens", "-1", "extra_input_tokens_not_negative"),
    ("extra_output_tokens", "-1", "extra_output_tokens_not_negative"),
)


@pytest.mark.parametrize("table", ["readings", "pricings"])
def test_checks_repeat_the_invariants_of_a_pricing(filled, table):
    names = [column.name for column in metadata.tables[table].columns]
    for name, value, constraint in CHECKS_OF_A_PRICING:
        changes = {"id": "'x'", name: value}
        values = ", ".join(changes.get(each, each) for each in names)
        with pytest.raises(sa.exc.IntegrityError, match=f"ck_{table}_{constraint}"):
            alter(filled, f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table}")


def test_every_table_has_the_checks_that_are_stated(engine):
    """The comparison of schemas leaves checks out."""
    for table in metadata.tables.values():
        stated = {
            check.name
            for check in table.constraints
            if isinstance(check, sa.CheckConstraint)
            and getattr(check._ddl_if, "dialect", None) in {None, engine.dialect.name}
        }
        found = sa.inspect(engine).get_check_constraints(table.name)
        assert {check["name"] for check in found} == stated


@on_sqlite
def test_text_that_does_not_sort_is_no_instant(engine):
    put(engine, (opened("a"), None, ()))
    rest = ", ".join(name for name in exchanges.c.keys() if name not in ("id", "opened_at"))  # noqa: SIM118
    with pytest.raises(sa.exc.IntegrityError, match="opened_at_is_instant"):
        alter(
            engine,
            f"INSERT INTO exchanges (id, opened_at, {rest}) "
            f"SELECT 'b', '2026-01-02T03:04:05Z', {rest} FROM exchanges",
        )


def test_what_was_written_comes_back(sqlite_engine):
    written = priced.settled(
        priced.exchange(
            request_model="gpt", tags={"team": "a"}, service_tier="flex", node="test/1/1"
        )
    )
    read = replace(
        priced.reading(
            usage_source=UsageSource.PARTIAL,
            input_tokens=10,
            cache_read_tokens=0,
            tool_units={"web_searches": 2},
            reported_cost_picousd=5,
            is_byok=True,
            remarks=("odd",),
            further=(
                FurtherUsage(
                    kind="compaction",
                    model="claude",
                    usage=Usage(input_tokens=3, tool_units={"web_searches": 1}),
                ),
            ),
        ),
        usage_json='{"prompt_tokens":10}',
        estimated_output_tokens=7,
    )
    priced.fill(sqlite_engine, [(written, read)])
    with sqlite_engine.connect() as connection:
        exchange_row = connection.execute(sa.select(exchanges)).one()._asdict()
        reading_row = connection.execute(sa.select(readings)).one()._asdict()
    assert exchange_of(exchange_row) == written
    assert reading_of(reading_row) == read


def test_an_open_exchange_comes_back():
    row = {**dict.fromkeys(exchanges.c.keys()), **asdict(priced.exchange()), "tags": "{}"}
    assert exchange_of(row) == priced.exchange()


def test_what_is_old_and_has_ended_goes_whole(engine, monkeypatch):
    from tests.ledger import bundled

    monkeypatch.setattr(retention, "DROP_EXCHANGES_MAX", 2)
    at = {name: NOON + timedelta(days=number) for number, name in enumerate("abcdefg")}
    quotas = (Quota(window="5h", window_name="5h", kind=QuotaKind.PLAN, used_ppm=1),)
    bundled.put(
        engine,
        *(whole(settled(name, at=at[name], quotas=quotas)) for name in at if name != "b"),
    )
    bundled.put(engine, (opened("b", at=at["b"]), None, ()))
    for name in at.keys() - {"b"}:
        charge_again(engine, name, 0, 7)
    assert retention.count_before(engine, at["f"]) == 4
    seen: list[int] = []
    assert retention.drop_before(engine, at["f"], on_progress=seen.append) == 4
    assert seen == [2, 4]
    assert rows(engine, "SELECT id FROM exchanges ORDER BY id") == [("b",), ("f",), ("g",)]
    for table in ("readings", "pricings", "quotas"):
        assert rows(engine, f"SELECT DISTINCT exchange_id FROM {table} ORDER BY 1") == [
            ("f",),
            ("g",),
        ]
    assert retention.drop_before(engine, at["f"]) == 0
    assert rows(engine, "SELECT * FROM meta WHERE key = 'retention'") == []
    with pytest.raises(sa.exc.DBAPIError):
        alter(engine, "DELETE FROM exchanges")


def test_the_work_to_forget_texts_is_linear(sqlite_engine, monkeypatch):
    """In steps of SQLite's machine; a search from the beginning for each batch takes 16 times as
    many for four times the texts."""
    monkeypatch.setattr(retention, "FORGET_EXCHANGES_MAX", 5)
    steps = [0]

    def count() -> None:
        steps[0] += 1

    def steps_of(texts: range) -> int:
        put(
            sqlite_engine,
            *(
                whole(
                    settled(
                        f"e{number}", at=NOON + timedelta(seconds=number), error_message="secret"
                    )
                )
                for number in texts
            ),
        )
        steps[0] = 0
        assert retention.forget_error_texts(sqlite_engine) == len(texts)
        return steps[0]

    @sa.event.listens_for(sqlite_engine, "begin")
    def begin(connection: sa.Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(count, 10)

    few = steps_of(range(100))
    retention.forget_error_texts(sqlite_engine)
    many = steps_of(range(100, 500))
    assert many < 7 * few, (few, many)


def test_free_texts_of_errors_are_forgotten_on_request_and_nothing_else(engine, monkeypatch):
    monkeypatch.setattr(retention, "FORGET_EXCHANGES_MAX", 2)
    for name, told in {
        "text": ("invalid_request", "400", "your prompt: secret"),
        "free-type": ("my secret", "c.1:/-_", None),
        "long-code": ("t", "c" * 65, None),
        "tokens": ("transport", "timeout", None),
        "none": (None, None, None),
    }.items():
        kind, code, message = told
        put(
            engine,
            whole(settled(name, error_type=kind, error_code=code, error_message=message)),
        )
    assert retention.forget_error_texts(engine) == 3
    query = "SELECT id, error_type, error_code, error_message, finish_reason FROM exchanges"
    assert sorted(rows(engine, query)) == [
        ("free-type", None, "c.1:/-_", None, None),
        ("long-code", "t", None, None, None),
        ("none", None, None, None, None),
        ("text", "invalid_request", "400", None, None),
        ("tokens", "transport", "timeout", None, None),
    ]
    assert retention.forget_error_texts(engine) == 0
    with pytest.raises(sa.exc.DBAPIError):
        alter(engine, "UPDATE exchanges SET error_type = 'x'")


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
    charge_again(engine, "a", 0, 7)
    return engine


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE exchanges SET provider = 'x' WHERE id = 'a'", "settled exchange does not change"),
        ("UPDATE exchanges SET state = 'open' WHERE id = 'a'", "settled exchange does not change"),
        ("UPDATE exchanges SET tags = '{}' WHERE id = 'a'", "settled exchange does not change"),
        ("UPDATE exchanges SET id = 'x' WHERE id = 'b'", "id and opened_at"),
        ("UPDATE readings SET input_tokens = 0", "readings are append-only"),
        ("UPDATE readings SET charges = '[]'", "readings are append-only"),
        ("UPDATE pricings SET charges = '[]'", "pricings are append-only"),
        ("UPDATE charges SET amount_picousd = 0", "cannot (modify|update|change).*view"),
        ("UPDATE quotas SET used_ppm = 0", "quotas are append-only"),
        ("DELETE FROM quotas", "quotas are only dropped by retention"),
        ("DELETE FROM exchanges WHERE id = 'b'", "exchanges are only dropped by retention"),
        ("DELETE FROM readings", "readings are only dropped by retention"),
        ("DELETE FROM pricings", "pricings are only dropped by retention"),
        ("DELETE FROM charges", "cannot (modify|delete).*view"),
    ],
)
def test_refused(filled, statement, said):
    with pytest.raises(sa.exc.DBAPIError, match=said):
        alter(filled, statement)
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
    with pytest.raises(sa.exc.DBAPIError, match="settled exchange does not change"):
        alter(engine, "UPDATE exchanges SET state = 'open', outcome = NULL, settled_at = NULL")
    alter(engine, "UPDATE exchanges SET state = 'settled', outcome = 'complete'")


REPLACED = {
    "exchanges": "provider",
    "readings": "meter_version",
    "pricings": "charges",
    "quotas": "window_name",
}


@pytest.mark.parametrize("table", REPLACED)
@on_sqlite
def test_replacing_a_row_leaves_it(engine, table):
    """SQLite's REPLACE deletes without asking the triggers that guard against it."""
    put(engine, whole(settled("a", quotas=(STATED,))))
    charge_again(engine, "a", 0, 7)
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
    with pytest.raises(sa.exc.DBAPIError, match="only dropped by retention"):
        alter(engine, f"TRUNCATE {table} CASCADE")


def test_retention_may(filled):
    assert retention.drop_before(filled, NOON + timedelta(days=1)) == 1
    assert row(filled, "SELECT COUNT(*), MIN(id) FROM exchanges") == (1, "b")
    for table in ("readings", "pricings", "quotas"):
        assert row(filled, f"SELECT COUNT(*) FROM {table}") == (0,)
    with pytest.raises(sa.exc.DBAPIError):
        alter(filled, "DELETE FROM exchanges")
