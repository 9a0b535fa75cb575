"""`tokentee report --html`."""

import pytest
from typer.testing import CliRunner

from ledger.model.errors import LedgerError
from tests.app import APP


def test_a_page_takes_no_options_of_a_table(tmp_path):
    for option in (("--by", "key"), ("--top", "3"), ("--exact",), ("-f", "json")):
        words = ["report", *option, "--html", str(tmp_path / "page.html")]
        with pytest.raises(LedgerError, match=r"--html writes one page.*: leave --[a-z]+ out"):
            CliRunner().invoke(APP, words, catch_exceptions=False)
