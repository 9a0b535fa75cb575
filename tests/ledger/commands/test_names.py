"""`tokentee names`, as it is called, and what reports make of a names file."""

import csv
import io
import json

import pytest

from ledger.model.errors import LedgerError

FILE = """
[[name]]
tag = "team=search"
team = "finders"
[[name]]
key = "k1"
"""


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "names.toml"
    path.write_text('[[name]]\ntag = "team=search"\nteam = "finders"\n')
    return str(path)


def test_a_file_is_checked(run, names, tmp_path):
    assert run("names", "check", names).stdout == f"{names}: 1 name\n"
    (tmp_path / "wrong.toml").write_text(FILE)
    result = run("names", "check", str(tmp_path / "wrong.toml"))
    assert result.exit_code == 1
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


def test_names_are_suggested_as_a_file_that_is_valid(run, names, tmp_path):
    result = run("names", "suggest")
    assert '# key = "k1"' in result.stdout
    assert ", at https://api.openai.com\n" in result.stdout
    assert "# 6 requests, ≥" in result.stdout or "# 6 requests, $" in result.stdout
    uncommented = result.stdout.replace("# [[", "[[").replace("# key", "key")
    (tmp_path / "suggested.toml").write_text(
        uncommented.replace('# team = ""', 'team = "x"').replace('"k', '"kkkkkk')
    )
    assert run("names", "check", str(tmp_path / "suggested.toml")).exit_code == 0
    everything = tmp_path / "all.toml"
    everything.write_text('[[name]]\nhost = "*"\nteam = "all"\n')
    result = run("names", "suggest", "--names", str(everything))
    assert (result.stdout, result.stderr) == ("", "every key has a team\n")
