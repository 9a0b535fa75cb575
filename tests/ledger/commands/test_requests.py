"""`tokentee requests`, `show` and `export`, as they are called."""

import csv
import io
import json

import pytest

from ledger.model.errors import LedgerError


def test_a_page_names_the_next(run):
    first = run("requests", "--limit", "3")
    head, *_ = [line for line in first.stdout.splitlines() if line.startswith("Time")]
    assert head.split()[:4] == ["Time", "(UTC)", "Model", "Outcome"]
    place = first.stderr.split("--before ")[1].strip()
    found = [json.loads(run("requests", "-f", "json", "--limit", "3").stdout)]
    found.append(json.loads(run("requests", "-f", "json", "--before", place).stdout))
    ids = [one["id"] for page in found for one in page]
    assert len(ids) == len(set(ids)) == 10
    assert found[0][-1]["place"] == place


def test_csv_has_every_field_and_the_costs_add_up(run):
    rows = list(csv.DictReader(io.StringIO(run("requests", "-f", "csv").stdout)))
    total = json.loads(run("report", "-f", "json").stdout)["total"]
    assert len(rows) == total["requests"]
    assert sum(float(row["cost_usd"] or 0) for row in rows) == pytest.approx(
        float(total["cost_usd"])
    )
    assert {"error_type", "finish_reason", "session_id", "list_value_usd"} <= {*rows[0]}


def test_filters_narrow(run):
    total = json.loads(run("report", "-f", "json").stdout)["total"]
    for word, count in (
        ("--errors", total["errors"]),
        ("--without-usage", total["without_usage"]),
        ("--unpriced", total["unpriced_requests"] + total["partial_requests"]),
    ):
        assert len(json.loads(run("requests", word, "-f", "json").stdout)) == count
    assert json.loads(run("requests", "--only", "http_status=9*", "-f", "json").stdout) == []
    nothing = run("requests", "--min-cost", "99999")
    assert (nothing.stdout, "no such requests in" in nothing.stderr) == ("", True)


def test_one_request_is_explained(run):
    result = run("show", "b1")
    assert "compaction.output" in result.stdout
    assert "Model                     claude-haiku-4-5" in result.stdout
    found = json.loads(run("show", "b1", "-f", "json").stdout)
    assert found["cost_usd"] == 0.003255
    assert [line["line"] for line in found["charges"]][:2] == ["cache_read", "cache_write_1h"]


def test_a_request_without_usage_is_explained(run):
    assert "No charges: nothing was reported to charge." in run("show", "a3").stdout


def test_an_id_that_begins_with_a_dash_goes_after_two(run):
    with pytest.raises(LedgerError, match="no exchange has the id or response id '-wK2'"):
        run("show", "--", "-wK2")
    assert "goes after `--`" in " ".join(run("show", "--help").stdout.split())


"""`tokentee export`, as it is called."""


def test_an_export_tells_of_its_files(run, tmp_path):
    result = run("export", str(tmp_path / "out"), "--what", "focus", "-f", "csv")
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{tmp_path}/out/day=2026-11-02/focus.csv: 10 rows",
        "10 rows in all",
        "left out for want of a price: 3 lines; FOCUS knows no unknown cost",
    ]
    result = run("export", str(tmp_path / "out"), "--until", "2020-01-01")
    assert result.stderr == "nothing to export in this period\n"
