"""An empty ledger for a recorder in this process.

Its stop waits for no open exchange.
"""

import shutil
from pathlib import Path

import pytest

from addon.proxy import lifecycle


@pytest.fixture
def ledger(migrated_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lifecycle, "DRAIN_SECONDS_MAX", 0.0)
    path = tmp_path / "ledger.sqlite3"
    shutil.copy(migrated_file, path)
    path.chmod(0o600)
    return path
