"""Exports against the FinOps Foundation's own validator, in an environment of its own: it needs
other versions of pydantic and pyarrow than mitmproxy allows.
"""

import shutil
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pyarrow.parquet
import pytest
from msgspec.structs import replace

from ledger.parts.exports.export import Wanted, export
from ledger.pricing.prices import PriceBook
from ledger.settings.names import NO_NAMES
from ledger.settings.names import read as read_names
from ledger.store import db
from ledger.store.scope import Scope
from tests.ledger.priced import NOVEMBER, exchange, fill, reading, settled

pytestmark = [pytest.mark.process, pytest.mark.nightly, pytest.mark.timeout(300)]

VALIDATOR = "focus-validator==2.2.1"
COLUMN_OF_AN_ALTERNATIVE = "InvoiceId-C-005-C"
"""`InvoiceId MUST NOT be NULL`: one branch of an OR whose other branch, NULL for what is not
invoiced yet, holds. The validator prints it as failed and passes its parent."""

RULES_MIN = 100
"""Rules that must have run and passed: fewer mean that the validator did not do its work."""

PRICES = """
[[price]]
model = "gpt-4.1"
usd_per_mtok = { uncached_input = 1.60, output = 6 }
"""


@pytest.fixture(scope="module")
def validate(tmp_path_factory):
    """Runs the validator on a file; the rules that failed."""
    uv = shutil.which("uv")
    command = [uv] if uv else [sys.executable, "-m", "uv"]
    if (
        not uv
        and subprocess.run([*command, "--version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("uv, which installs the validator, is not there")
    folder = tmp_path_factory.mktemp("validator")
    subprocess.run(
        [*command, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True
    )
    python = folder / "bin" / "python"
    subprocess.run(
        [*command, "pip", "install", "--quiet", "--python", str(python), VALIDATOR, "pyarrow<21"],
        check=True,
    )
    (packages,) = folder.glob("lib/python*/site-packages")

    def run(path):
        found = subprocess.run(
            [
                str(folder / "bin" / "focus-validator"),
                "--data-file",
                str(path),
                "--validate-version",
                "1.2.0.1",
                "--block-download",
            ],
            check=False,
            cwd=packages,  # it opens its list of currencies by a relative path
            capture_output=True,
            text=True,
        )
        lines = found.stdout.splitlines()
        passed = [line for line in lines if line.startswith("✅")]
        assert len(passed) > RULES_MIN, found.stdout[-2_000:] + found.stderr[-2_000:]
        return {line.split()[1].rstrip(":") for line in lines if line.startswith("❌")}

    return run


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """A month of three providers, one model of them at a negotiated price."""
    folder = tmp_path_factory.mktemp("ledger")
    prices = folder / "prices.toml"
    prices.write_text(PRICES)
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    models = (("gpt-4.1", "openai"), ("claude-haiku-4-5", "anthropic"), ("gpt-4.1-mini", "openai"))
    entries = []
    for number in range(90):
        model, provider = models[number % 3]
        about = exchange(model, provider=provider, at=NOVEMBER + timedelta(hours=7 * number))
        about = replace(about, id=f"e{number}", tags={"team": "search"}, key_hint="1111")
        if number % 2:
            about = replace(about, key_fingerprint="ab" * 16)
        entries.append((settled(about), reading(input_tokens=1_000 + number, output_tokens=50)))
    fill(url, entries, book=PriceBook.load(str(prices)))
    with db.disposing(db.ensure(url)) as engine:
        yield engine


def written(engine, folder, form="parquet", *, names=NO_NAMES, **more):
    scope = Scope(names=names)
    return [one.path for one in export(engine, "focus", folder, form, scope, **more)]


def whole_month(engine, folder, **more):
    paths = written(engine, folder, **more)
    return pyarrow.concat_tables(pyarrow.parquet.read_table(path) for path in paths)


def test_a_month_of_several_providers_with_negotiated_prices(engine, validate, tmp_path):
    whole = whole_month(engine, tmp_path)
    month = tmp_path / "month.parquet"
    pyarrow.parquet.write_table(whole, month)
    assert whole.num_rows == 180
    assert validate(month) <= {COLUMN_OF_AN_ALTERNATIVE}


@pytest.mark.clients
def test_a_day_as_csv(engine, validate, tmp_path):
    path = written(engine, tmp_path, "csv")[0]
    assert validate(path) <= {COLUMN_OF_AN_ALTERNATIVE}


@pytest.mark.clients
def test_the_validator_finds_what_is_wrong(engine, validate, tmp_path):
    path = written(engine, tmp_path)[0]
    table = pyarrow.parquet.read_table(path)
    broken = tmp_path / "broken.parquet"
    pyarrow.parquet.write_table(table.drop_columns(["BilledCost"]), broken)
    assert validate(broken) - {COLUMN_OF_AN_ALTERNATIVE}


@pytest.mark.clients
def test_every_kind_of_line_is_valid(validate, tmp_path):
    """Cache reads and writes with and without a split, sound, pictures, reasoning, tool fees, and
    what has no cache figures."""
    audio = {"input_audio_tokens": 60, "output_audio_tokens": 40}
    readings: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("gpt-4.1", "openai", {}),
        ("gpt-4.1", "openai", {"cache_read_tokens": 50}),
        ("claude-haiku-4-5", "anthropic", {"cache_read_tokens": 50, "cache_write_tokens": 20}),
        ("claude-haiku-4-5", "anthropic",
         {"cache_write_tokens": 20, "cache_write_5m_tokens": 5, "cache_write_1h_tokens": 15,
          "tool_units": {"web_searches": 2}}),
        ("o3", "openai", {"reasoning_tokens": 40}),
        ("gpt-4o-realtime-preview", "openai",
         {**audio, "cache_read_tokens": 40, "tool_units": {"cache_read_audio_tokens": 20}}),
        ("gpt-image-1", "openai", {"tool_units": {"input_image_tokens": 60, "output_image_tokens": 50}}),
    )  # fmt: skip
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    fill(
        url,
        [
            (settled(exchange(model, provider=provider, id=f"e{number}")),
             reading(**{"input_tokens": 100, "output_tokens": 50, **usage}))
            for number, (model, provider, usage) in enumerate(readings)
        ],
    )  # fmt: skip
    with db.disposing(db.ensure(url)) as engine:
        whole = whole_month(engine, tmp_path / "days")
    month = tmp_path / "month.parquet"
    pyarrow.parquet.write_table(whole, month)
    assert {*whole["SkuMeter"].to_pylist()} == {
        *("uncached_input", "cache_read", "cache_write", "cache_write_5m", "cache_write_1h"),
        *("input_audio", "input_image", "cache_read_audio", "web_searches"),
        *("output", "output_audio", "output_image"),
    }
    assert validate(month) <= {COLUMN_OF_AN_ALTERNATIVE}


def test_names_of_keys_teams_and_cost_centres(engine, tmp_path):
    text = """
        [[name]]
        key_hint = "1111"
        name = "CI runner"
        team = "search"
        cost_centre = "4711"
    """
    names, problems = read_names(text)
    assert problems == []
    rows = whole_month(engine, tmp_path, names=names).to_pylist()
    with_key = [row for row in rows if row["SubAccountId"]]
    assert {(row["SubAccountName"], row["x_Team"], row["x_CostCentre"]) for row in with_key} == {
        ("CI runner", "search", "4711")
    }


def test_negotiated_savings_and_invoices(engine, tmp_path):
    wanted = Wanted(invoices={("openai", "2026-11"): "INV-7"})
    rows = whole_month(engine, tmp_path, wanted=wanted).to_pylist()
    inputs = [row for row in rows if row["SkuMeter"] == "uncached_input"]
    november = [row for row in inputs if row["BillingPeriodStart"].month == 11]
    for row in november:
        is_openai = row["ProviderName"] == "openai"
        assert row["InvoiceId"] == ("INV-7" if is_openai else None)
        is_cheaper = row["x_Model"] == "gpt-4.1"
        assert (row["ListCost"] > row["ContractedCost"]) == is_cheaper
        assert row["ListUnitPrice"] * row["PricingQuantity"] == row["ListCost"]
        assert row["ContractedUnitPrice"] * row["PricingQuantity"] == row["BilledCost"]
    assert {row["x_Model"] for row in november} == {"gpt-4.1", "claude-haiku-4-5", "gpt-4.1-mini"}
