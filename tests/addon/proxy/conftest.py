"""An empty ledger for a recorder in this process.

The recorder leaves the garbage collector alone, and its stop waits for no open exchange.
"""

import shutil
from pathlib import Path

import pytest

from addon.proxy import lifecycle, recorder


@pytest.fixture
def ledger(migrated_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recorder, "tune_garbage_collector", lambda: None)
    monkeypatch.setattr(lifecycle, "DRAIN_SECONDS_MAX", 0.0)
    path = tmp_path / "ledger.sqlite3"
    shutil.copy(migrated_file, path)
    path.chmod(0o600)
    return path
