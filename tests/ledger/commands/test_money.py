"""The commands about money, as they are called."""

import csv
import io
import json

import pytest
import typer
from typer.testing import CliRunner

from ledger.commands import money
from ledger.model.errors import LedgerError
from ledger.store import db
from tests.ledger.priced import exchange, fill, reading, settled
from tests.ledger.reports.test_queries import entries

app = typer.Typer()
money.add(app)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.sqlite3'}"
    fill(url, entries(), still_open=[exchange()])
    return url


@pytest.fixture
def own_ledger(tmp_path):
    """One that a test may change."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    fill(url, [(settled(exchange("gpt-4.1")), reading(input_tokens=10, output_tokens=5))])
    return url


@pytest.fixture
def run(ledger):
    def call(*words, url=ledger):
        environment = {"TOKENTEE_LEDGER": url, "TOKENTEE_PRICES": None}
        result = CliRunner().invoke(app, words, env=environment)
        if isinstance(result.exception, LedgerError):
            raise result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return call


def test_a_report_is_a_table_by_model(run):
    result = run("report")
    assert result.exit_code == 0
    head = result.stdout.split("\n")[1].split()
    assert head[:3] == ["model", "Requests", "Errors"]
    assert "lines of 2 of 10 requests" in result.stderr
    assert "still open, and in no figure: 1 request" in result.stderr


def test_a_report_as_json_adds_up(run):
    found = json.loads(run("report", "--by", "day,provider", "-f", "json").stdout)
    assert found["by"] == ["day", "provider"]
    assert sum(row["requests"] for row in found["rows"]) == found["total"]["requests"] == 10
    known = [row["cost_picousd"] for row in found["rows"] if row["cost_picousd"] is not None]
    assert sum(known) == found["total"]["cost_picousd"]


def test_a_report_as_csv_has_one_line_per_row(run):
    rows = list(csv.DictReader(io.StringIO(run("report", "--by", "key", "-f", "csv").stdout)))
    assert [row["key"] for row in rows] == ["k1", "k2"]
    assert rows[0]["input_tokens"] == "1500"


def test_a_report_as_markdown(run):
    lines = run("report", "--top", "1", "-f", "markdown").stdout.splitlines()
    assert lines[0].startswith("| model | Requests |")
    assert lines[3].startswith("| (2 more) |")
    assert lines[4].startswith("| **Total** |")


def test_a_report_of_a_part(run):
    found = json.loads(
        run("report", "--only", "model=gpt-4.1", "--since", "2026-11-03", "-f", "json").stdout
    )
    assert found["total"]["requests"] == 2
    assert found["since"] == "2026-11-03T00:00:00+00:00"


def test_a_report_of_nothing_says_so(run, new_sqlite):
    result = run("report", url=new_sqlite())
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith("has no requests\n")
    result = run("report", "--until", "2020-01-01", "-f", "csv")
    assert result.stdout.count("\n") == 1
    assert result.stderr.endswith("has no requests in this period\n")


def test_asking_does_not_make_a_ledger(run, tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        run("report", url=f"sqlite:///{tmp_path / 'none.sqlite3'}")
    assert not (tmp_path / "none.sqlite3").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["report", "--by", "colour"], "nothing is by 'colour'"),
        (["report", "--since", "soon"], "not a moment: 'soon'"),
        (["report", "--only", "gpt"], "not a condition: 'gpt'"),
        (["show", "nope"], "no exchange has the id"),
        (["reconcile", "none.csv"], "cannot read none.csv"),
        (["reconcile", "none.csv", "--tolerance", "much"], "not a percentage: 'much'"),
        (["reconcile", "none.csv", "--tolerance", "-1"], "not a percentage: '-1'"),
        (["reprice", "--prices", "none.toml"], "cannot read the price file none.toml"),
    ],
)
def test_what_the_operator_did_wrong_is_one_line(run, words, problem):
    with pytest.raises(LedgerError) as error:
        run(*words)
    assert str(error.value).startswith(problem)
    assert "\n" not in str(error.value)


def test_one_request_is_explained(run):
    result = run("show", "b1")
    assert "compaction.output" in result.stdout
    assert "Model                     claude-haiku-4-5" in result.stdout
    found = json.loads(run("show", "b1", "-f", "json").stdout)
    assert found["cost_usd"] == 0.003255
    assert [line["line"] for line in found["charges"]][:2] == ["cache_read", "cache_write_1h"]


def test_a_request_without_usage_is_explained(run):
    assert "No charges: nothing was reported to charge." in run("show", "a3").stdout


def test_what_came_over_the_wire_does_nothing_to_the_terminal(run, tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    evil = exchange("gpt\x1b]0;owned\x07", error_message="\x1b[2J", tags={"team": "\x1b[31m"})
    fill(url, [(settled(evil), reading(output_tokens=1, reported_cost_picousd=1))])
    for words in (["show", "e1"], ["report"], ["report", "--by", "tag:team", "-f", "csv"]):
        assert "\x1b" not in run(*words, url=url).output


def test_repricing_is_shown_first_and_then_done(run, own_ledger, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('[[price]]\nmodel = "gpt-4.1"\nusd_per_mtok = { output = 9 }\n')
    with_prices = ["reprice", "--prices", str(prices)]
    result = run(*with_prices, "--dry-run", url=own_ledger)
    assert "$0.000005" in result.stdout
    assert result.stderr == "nothing was written\n"
    result = run(*with_prices, "--reason", "contract 7", url=own_ledger)
    assert result.stderr.startswith("1 charges were added")
    assert "contract 7" in run("show", "e1", url=own_ledger).stdout
    assert "Before, and in no total:" in run("show", "e1", url=own_ledger).stdout
    result = run(*with_prices, url=own_ledger)
    assert (result.stdout, result.stderr) == (
        "",
        "nothing changes: every line has the price it would get today\n",
    )


def test_a_price_file_is_checked(run, tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text('[[price]]\nmodel = "x"\nfree = true\n')
    result = run("prices", "check", str(path))
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{path}: 1 prices, 0 gateways; sha256:")
    path.write_text('litellm = "none.json"\n[[price]]\nmodle = "x"\n')
    result = run("prices", "check", str(path))
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    assert "line 3: price 1: modle: unknown" in result.stderr


def test_a_price_is_shown_with_its_source(run):
    result = run("prices", "show", "o3", "--at", "2025-06-09")
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert lines["output"][1] == "40"
    assert lines["output"][-1] == "openai/o3"
    result = run("prices", "show", "gpt-5", "--host", "api.openai.com", "--tier", "scale")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "without a price for service tier 'scale'" in result.stderr


def test_a_statement_that_agrees_and_one_that_does_not(run, own_ledger, tmp_path):
    path = tmp_path / "statement.csv"
    path.write_text("day,model,input_tokens,output_tokens\n2026-11-02,gpt-4.1,10,5\n")
    result = run("reconcile", str(path), "--provider", "openai", url=own_ledger)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [f"{path}: CSV of openai, 1 lines", "2 equal"]
    path.write_text("day,model,input_tokens,output_tokens\n2026-11-02,gpt-4.1,10,6\n")
    result = run("reconcile", str(path), "--differences", "-f", "csv", url=own_ledger)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == ["2026-11-02,gpt-4.1,output tokens,5,6,-1,differs"]
    found = json.loads(run("reconcile", str(path), "-f", "json", url=own_ledger).stdout)
    assert found["agrees"] is False
    result = run("reconcile", str(path), "--tolerance", "20%", url=own_ledger)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == "1 equal, 1 within tolerance"


def test_a_page_that_goes_on_is_warned_of(run, own_ledger, tmp_path):
    path = tmp_path / "page.json"
    path.write_text('{"object": "page", "data": [], "has_more": true}')
    result = run("reconcile", str(path), url=own_ledger)
    assert f"{path}: has_more is true" in result.stderr
    assert result.stderr.endswith("the statements say nothing of this period\n")


def test_an_export_tells_of_its_files(run, tmp_path):
    result = run("export", str(tmp_path / "out"), "--what", "focus", "-f", "csv")
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{tmp_path}/out/day=2026-11-02/focus.csv: 10 rows",
        f"{tmp_path}/out/day=2026-11-03/focus.csv: 2 rows",
        "12 rows in all",
        "3 lines have no price and are left out: FOCUS knows no unknown cost",
    ]
    result = run("export", str(tmp_path / "out"), "--until", "2020-01-01")
    assert result.stderr == "nothing to export in this period\n"


def test_every_command_has_help(run):
    for words in (["report"], ["show"], ["reprice"], ["prices"], ["reconcile"], ["export"]):
        assert run(*words, "--help").exit_code == 0


def test_the_ledger_is_that_which_is_recorded_into(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("TOKENTEE_LEDGER", raising=False)
    fill(db.default_url(), [(settled(exchange()), reading(output_tokens=1))])
    result = CliRunner().invoke(app, ["report", "-f", "json"])
    assert json.loads(result.stdout)["total"]["requests"] == 1
