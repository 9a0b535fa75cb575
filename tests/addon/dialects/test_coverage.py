"""The tables of endpoints and providers in the README are those of the code."""

import runpy
from pathlib import Path

import pytest

from addon.dialects import coverage, routes
from ledger.model.providers import PROVIDERS

README = Path(__file__).parents[3] / "README.md"


def test_the_readme_has_the_tables_of_the_code() -> None:
    text = README.read_text()
    assert text.count(coverage.BEGIN) == text.count(coverage.END) == 1
    start = text.index(coverage.BEGIN)
    end = text.index(coverage.END) + len(coverage.END)
    assert text[start:end] == coverage.tables(), (
        "run `python -m addon.dialects.coverage` and put its output into README.md"
    )


def test_every_dialect_and_provider_is_in_the_tables() -> None:
    text = coverage.tables()
    for name in routes.DIALECTS:
        if name != "unknown":
            assert f"| {name} |" in text
    for row in PROVIDERS:
        assert f"| {row.name} |" in text


def test_how_rows_are_shown() -> None:
    text = coverage.endpoint_table()
    assert "`GET /files/*/content`" in text
    assert "`WS /realtime`" in text
    assert "`/models/MODEL:generateContent`" in text
    assert " and 1 more" in coverage.provider_table()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_the_module_prints_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("addon.dialects.coverage", run_name="__main__")
    assert capsys.readouterr().out == coverage.tables() + "\n"
