"""`tokentee reconcile`, as it is called."""

import json

import pytest

from ledger.model.errors import LedgerError


def test_a_statement_that_agrees_and_one_that_does_not(run, own_ledger, tmp_path):
    path = tmp_path / "statement.csv"
    path.write_text("day,model,input_tokens,output_tokens\n2026-11-02,gpt-4.1,10,5\n")
    result = run("reconcile", str(path), "--provider", "openai", url=own_ledger)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [f"{path}: CSV of openai, 1 line", "2 equal"]
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
    assert result.stderr.endswith("the statements report nothing for this period\n")


def test_a_pair_that_is_none_is_refused(run, own_ledger, tmp_path):
    path = tmp_path / "statement.csv"
    path.write_text("day,model\n")
    with pytest.raises(LedgerError, match="--same 'key_abc' is not THEIRS=OURS"):
        run("reconcile", str(path), "--by", "key", "--same", "key_abc", url=own_ledger)


def test_a_difference_is_explained(run, own_ledger, tmp_path):
    """gpt-4.1: 10 x $2 + 5 x $8 a million; half a cent is rounding, so the sum is a large one."""
    path = tmp_path / "statement.csv"
    path.write_text("day,model,input_tokens,cost_usd\n2026-11-02,gpt-99,1,7\n")
    options = ("reconcile", str(path), "--provider", "openai", "--explain")
    result = run(*options, "-f", "csv", url=own_ledger)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "provider,cause,amount_usd,moved_usd",
        "openai,the ledger,0.00006,",
        "openai,gpt-99 is not in the ledger,7,",
        "openai,the rest,-0.00006,",
        "openai,the statement,7,",
    ]
    found = json.loads(run(*options, "-f", "json", url=own_ledger).stdout)
    (explained,) = found["explained"]
    assert explained["causes"] == [
        {
            "kind": "missing in the ledger",
            "cause": "gpt-99 is not in the ledger",
            "amount_usd": 7,
            "moved_usd": 0,
        }
    ]
    assert "gpt-99 is not in the ledger" in run(*options, url=own_ledger).stdout
    path.write_text("day,model,input_tokens,output_tokens\n2026-11-02,gpt-4.1,10,5\n")
    with pytest.raises(LedgerError, match="no costs to explain; add a file with costs"):
        run(*options, url=own_ledger)
