"""The ledger's commands, as they are called."""

import pytest
from typer.testing import CliRunner

from ledger.model.errors import LedgerError
from tests.app import APP
from tests.ledger.figures.test_queries import entries
from tests.ledger.priced import exchange, fill, reading, settled


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
    """Calls a command, which exits with 0 or what is said; a LedgerError comes through."""

    def call(*words, url=ledger, columns=100, exits=0):
        environment = {
            "TOKENTEE_LEDGER": url,
            "TOKENTEE_PRICES": None,
            "TOKENTEE_NAMES": None,
            "COLUMNS": str(columns),
        }
        result = CliRunner().invoke(APP, words, env=environment)
        if isinstance(result.exception, LedgerError):
            raise result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code == exits, result.output
        return result

    return call
