"""`tokentee report`, `names`, `requests`, `show` and `export`, as they are called, and what reports make
of a names file."""

import csv
import io
import json

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from ledger.model.errors import EmptyLedgerError, LedgerError
from ledger.model.exchange import UsageSource
from ledger.store.engines import urls
from tests.app import APP
from tests.ledger.priced import exchange, fill, reading, settled


def test_a_report_is_a_table_by_model(run):
    result = run("report")
    title, head = result.stdout.split("\n")[:2]
    assert title.startswith("Requests by model, all time (2026-11-02 12:00 to")
    assert head.split()[:3] == ["Model", "Requests", "Errors"]
    assert "lines of 2 of 10 requests" in result.stderr
    assert "still open, in no figure: 1 request" in result.stderr


@pytest.mark.parametrize("by", ["day", "model"])
def test_bars_stand_in_a_terminal_alone(run, monkeypatch, by):
    assert "█" not in run("report", "--by", by).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")  # as rich takes it: a terminal
    monkeypatch.setenv("COLUMNS", "120")
    assert "█" * 10 in run("report", "--by", by).stdout
    for form in ("json", "csv", "markdown"):
        assert "█" not in run("report", "-f", form).stdout


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
    assert lines[0].startswith("Requests by model, all time")
    assert lines[2].startswith("| Model | Requests |")
    assert lines[5].startswith("| (2 more) |")
    assert lines[6].startswith("| **Total** |")


@pytest.mark.parametrize("command", ["report", "requests"])
def test_a_file_for_machines_has_the_same_columns_without_a_row(run, command):
    words = [command, "--format", "csv"]
    header, *rows = run(*words).stdout.splitlines()
    assert rows
    assert run(*words, "--only", "model=nothing").stdout.splitlines() == [header]


def test_a_report_of_a_part(run):
    found = json.loads(
        run("report", "--only", "model=gpt-4.1", "--since", "2026-11-03", "-f", "json").stdout
    )
    assert found["total"]["requests"] == 2
    assert found["since"] == "2026-11-03T00:00:00+00:00"


def test_a_report_of_nothing_says_so(run, new_sqlite):
    with pytest.raises(EmptyLedgerError, match=r"^no requests in sqlite:.*: all time UTC$"):
        run("report", url=new_sqlite())
    result = run("report", "--until", "2020-01-01", "-f", "csv")
    assert result.stdout.count("\n") == 1
    assert result.stderr.endswith(": before 2020-01-01 UTC\n")


def test_a_condition_that_nothing_meets_is_named(run):
    result = run("report", "--only", "model=nonesuch")
    assert result.stdout == ""
    line = result.stderr.splitlines()[0]
    assert line.startswith("no requests in sqlite:")
    assert line.endswith(" UTC; only model=nonesuch")


def test_asking_does_not_make_a_ledger(run, tmp_path):
    with pytest.raises(LedgerError, match="tokentee run -- COMMAND"):
        run("report", url=f"sqlite:///{tmp_path / 'none.sqlite3'}")
    assert not (tmp_path / "none.sqlite3").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["report", "--by", "colour"], "no such dimension: 'colour'"),
        (["report", "--since", "soon"], "not a date or period: 'soon'"),
        (["report", "--only", "gpt"], "not a condition: 'gpt'"),
        (["report", "--since", "today", "--until", "yesterday"], "no time lies between --since "),
        (["requests", "--since", "2026-11", "--until", "2026-11-01"], "no time lies between "),
        (["export", "x", "--since", "1h", "--until", "30d"], "no time lies between "),
        (["show", "nope"], "no exchange has an id"),
        (
            ["show", "no"],
            "no exchange has an id or response id that begins with 'no' (a beginning needs 4",
        ),
        (["requests", "--min-cost", "much"], "not a number of USD: 'much'"),
        (["requests", "--min-duration", "long"], "not a number of seconds: 'long'"),
        (["requests", "--before", "x"], "not a place in the list of requests: 'x'"),
        (["requests", "--only", "colour=red"], "no such dimension: 'colour'"),
        (["reconcile", "none.csv"], "cannot read the statement none.csv"),
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


def test_the_ledger_is_that_which_is_recorded_into(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("TOKENTEE_LEDGER", raising=False)
    fill(urls.default_url(), [(settled(exchange()), reading(output_tokens=1))])
    result = CliRunner().invoke(APP, ["report", "-f", "json"])
    assert json.loads(result.stdout)["total"]["requests"] == 1


FILE = """
[[name]]
tag = "team=search"
team = "finders"
[[name]]
key = "k1"
"""


@pytest.fixture
def names(text_file):
    path = text_file("names.toml", '[[name]]\ntag = "team=search"\nteam = "finders"\n')
    return str(path)


def test_a_file_is_checked(run, names, tmp_path):
    assert run("names", "check", names).stdout == f"{names}: 1 name\n"
    (tmp_path / "wrong.toml").write_text(FILE)
    result = run("names", "check", str(tmp_path / "wrong.toml"), exits=1)
    assert "line 5: name 2: name: give a name, team" in result.stderr


def test_without_a_file(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(LedgerError, match="there is no names file: write"):
        run("names", "check")


def test_a_report_by_team(run, names):
    result = run("report", "--by", "team", "--names", names, "-f", "csv")
    rows = {row["team"]: row["requests"] for row in csv.DictReader(io.StringIO(result.stdout))}
    assert rows == {"finders": "4", "": "6"}
    result = run("report", "--by", "team", "--names", names)
    assert "(none)" in result.stdout
    found = json.loads(run("report", "--only", "team=find*", "--names", names, "-f", "json").stdout)
    assert found["total"]["requests"] == 4


def test_an_origin_has_no_default_port(run):
    text = run("report", "--by", "origin").stdout
    assert "https://api.openai.com " in text
    assert ":443" not in text
    stored = "https://api.openai.com:443"
    rows = csv.DictReader(io.StringIO(run("report", "--by", "origin", "-f", "csv").stdout))
    counts = {row["origin"]: row["requests"] for row in rows}
    for given in ("https://api.openai.com", stored, "https://api.openai.com*"):
        found = json.loads(run("report", "--only", f"origin={given}", "-f", "json").stdout)
        assert found["total"]["requests"] == int(counts[stored])


def test_names_are_suggested_as_a_file_that_is_valid(run, names, tmp_path, text_file):
    result = run("names", "suggest")
    assert '# key = "k1"' in result.stdout
    assert ", at https://api.openai.com\n" in result.stdout
    assert "# 6 requests, ≥" in result.stdout or "# 6 requests, $" in result.stdout
    uncommented = result.stdout.replace("# [[", "[[").replace("# key", "key")
    (tmp_path / "suggested.toml").write_text(
        uncommented.replace('# team = ""', 'team = "x"').replace('"k', '"kkkkkk')
    )
    run("names", "check", str(tmp_path / "suggested.toml"))
    everything = text_file("all.toml", '[[name]]\nhost = "*"\nteam = "all"\n')
    result = run("names", "suggest", "--names", str(everything))
    assert (result.stdout, result.stderr) == ("", "every key has a team\n")


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
    assert "No charges: no usage was reported." in run("show", "a3").stdout


def test_an_id_that_begins_with_a_dash_goes_after_two(run):
    with pytest.raises(LedgerError, match="begins with '-wK2'"):
        run("show", "--", "-wK2")
    assert "goes after `--`" in " ".join(run("show", "--help").stdout.split())


def test_an_export_tells_of_its_files(run, tmp_path):
    result = run("export", str(tmp_path / "out"), "--what", "focus", "-f", "csv")
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{tmp_path}/out/day=2026-11-02/focus.csv: 10 rows",
        "10 rows in all",
        "left out, as they have no price: 3 lines; FOCUS cannot say that a cost is not known",
    ]
    result = run("export", str(tmp_path / "out"), "--until", "2020-01-01")
    assert result.stderr == "nothing to export in this period\n"


def test_a_long_heading_does_not_touch_its_text(run, tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    seen = replace(reading(usage_source=UsageSource.NONE), estimated_output_tokens=12)
    fill(url, [(settled(exchange("gpt-4.1", id="seen-1")), seen)])
    shown = run("show", "seen-1", url=url).stdout
    assert "  output seen, by estimate 12\n" in shown
