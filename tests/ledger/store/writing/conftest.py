"""What the tests of the writer share."""

import pytest

from ledger.store.engines import sqlite_file
from ledger.store.writing import writer


@pytest.fixture
def quick(monkeypatch):
    """Waits that are sized for a disk in trouble, not for a test."""
    monkeypatch.setattr(sqlite_file, "BUSY_MS_MAX", 50)
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(writer, "RETRY_SECONDS_MAX", 0.02)
