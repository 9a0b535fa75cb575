"""Read-only access, its deadline, and how a change is seen."""

import pytest
import sqlalchemy as sa

from ledger.model.errors import LedgerError
from ledger.pages.live import read_only
from ledger.store import db
from tests.ledger.written import put, settled, whole

FOREVER = {
    "sqlite": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n",
    "postgresql": "SELECT pg_sleep(60)",
}


@pytest.mark.large
def test_a_question_has_a_deadline(ledger_url, monkeypatch):
    db.ensure(ledger_url).dispose()
    monkeypatch.setattr(read_only, "QUESTION_SECONDS_MAX", 1)
    engine = read_only.open_read_only(ledger_url)
    with (
        pytest.raises(read_only.TooLongError, match="choose a shorter period"),
        read_only.deadline(),
        engine.connect() as connection,
    ):
        connection.execute(sa.text(FOREVER[engine.dialect.name])).all()
    engine.dispose()


def test_another_trouble_of_the_database_is_one_line(engine):
    with (
        pytest.raises(LedgerError, match="the ledger cannot be read"),
        read_only.deadline(),
        engine.connect() as connection,
    ):
        connection.execute(sa.text("SELECT * FROM nothing_like_it"))


def test_the_version_moves_with_every_commit_and_only_then(new_sqlite):
    url = new_sqlite()
    writer = db.ensure(url)
    engine = read_only.open_read_only(url)
    before = read_only.version_of(engine)
    assert read_only.version_of(engine) == before
    put(writer, whole(settled("one")))
    assert read_only.version_of(engine) != before
    writer.dispose()
    engine.dispose()


def test_no_ledger_is_made(tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        read_only.open_read_only(f"sqlite:///{tmp_path}/none.sqlite3")
    assert list(tmp_path.iterdir()) == []


def test_another_schema_is_refused(new_sqlite):
    url = new_sqlite()
    engine = db.open_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    engine.dispose()
    with pytest.raises(LedgerError, match="run `tokentee db upgrade`"):
        read_only.open_read_only(url)
