"""Files by day, whole or not at all; CSV with the standard library alone, of which pyarrow's own writer
says what is expected of each value. Exports, read back by DuckDB; FOCUS 1.2 rows."""

import csv
import io
import json
import os
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.figures.queries import report
from ledger.model.errors import LedgerError
from ledger.parts.exports import day_files
from ledger.parts.exports.day_files import csv_file, write
from ledger.parts.exports.export import DATASETS, count_unpriced_charges, export
from ledger.parts.exports.focus import ADDED, FOCUS_COLUMNS, REMOVED, VERSIONS, row_of
from ledger.pricing.price_lines import OUTPUT_LINES, TOKEN_LINES
from ledger.store import db
from ledger.store.scope import Scope
from tests.ledger.figures.test_queries import entries
from tests.ledger.priced import BOTH, NOVEMBER, exchange, fill, filled, reading, settled
from tests.ledger.written import run_python
from tests.named import for_each

DAY, NEXT = date(2026, 11, 2), date(2026, 11, 3)
COLUMNS = (("at", "instant"), ("name", "text"), ("cost", "decimal"), ("count", "integer"))
ROWS = [
    (DAY, (datetime(2026, 11, 2, 1, 2, 3, 456789, tzinfo=UTC), "=1+1", Decimal("1E-12"), 1)),
    (DAY, (None, None, None, None)),
    (NEXT, (datetime(2026, 11, 3, tzinfo=UTC), "-x", Decimal(9 * 10**6), 2**63 - 1)),
]


@for_each("before", ["charges", "focus", "focus-1.4"])
@for_each("form", ["csv", "parquet"])
def test_exports_of_two_kinds_do_not_share_a_folder(tmp_path, before, form):
    """`*.parquet` of the folder would count each request twice; the same export again replaces."""
    for _ in range(2):
        assert len(list(write(tmp_path, before, COLUMNS, ROWS, form))) == 2
    files = sorted(tmp_path.rglob("*.*"))
    with pytest.raises(LedgerError, match=f"has an export of {before}; write requests to a folder"):
        list(write(tmp_path, "requests", COLUMNS, ROWS, form))
    assert sorted(tmp_path.rglob("*.*")) == files


def test_a_parquet_file_for_each_day(tmp_path):
    written = list(write(tmp_path, "requests", COLUMNS, ROWS, "parquet"))
    assert [(each.path.relative_to(tmp_path).as_posix(), each.rows) for each in written] == [
        ("day=2026-11-02/requests.parquet", 2),
        ("day=2026-11-03/requests.parquet", 1),
    ]
    table = pyarrow.parquet.ParquetFile(written[0].path).read()
    assert table.to_pylist() == [
        {"at": ROWS[0][1][0], "name": "=1+1", "cost": Decimal("0.000000000001"), "count": 1},
        {"at": None, "name": None, "cost": None, "count": None},
    ]


def test_csv_is_safe_in_a_spreadsheet(tmp_path):
    first, second = write(tmp_path, "requests", COLUMNS, ROWS, "csv")
    assert first.path.read_text().splitlines() == [
        '"at","name","cost","count"',
        '"2026-11-02T01:02:03.456789Z","\'=1+1","0.000000000001",1',
        ",,,",
    ]
    assert second.path.read_text().splitlines()[1].split(",")[1] == '"\'-x"'


@for_each("form", ["parquet", "csv"])
def test_nobody_else_reads_an_export(tmp_path, form):
    folder = tmp_path / "out" / "deep"
    old = os.umask(0)
    try:
        (written,) = write(folder, "n", (("number", "integer"),), [(DAY, (1,))], form)
    finally:
        os.umask(old)
    assert written.path.stat().st_mode & 0o777 == 0o600
    for each in (written.path.parent, folder):
        assert each.stat().st_mode & 0o777 == 0o700


def test_more_than_a_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(day_files, "BATCH_ROWS", 2)
    rows = [(DAY, (number,)) for number in range(5)]
    (written,) = write(tmp_path, "n", (("number", "integer"),), rows, "parquet")
    file = pyarrow.parquet.ParquetFile(written.path)
    assert (written.rows, file.num_row_groups) == (5, 3)
    assert file.read().to_pydict() == {"number": [0, 1, 2, 3, 4]}


def test_an_export_that_breaks_off_leaves_no_file_that_is_cut(tmp_path):
    def rows():
        yield from ROWS[:2]
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError):
        list(write(tmp_path, "requests", COLUMNS, rows(), "parquet"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_doing_it_again_replaces_the_files(tmp_path):
    list(write(tmp_path, "requests", COLUMNS, ROWS, "parquet"))
    list(write(tmp_path, "requests", COLUMNS, ROWS[:1], "parquet"))
    path = tmp_path / "day=2026-11-02" / "requests.parquet"
    assert pyarrow.parquet.ParquetFile(path).metadata.num_rows == 1


def test_without_pyarrow_parquet_is_refused_and_csv_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(LedgerError, match=r"tokentee\[parquet\].*; CSV .* --format csv"):
        list(write(tmp_path, "requests", COLUMNS, ROWS, "parquet"))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"cannot write .*requests.csv"):
        list(write(tmp_path / "file", "requests", COLUMNS, ROWS, "csv"))


HARMLESS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)).filter(
    lambda text: not text.lstrip().startswith(tuple("=+-@"))
)
DRAWN = st.lists(
    st.tuples(
        st.none() | HARMLESS,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
DRAWN_COLUMNS = (("a text", "text"), ('"count"', "integer"), ("is", "boolean"))


def written(path, columns, *batches):
    with csv_file(path, columns) as append:
        for rows in batches:
            append(rows)
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("csv") / "rows.csv"


@given(rows=DRAWN)
def test_texts_integers_and_booleans_are_written_as_pyarrow_does(path, rows):
    schema = pa.schema([("a text", pa.string()), ('"count"', pa.int64()), ("is", pa.bool_())])
    arrays = [
        pa.array([row[at] for row in rows], type=field.type) for at, field in enumerate(schema)
    ]
    expected = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(arrays, schema=schema), expected)
    assert written(path, DRAWN_COLUMNS, rows) == expected.getvalue()


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        pytest.param("text", "", '""', id="an-empty-text-is-not-null"),
        pytest.param("text", None, "", id="null"),
        pytest.param("text", 'say "hi", then\ngo', '"say ""hi"", then\\x0ago"', id="quotes-and-line-end"),
        pytest.param("text", "\x1b[2J", '"\\x1b[2J"', id="escape"),
        pytest.param("text", '=HYPERLINK("x")', '"\'=HYPERLINK(""x"")"', id="formula"),
        pytest.param("text", "  -1", "\"'  -1\"", id="formula-after-spaces"),
        pytest.param("text", "\t@x", '"\\x09@x"', id="tab"),
        pytest.param("text", "\u00a0=1", "\"'\u00a0=1\"", id="formula-after-another-space"),
        pytest.param("text", "\uff1d1", "\"'\uff1d1\"", id="full-width-formula"),
        pytest.param("text", "\ud800", '"\\ud800"', id="half-a-character"),
        pytest.param("text", "größer", '"größer"', id="letters-outside-ascii"),
        pytest.param("instant", datetime(2026, 11, 2, 1, 2, 3, tzinfo=UTC), '"2026-11-02T01:02:03.000000Z"', id="instant"),
        pytest.param("instant", datetime(2026, 11, 2, 1, tzinfo=timezone(timedelta(hours=2))), '"2026-11-01T23:00:00.000000Z"', id="instant-elsewhere"),
        pytest.param("second", datetime(2026, 11, 2, 1, 2, 3, 9, tzinfo=UTC), '"2026-11-02T01:02:03Z"', id="second"),
        pytest.param("decimal", Decimal("1E-12"), '"0.000000000001"', id="one-pico"),
        pytest.param("decimal", Decimal("8E+6"), '"8000000.0"', id="whole"),
        pytest.param("decimal", Decimal("0E-12"), '"0.0"', id="zero"),
        pytest.param("decimal", Decimal("-2.50"), '"-2.5"', id="negative"),
    ],
)  # fmt: skip
def test_one_value(path, kind, value, cell):
    assert written(path, (("x", kind),), [(value,)]).decode() == f'"x"\n{cell}\n'


def test_batches_follow_each_other(path):
    assert written(path, (("n", "integer"),), [(1,), (2,)], [(3,)]) == b'"n"\n1\n2\n3\n'


@pytest.mark.large
def test_it_needs_no_pyarrow():
    code = (
        "import sys; sys.modules['pyarrow'] = None; import ledger.parts.exports.export; "
        "from ledger.parts.exports.day_files import write; "
        "from datetime import date; from pathlib import Path; import tempfile; "
        "folder = Path(tempfile.mkdtemp()); "
        "rows = [(date(2026, 11, 2), ('a',))]; "
        "(one,) = write(folder, 'n', (('t', 'text'),), rows, 'csv'); "
        "print(one.path.read_text(), end='')"
    )
    done = run_python(code)
    assert (done.returncode, done.stdout) == (0, '"t"\n"a"\n'), done.stderr


def test_csv_keeps_no_control_character(tmp_path):
    texts = ["\x1b[2J", "plain", None, "\u202e", " =1", "é"]
    rows = [(DAY, (text,)) for text in texts]
    (written,) = write(tmp_path, "n", (("name", "text"),), rows, "csv")
    lines = written.path.read_text().splitlines()
    assert lines == ['"name"', '"\\x1b[2J"', '"plain"', "", '"\\u202e"', '"\' =1"', '"é"']


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries(), still_open=[exchange()])


@pytest.fixture(scope="module", params=["parquet", "csv"])
def files(request, engine, tmp_path_factory):
    """Each dataset in a directory of its own, as DuckDB is asked for them."""
    directory = tmp_path_factory.mktemp("export")
    for name in DATASETS:
        list(export(engine, name, directory / name, request.param, Scope()))
    reader = "read_parquet" if request.param == "parquet" else "read_csv"
    return lambda name: f"{reader}('{directory}/{name}/*/*.*', hive_partitioning=true)"


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


@pytest.mark.parametrize("name", DATASETS)
def test_a_file_holds_a_day_of_the_zone(engine, tmp_path, name):
    """A period of its whole days replaces whole files. Noon in UTC is tomorrow in Auckland."""

    def exported(zone: str) -> list[tuple[date, int]]:
        files = export(engine, name, tmp_path / zone, "csv", Scope(zone=ZoneInfo(zone)))
        days = [(file.path.parent.name.removeprefix("day="), file.rows) for file in files]
        return [(date.fromisoformat(day), rows) for day, rows in days]

    ours = [(day + timedelta(days=1), rows) for day, rows in exported("UTC")]
    assert exported("Pacific/Auckland") == ours


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
    "has_cache_figures": 1,
    "list_unit_picousd": None,
    "invoice_id": None,
    "key_name": None,
    "team": None,
    "cost_centre": None,
    "project": None,
}


def row(**changed):
    return dict(zip(FOCUS_COLUMNS, row_of({**CHARGE, **changed}), strict=True))


def test_mandatory_columns_are_there_in_alphabetical_order_and_ours_behind():
    names = list(FOCUS_COLUMNS)
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


@for_each(
    "hour, start, end",
    [
        ("2026-11-30T23", "2026-11-01", "2026-12-01"),
        ("2026-12-01T00", "2026-12-01", "2027-01-01"),
        ("2028-02-29T05", "2028-02-01", "2028-03-01"),
    ],
)
def test_the_billing_period_is_the_month(hour, start, end):
    moments = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (hour, start, end))
    hour, start, end = moments
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


READ, WRITE, UNCACHED = ("Input", "Read"), ("Input", "Write"), ("Input", "Uncached")
ACTIONS = {
    "uncached_input": UNCACHED,
    "cache_read": READ,
    "cache_write": WRITE,
    "cache_write_5m": WRITE,
    "cache_write_1h": WRITE,
    "cache_write_12h": WRITE,
    "input_audio": UNCACHED,
    "input_image": UNCACHED,
    "input_video": ("Input", None),
    "cache_read_audio": READ,
    "cache_read_image": READ,
    "input_search": ("Input", None),
    **dict.fromkeys((*OUTPUT_LINES, "citation"), ("Output", None)),
}
"""By the draft of FOCUS 1.5: what tokens of a line do with the cache."""


def details_of(**more):
    row = dict(zip(VERSIONS["1.4"], row_of(CHARGE | more, "1.4"), strict=True))
    return json.loads(row["SkuPriceDetails"])


@for_each("line", TOKEN_LINES)
def test_every_line_of_tokens_says_what_it_does_with_the_cache(line):
    for name in (line, f"advisor.{line}"):
        found = details_of(line=name)
        assert (found["TokenDirection"], found.get("TokenCacheAction")) == ACTIONS[line]
    unknown = details_of(line=line, has_cache_figures=0)
    claimed = None if ACTIONS[line] == UNCACHED else ACTIONS[line][1]
    assert unknown.get("TokenCacheAction") == claimed


@pytest.mark.parametrize(
    ("reported", "claimed"),
    [
        ({"cache_read_tokens": 5, "cache_write_tokens": 3}, "Uncached"),
        ({"cache_read_tokens": 0, "cache_write_tokens": 0}, "Uncached"),
        # What such a provider writes into its cache is on the meter of ordinary input.
        ({"cache_read_tokens": 5}, None),
        ({"cache_write_tokens": 3}, None),
        ({}, None),
    ],
)
def test_uncached_is_claimed_where_reads_and_writes_are_reported(
    reported, claimed, new_sqlite, tmp_path
):
    """In one row with a request that reports both."""
    both = reading(input_tokens=10, cache_read_tokens=1, cache_write_tokens=1, output_tokens=1)
    it = reading(input_tokens=10, output_tokens=1, **reported)
    entries = [(settled(exchange("claude-haiku-4-5", provider="anthropic", id="a")), both)]
    entries += [(settled(exchange("claude-haiku-4-5", provider="anthropic", id="b")), it)]
    url = new_sqlite()
    fill(url, entries)
    with db.disposing(db.ensure(url)) as engine:
        (file,) = export(engine, "focus-1.4", tmp_path, "csv", Scope())
    rows = csv.DictReader(file.path.read_text().splitlines())
    (row,) = (row for row in rows if row["SkuMeter"] == "uncached_input")
    assert json.loads(row["SkuPriceDetails"]).get("TokenCacheAction") == claimed


@for_each(
    "model, version",
    [
        *(("gpt-4.1-mini", "4.1"), ("gpt-4o-2024-08-06", "4o"), ("gpt-4-0613", "4")),
        *(("gpt-4-32k", "4"), ("gpt-oss-20b", None), ("o3-mini", "3"), ("gpt-5.6-luna", "5.6")),
        *(("claude-3-5-haiku-20241022", "3.5"), ("claude-sonnet-4-20250514", "4")),
        *(("us.anthropic.claude-haiku-4-5-v1:0", "4.5"), ("models/gemini-2.5-pro", "2.5")),
        *(("llama-3-70b", "3"), ("llama-3.3-70b-instruct", "3.3"), ("mistral-large-2411", None)),
        *(("command-r-08-2024", None), ("deepseek-chat", None), ("deepseek-v3.2", "3.2")),
        *(("text-embedding-3-large", "3"), ("advisor-2", None)),
    ],
)
def test_the_version_of_a_model_of_a_known_family(model, version):
    assert details_of(model=model).get("ModelVersion") == version


@for_each(
    "model, line, expected",
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
