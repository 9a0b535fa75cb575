"""The schema keeps its own rules, on both databases; rows come back as the values they were written from."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from msgspec.structs import asdict, replace

from ledger.model.exchange import UsageSource
from ledger.model.usage import FurtherUsage, Usage
from ledger.store import db
from ledger.store.keys import exchange_of, instant_text, reading_of
from ledger.store.schema.columns import Instant, JsonText
from ledger.store.tables import OF_EXCHANGES, PARTITIONED, exchanges, metadata, readings
from tests.ledger import priced
from tests.ledger.written import on_sqlite, opened, put, row, settled, whole

PARTITIONED_TABLES = [metadata.tables[name] for name in PARTITIONED]


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_every_column_says_what_it_holds(table):
    assert table.comment
    assert [column.name for column in table.c if not column.comment] == []


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: table.name)
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


@pytest.mark.parametrize("table", PARTITIONED_TABLES, ids=lambda table: table.name)
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
        for table in ("readings", "charges")
        if (keys := inspector.get_foreign_keys(table))
    }
    assert found == {
        "readings": [("exchanges", ["opened_at", "exchange_id"])],
        "charges": [("readings", ["opened_at", "exchange_id", "reading_id"])],
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
    values = {
        "id": "a",
        "opened_at": datetime(2026, 1, 1, tzinfo=UTC),
        "state": "settled",
        "outcome": "complete",
        "settled_at": datetime(2026, 1, 1, tzinfo=UTC),
        "source": "live",
        "origin": "o",
        "provider": "p",
        "dialect": "d",
        "operation": "chat",
        "path": "/",
        "tags": "{}",
    }
    with engine.connect() as connection:
        connection.execute(sa.insert(exchanges).values(values))
        connection.rollback()
        with pytest.raises(sa.exc.IntegrityError, match=constraint):
            connection.execute(sa.insert(exchanges).values(values | changes))


@on_sqlite
def test_text_that_does_not_sort_is_no_instant(engine):
    put(engine, (opened("a"), None, ()))
    rest = ", ".join(name for name in exchanges.c.keys() if name not in ("id", "opened_at"))  # noqa: SIM118
    with (
        engine.connect() as connection,
        pytest.raises(sa.exc.IntegrityError, match="opened_at_is_instant"),
    ):
        connection.exec_driver_sql(
            f"INSERT INTO exchanges (id, opened_at, {rest}) "
            f"SELECT 'b', '2026-01-02T03:04:05Z', {rest} FROM exchanges"
        )


def test_what_was_written_comes_back(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
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
    priced.fill(url, [(written, read)])
    engine = db.ensure(url)
    with engine.connect() as connection:
        exchange_row = connection.execute(sa.select(exchanges)).one()._asdict()
        reading_row = connection.execute(sa.select(readings)).one()._asdict()
    engine.dispose()
    assert exchange_of(exchange_row) == written
    assert reading_of(reading_row) == read


def test_an_open_exchange_comes_back():
    row = {**dict.fromkeys(exchanges.c.keys()), **asdict(priced.exchange()), "tags": "{}"}
    assert exchange_of(row) == priced.exchange()
