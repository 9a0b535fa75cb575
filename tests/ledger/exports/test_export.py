"""Exports, read back by DuckDB."""

from decimal import Decimal

import duckdb
import pytest

from ledger.exports.export import DATASETS, count_unpriced_charges, export
from ledger.figures.queries import report
from ledger.store.scope import Scope
from tests.ledger.figures.test_queries import entries
from tests.ledger.priced import BOTH, NOVEMBER, exchange, filled


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries(), still_open=[exchange()])


@pytest.fixture(scope="module", params=["parquet", "csv"])
def files(request, engine, tmp_path_factory):
    """All datasets in one directory, as DuckDB is asked for them."""
    directory = tmp_path_factory.mktemp("export")
    for name in DATASETS:
        list(export(engine, name, directory, request.param, Scope()))
    reader = "read_parquet" if request.param == "parquet" else "read_csv"
    return lambda name: f"{reader}('{directory}/*/{name}.{request.param}', hive_partitioning=true)"


def ask(question):
    with duckdb.connect() as connection:
        return connection.execute(question).fetchall()


def booked_picousd(engine) -> int:
    total = report(engine, ["model"], Scope()).total.figures
    assert total.cost_picousd is not None
    return total.cost_picousd


def test_requests_add_up_to_the_report(engine, files):
    total = report(engine, ["model"], Scope()).total.figures
    assert total.output_tokens is not None
    assert total.estimated_output_tokens is not None
    (row,) = ask(
        "SELECT COUNT(*), SUM(output_tokens), SUM(cost_picousd), SUM(cost_usd::DECIMAL(38,12)), "
        f"SUM(estimated_cost_picousd) FROM {files('requests')}"
    )
    assert row[0] == total.requests
    assert row[1] == total.output_tokens
    booked = booked_picousd(engine)
    assert row[2] == booked
    assert row[3] == Decimal(booked).scaleb(-12)
    assert row[4] == total.estimated_cost_picousd is not None


def test_days_are_partitions(files):
    assert ask(
        f"SELECT day::DATE::VARCHAR, COUNT(*) FROM {files('requests')} GROUP BY 1 ORDER BY 1"
    ) == [("2026-11-02", 7), ("2026-11-03", 3)]


def test_not_reported_stays_null(files):
    assert ask(
        f"SELECT id, cache_read_tokens FROM {files('requests')} WHERE id IN ('a2', 'b2') ORDER BY 1"
    ) == [("a2", 0), ("b2", None)]


def test_charges_explain_the_cost_of_each_request(files):
    wrong = ask(
        f"SELECT r.id FROM {files('requests')} r JOIN (SELECT exchange_id, SUM(amount_picousd) AS "
        f"amount FROM {files('charges')} GROUP BY 1) c ON c.exchange_id = r.id "
        "WHERE COALESCE(r.cost_picousd, r.estimated_cost_picousd) <> c.amount"
    )
    assert wrong == []
    assert ask(
        "SELECT line, model, quantity, unit_usd::DECIMAL(38,12) * 1000000, provider "
        f"FROM {files('charges')} WHERE exchange_id = 'b1' AND line = 'compaction.output'"
    ) == [("compaction.output", "claude-haiku-4-5", 7, 5, "anthropic")]


def test_focus_bills_all_reported_use_that_has_a_price(engine, files):
    (row,) = ask(
        "SELECT SUM(BilledCost::DECIMAL(38,12)), SUM(x_Requests) FILTER (SkuMeter = 'output'), "
        "MIN(ChargePeriodStart)::VARCHAR, "
        "BOOL_AND(ABS(ListUnitPrice::DECIMAL(38,12) * PricingQuantity::DECIMAL(38,12) - ListCost) "
        f"< 1e-12) FROM {files('focus')}"
    )
    # An estimate is in no total, and nobody bills it.
    assert row[0] == Decimal(booked_picousd(engine)).scaleb(-12)
    assert row[1] == 6  # a1, a2, b1, b4, b5, b6; a4 is an estimate
    assert row[2].startswith("2026-11-02 12:00:00")
    assert row[3] is True


def test_what_focus_leaves_out_is_counted(engine):
    # b2: input and output of a model without a price; b4: a unit without one
    assert count_unpriced_charges(engine, Scope()) == 3
    assert count_unpriced_charges(engine, Scope(until=NOVEMBER)) == 0


def test_only_what_is_asked_for(engine, tmp_path):
    scope = Scope(only=(("model", "gpt-4.1"),), since=NOVEMBER.replace(hour=0, day=3))
    (written,) = export(engine, "requests", tmp_path, "csv", scope)
    assert (written.path.parent.name, written.rows) == ("day=2026-11-03", 2)


def test_nothing_to_export(engine, tmp_path):
    assert list(export(engine, "requests", tmp_path, "csv", Scope(until=NOVEMBER))) == []
