"""Exports, read back by DuckDB; FOCUS 1.2 rows."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import pytest

from ledger.exports.export import DATASETS, count_unpriced_charges, export
from ledger.exports.focus import ADDED, COLUMNS, REMOVED, VERSIONS, row_of
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


MANDATORY = """
    BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd
    BillingPeriodStart ChargeCategory ChargeClass ChargeDescription ChargePeriodEnd
    ChargePeriodStart ContractedCost EffectiveCost InvoiceIssuerName ListCost PricingQuantity
    PricingUnit ProviderName PublisherName ServiceCategory ServiceName
"""
"""https://focus.finops.org/focus-specification/v1-2/, feature level Mandatory."""

CHARGE = {
    "hour": datetime(2026, 11, 30, 23, tzinfo=UTC),
    "line": "cache_read",
    "model": "gpt-4.1",
    "unit_picousd": 500_000,
    "amount_picousd": 750_000_000_000,
    "price_source": "list",
    "provider": "openai",
    "origin": "https://api.openai.com:443",
    "operation": "chat",
    "service_tier": "flex",
    "billing": "metered",
    "key_fingerprint": "k1",
    "key_hint": "wxyz",
    "tags": '{"team":"a"}',
    "requests": 4,
    "quantity": 1_500_000,
    "list_unit_picousd": None,
    "invoice_id": None,
    "key_name": None,
    "team": None,
    "cost_centre": None,
    "project": None,
}


def row(**changed):
    return dict(zip(COLUMNS, row_of({**CHARGE, **changed}), strict=True))


def test_mandatory_columns_are_there_in_alphabetical_order_and_ours_behind():
    names = list(COLUMNS)
    assert set(MANDATORY.split()) <= set(names)
    own = [name for name in names if name.startswith("x_")]
    assert names == sorted(set(names) - set(own)) + sorted(own)


def test_a_line_of_tokens():
    """1.5 million cached tokens at $0.50 per million are $0.75."""
    found = row()
    assert found["BilledCost"] == found["ListCost"] == Decimal("0.75")
    assert found["ConsumedQuantity"] == 1_500_000
    assert (found["PricingQuantity"], found["PricingUnit"]) == (Decimal("1.5"), "1000000 Tokens")
    assert found["ListUnitPrice"] == Decimal("0.5")
    assert found["ListUnitPrice"] * found["PricingQuantity"] == found["ListCost"]
    assert (found["BillingAccountId"], found["BillingAccountName"]) == ("openai", "openai")
    assert (found["SubAccountId"], found["SubAccountName"]) == ("k1", "...wxyz")
    assert found["SubAccountType"] == "API key"
    assert found["ChargeDescription"] == "gpt-4.1: cache read"
    assert found["SkuId"] == "openai/gpt-4.1/cache_read"
    assert found["SkuPriceDetails"] == '{"x_Model": "gpt-4.1", "x_ServiceTier": "flex"}'
    assert found["Tags"] == '{"team":"a"}'


def test_a_line_of_searches():
    found = row(line="web_searches", unit_picousd=10**10, quantity=3, amount_picousd=3 * 10**10)
    assert (found["ConsumedUnit"], found["PricingUnit"]) == ("Units", "Units")
    assert (found["PricingQuantity"], found["ListUnitPrice"]) == (3, Decimal("0.01"))
    assert found["BilledCost"] == Decimal("0.03")


@pytest.mark.parametrize(
    ("hour", "start", "end"),
    [
        (
            datetime(2026, 11, 30, 23, tzinfo=UTC),
            datetime(2026, 11, 1, tzinfo=UTC),
            datetime(2026, 12, 1, tzinfo=UTC),
        ),
        (
            datetime(2026, 12, 1, 0, tzinfo=UTC),
            datetime(2026, 12, 1, tzinfo=UTC),
            datetime(2027, 1, 1, tzinfo=UTC),
        ),
        (
            datetime(2028, 2, 29, 5, tzinfo=UTC),
            datetime(2028, 2, 1, tzinfo=UTC),
            datetime(2028, 3, 1, tzinfo=UTC),
        ),
    ],
)
def test_the_billing_period_is_the_month(hour, start, end):
    found = row(hour=hour)
    assert (found["BillingPeriodStart"], found["BillingPeriodEnd"]) == (start, end)
    assert found["ChargePeriodStart"] == hour
    assert (found["ChargePeriodEnd"] - hour).total_seconds() == 3600


def test_what_is_not_known_is_null_or_named_so():
    found = row(model=None, key_fingerprint=None, key_hint=None, service_tier=None)
    assert found["SubAccountId"] is None
    assert found["SubAccountName"] is None
    assert found["SubAccountType"] is None
    assert found["x_Model"] is None
    assert found["SkuId"] == "openai/unknown/cache_read"


def test_a_negotiated_price_is_a_saving_against_the_published_one():
    """1.5 million cached tokens, published at $0.50 per million, bought at $0.40."""
    found = row(unit_picousd=400_000, amount_picousd=600_000_000_000, list_unit_picousd=500_000)
    assert found["ListCost"] == Decimal("0.75")
    assert found["ContractedCost"] == found["BilledCost"] == found["EffectiveCost"]
    assert found["BilledCost"] == Decimal("0.60")
    assert (found["ListUnitPrice"], found["ContractedUnitPrice"]) == (
        Decimal("0.5"),
        Decimal("0.4"),
    )


def test_names_are_ascii():
    found = row(key_name="Büro …", provider="größe")
    assert (found["SubAccountName"], found["BillingAccountName"]) == ("B?ro ?", "gr??e")
    assert row(key_fingerprint="0123456789abcdef", key_hint=None)["SubAccountName"] == "01234567"


def test_version_1_4_has_what_it_adds_and_not_what_it_removes():
    old, new = (dict(zip(VERSIONS[each], row_of(CHARGE, each), strict=True)) for each in VERSIONS)
    assert set(new) == (set(old) - set(REMOVED)) | set(ADDED)
    assert new["ServiceProviderName"] == new["HostProviderName"] == old["ProviderName"]
    assert all(new[name] is None for name in ADDED if not name.endswith("ProviderName"))
    same = set(old) & set(new) - {"SkuPriceDetails"}
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    for columns in VERSIONS.values():
        own = [name for name in columns if not name.startswith("x_")]
        assert [*columns] == sorted(own) + sorted(set(columns) - set(own))
    assert "ModelId" not in json.loads(old["SkuPriceDetails"])


@pytest.mark.parametrize(
    ("model", "line", "expected"),
    [
        ("gpt-4.1", "cache_read", ("OpenAI", "GPT", "Input", "Read")),
        (
            "anthropic/claude-sonnet-4.5",
            "cache_write_1h",
            ("Anthropic", "Claude", "Input", "Write"),
        ),
        (
            "us.anthropic.claude-haiku-4-5-v1:0",
            "uncached_input",
            ("Anthropic", "Claude", "Input", "Uncached"),
        ),
        ("models/gemini-2.5-pro", "output", ("Google", "Gemini", "Output", None)),
        ("advisor", "advisor.reasoning", (None, None, "Output", None)),
        ("o3-mini", "web_search", ("OpenAI", "o-series", None, None)),
    ],
)
def test_who_made_a_model_and_which_tokens_are_charged(model, line, expected):
    charge = CHARGE | {"model": model, "line": line}
    row = dict(zip(VERSIONS["1.4"], row_of(charge, "1.4"), strict=True))
    details = json.loads(row["SkuPriceDetails"])
    names = ("ModelDeveloper", "ModelFamily", "TokenDirection", "TokenCacheAction")
    assert tuple(details.get(name) for name in names) == expected
    assert details["ModelId"] == model
