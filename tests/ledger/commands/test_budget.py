"""`tokentee budget` and `reconcile`, as they are called."""

import json

import pytest

from ledger.model.errors import LedgerError


@pytest.fixture
def budgets(tmp_path):
    path = tmp_path / "budgets.toml"

    def make(usd):
        path.write_text(
            f'[[budget]]\nname = "all"\nusd = {usd}\nperiod = "month"\n[[alert]]\nlog = true\n'
        )
        return str(path)

    return make


@pytest.fixture(autouse=True)
def november(monkeypatch):
    from datetime import UTC, datetime

    class Then(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 11, 16, tzinfo=UTC)

    monkeypatch.setattr("ledger.commands.budget.datetime", Then)


def test_budgets_are_shown_and_checked(run, budgets):
    result = run("budget", "--budgets", budgets(1))
    assert result.stdout.splitlines()[0] == "Budgets"
    assert result.stdout.splitlines()[-1].split()[:2] == ["all", "2026-11"]
    assert "they never stop traffic" in result.stderr
    run("budget", "check", "--budgets", budgets(1))
    result = run("budget", "check", "--budgets", budgets(0.001), "-f", "json", exits=1)
    assert json.loads(result.stdout)["budgets"][0]["state"] == "over"


def test_alerts_are_sent_once(run, budgets, own_ledger):
    result = run("budget", "alert", "--budgets", budgets("0.000001"), url=own_ledger)
    assert "tokentee: budget all, 2026-11: 6000% used" in result.stderr
    assert result.stderr.endswith("sent: 1 alert\n")
    result = run("budget", "alert", "--budgets", budgets("0.000001"), url=own_ledger)
    assert result.stderr == "sent: 0 alerts\n"


def test_without_a_file(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TOKENTEE_BUDGETS", raising=False)
    with pytest.raises(LedgerError, match=r"there are no budgets: write .*budgets.toml"):
        run("budget")


def test_a_statement_that_agrees_and_one_that_does_not(run, own_ledger, text_file):
    path = text_file(
        "statement.csv", "day,model,input_tokens,output_tokens\n2026-11-02,gpt-4.1,10,5\n"
    )
    result = run("reconcile", str(path), "--provider", "openai", url=own_ledger)
    assert result.stderr.splitlines() == [f"{path}: CSV of openai, 1 line", "2 equal"]
    assert "2026-11-02" not in result.stdout
    assert "2026-11-02" in run("reconcile", str(path), "--details", url=own_ledger).stdout
    path.write_text("day,model,input_tokens,output_tokens\n2026-11-02,gpt-4.1,10,6\n")
    result = run("reconcile", str(path), "--differences", "-f", "csv", url=own_ledger, exits=1)
    assert result.stdout.splitlines()[1:] == ["2026-11-02,gpt-4.1,output tokens,5,6,-1,differs"]
    result = run("reconcile", str(path), "-f", "json", url=own_ledger, exits=1)
    assert json.loads(result.stdout)["agrees"] is False
    result = run("reconcile", str(path), "--tolerance", "20%", url=own_ledger)
    assert result.stderr.splitlines()[-1] == "1 equal, 1 within tolerance"


def test_a_reconciliation_begins_with_its_totals(run, own_ledger, text_file):
    path = text_file(
        "statement.csv",
        "day,model,input_tokens,output_tokens,cost_usd\n"
        "2026-11-02,gpt-4.1,10,6,0.00006\n2026-11-03,gpt-4.1,7,,0.5\n",
    )
    result = run("reconcile", str(path), "--provider", "openai", url=own_ledger, exits=1)
    rows = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert [row for row in rows if row[:2] in (["input", "tokens"], ["output", "tokens"])] == [
        ["input", "tokens", "10", "17", "-7", "2", "1"],
        ["output", "tokens", "5", "6", "-1", "1", "1"],
    ]
    (cost,) = (row for row in rows if row[0] == "cost")
    assert cost[2:] == ["$0.000060", "$0.500060", "-$0.500000", "2", "1"]
    assert result.stderr.endswith("more: --explain, --differences, --details\n")


def test_a_page_that_goes_on_is_warned_of(run, own_ledger, text_file):
    path = text_file("page.json", '{"object": "page", "data": [], "has_more": true}')
    result = run("reconcile", str(path), url=own_ledger)
    assert f"{path}: has_more is true" in result.stderr
    assert result.stderr.endswith("the statements report nothing for this period\n")


def test_a_pair_that_is_none_is_refused(run, own_ledger, text_file):
    path = text_file("statement.csv", "day,model\n")
    with pytest.raises(LedgerError, match="--same 'key_abc' is not THEIRS=OURS"):
        run("reconcile", str(path), "--by", "key", "--same", "key_abc", url=own_ledger)


def test_a_difference_is_explained(run, own_ledger, text_file):
    """gpt-4.1: 10 x $2 + 5 x $8 a million; half a cent is rounding, so the sum is a large one."""
    path = text_file("statement.csv", "day,model,input_tokens,cost_usd\n2026-11-02,gpt-99,1,7\n")
    options = ("reconcile", str(path), "--provider", "openai", "--explain")
    result = run(*options, "-f", "csv", url=own_ledger, exits=1)
    assert result.stdout.splitlines() == [
        "provider,cause,amount_usd,moved_usd",
        "openai,the ledger,0.00006,",
        "openai,gpt-99 is not in the ledger,7,",
        "openai,the rest,-0.00006,",
        "openai,the statement,7,",
    ]
    found = json.loads(run(*options, "-f", "json", url=own_ledger, exits=1).stdout)
    (explained,) = found["explained"]
    assert explained["causes"] == [
        {
            "kind": "missing in the ledger",
            "cause": "gpt-99 is not in the ledger",
            "amount_usd": 7,
            "moved_usd": 0,
        }
    ]
    assert "gpt-99 is not in the ledger" in run(*options, url=own_ledger, exits=1).stdout
    path.write_text("day,model,input_tokens,output_tokens\n2026-11-02,gpt-4.1,10,5\n")
    with pytest.raises(LedgerError, match="no costs to explain; add a file with costs"):
        run(*options, url=own_ledger)
