"""Ledgers with some weeks in them, made once for all tests of pages."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ledger.store import db
from tests.ledger.parts.pages.filled import fill
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
    with db.disposing(db.ensure(f"sqlite:///{path}")) as engine:
        fill(engine, **SMALL)
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
    with db.disposing(db.ensure(weeks_url)) as engine:
        yield engine


@pytest.fixture(scope="session")
def weeks_database(postgres_server, administer, migrated_database) -> str:
    """The same on PostgreSQL: a test takes a copy."""
    administer(f"CREATE DATABASE weeks TEMPLATE {migrated_database}")
    with db.disposing(db.ensure(postgres_server("weeks"))) as engine:
        fill(engine, **SMALL)
    return "weeks"


@pytest.fixture(params=BOTH)
def either(request):
    """The same weeks on either database."""
    if request.param == "sqlite":
        yield request.getfixturevalue("weeks")
        return
    template = request.getfixturevalue("weeks_database")
    with db.disposing(db.ensure(request.getfixturevalue("new_database")(template))) as engine:
        yield engine
