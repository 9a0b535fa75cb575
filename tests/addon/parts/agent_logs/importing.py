"""Running `tokentee import` in a test."""

from typer.testing import CliRunner

from ledger.model.errors import LedgerError
from tests.app import APP


def run(*words, code=0, streams="output"):
    """What it prints, of `stdout` or all; `code` None: any exit code."""
    result = CliRunner().invoke(APP, ["import", *map(str, words)])
    if isinstance(result.exception, LedgerError):
        raise result.exception
    assert code is None or result.exit_code == code, (result.output, result.exception)
    return getattr(result, streams)
