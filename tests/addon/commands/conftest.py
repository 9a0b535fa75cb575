"""Empty ledgers for commands, and PostgreSQL for those that are tried on both databases."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from ledger.store import db
from tests.ledger.conftest import (  # noqa: F401  # fixtures
    administer,
    new_database,
    postgres_server,
)


@pytest.fixture
def engine(tmp_path: Path, migrated_file: Path) -> Iterator[sa.Engine]:
    """An engine on an empty ledger: `ledger.sqlite3` in the test's folder."""
    path = tmp_path / "ledger.sqlite3"
    shutil.copy(migrated_file, path)
    engine = db.open_engine(f"sqlite:///{path}")
    yield engine
    engine.dispose()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home without logs; the ledger is the one of `engine`."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TOKENTEE_LEDGER", f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home
