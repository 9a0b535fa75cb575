"""`tokentee show`, as it is called."""

import json

import pytest

from ledger.model.errors import LedgerError


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
