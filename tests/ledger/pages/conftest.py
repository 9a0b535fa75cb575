"""Ledgers with some weeks in them, made once for all tests of pages."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ledger.store import db
from tests.ledger.pages.filled import fill
from tests.ledger.priced import BOTH

NOW = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)
SMALL: dict[str, Any] = {
    "rows": 500,
    "days": 10,
    "history_days": 56,
    "end": datetime(2026, 11, 22, tzinfo=UTC),
}


@pytest.fixture(scope="session")
def weeks_file(tmp_path_factory, migrated_file) -> Path:
    """Ten days and eight weeks before them, with sums of the days that are over."""
    path = tmp_path_factory.mktemp("weeks") / "ledger.sqlite3"
    shutil.copy(migrated_file, path)
    engine = db.ensure(f"sqlite:///{path}")
    fill(engine, **SMALL)
    engine.dispose()
    return path


@pytest.fixture
def weeks_url(weeks_file, tmp_path) -> str:
    """A copy of it."""
    path = tmp_path / "weeks.sqlite3"
    shutil.copy(weeks_file, path)
    return f"sqlite:///{path}"


@pytest.fixture
def weeks(weeks_url):
    """An engine on that copy."""
    engine = db.ensure(weeks_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def weeks_database(postgres_server, administer, migrated_database) -> str:
    """The same on PostgreSQL: a test takes a copy."""
    administer(f"CREATE DATABASE weeks TEMPLATE {migrated_database}")
    engine = db.ensure(postgres_server("weeks"))
    fill(engine, **SMALL)
    engine.dispose()
    return "weeks"


@pytest.fixture(params=BOTH)
def either(request):
    """The same weeks on either database."""
    if request.param == "sqlite":
        yield request.getfixturevalue("weeks")
        return
    template = request.getfixturevalue("weeks_database")
    engine = db.ensure(request.getfixturevalue("new_database")(template))
    yield engine
    engine.dispose()
