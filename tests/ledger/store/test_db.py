"""Opening a ledger: where it lives, its first use, and what is said when it cannot be had."""

import contextlib
import multiprocessing
import os
import sqlite3
import stat

import pytest
import sqlalchemy as sa

from ledger.model.errors import LedgerError
from ledger.store import db
from ledger.store.engines import migration, sqlite_file
from ledger.store.engines.sqlite_file import REVISION
from tests.ledger.written import file_of, on_sqlite, put, row, rows, settled, whole


def test_a_new_file_is_its_owners_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "ledger.sqlite3"
    engine = db.ensure(f"sqlite:///{path}")
    put(engine, whole(settled("a")))
    for file in (path, path.with_name("ledger.sqlite3-wal")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    engine.dispose()


def test_a_connection_is_durable_patient_and_checks_references(new_sqlite):
    """Of an engine, and of the driver alone."""
    url = new_sqlite()
    settings = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    expected = ["wal", 2, 1, sqlite_file.BUSY_MS_MAX]
    assert [row(url, f"PRAGMA {name}")[0] for name in settings] == expected
    with contextlib.closing(sqlite_file.connect(file_of(url))) as connection:
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in settings]
    assert found == expected


@pytest.mark.parametrize(
    "path", ["/proc/nowhere/ledger.sqlite3", "/dev/null/ledger.sqlite3", "/proc/version"]
)
def test_a_place_that_cannot_be_written(path):
    with pytest.raises(LedgerError, match=r"cannot (create|write|open) the ledger") as caught:
        db.ensure(f"sqlite:///{path}")
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(LedgerError, match="not a database; move the file away"):
        db.ensure(f"sqlite:///{path}")


def test_a_server_that_is_not_there():
    with pytest.raises(LedgerError, match="check that the server runs") as caught:
        db.ensure("postgresql+psycopg://u:secret@127.0.0.1:1/d")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_ledger_that_must_be_there_is_not_made(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    with pytest.raises(LedgerError, match="there is no ledger"):
        db.open_existing(f"sqlite:///{path}")
    assert not path.exists()
    sqlite3.connect(path).close()
    with pytest.raises(LedgerError, match="is no ledger"):
        db.open_existing(f"sqlite:///{path}")


def _ensure(url: str) -> str | None:
    with db.disposing(db.ensure(url)) as engine:
        return migration.revision_of(engine)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("pg", marks=pytest.mark.postgres)])
@pytest.mark.process
def test_processes_that_start_at_once_do_not_collide(kind, tmp_path, request):
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    else:
        url = request.getfixturevalue("new_database")()
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_ensure, [url] * 3) == [REVISION] * 3
    assert len(rows(url, "SELECT * FROM alembic_version")) == 1


@on_sqlite
def test_errors_do_not_repeat_the_values_of_a_statement(engine):
    with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError) as caught:
        connection.execute(sa.text("SELECT :value FROM nowhere"), {"value": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_ledger_that_others_could_read_is_made_private(new_sqlite):
    url = new_sqlite()
    path = file_of(url)
    path.chmod(0o644)
    db.ensure(url).dispose()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_missing_file_is_not_created(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        sqlite_file.connect(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b.sqlite3", "50%.db", "what?.db", "ä#1.db"])
def test_any_name_is_opened(new_sqlite, tmp_path, name):
    path = file_of(new_sqlite()).rename(tmp_path / name)
    with contextlib.closing(sqlite_file.connect(path)) as connection:
        assert sqlite_file.revision_of(connection) is not None


def test_a_transaction_that_fails_changes_nothing(new_sqlite):
    with contextlib.closing(sqlite_file.connect(file_of(new_sqlite()))) as connection:
        count = "SELECT count(*) FROM meta"
        before = connection.execute(count).fetchone()
        with pytest.raises(ValueError, match="stop"), sqlite_file.writing(connection):  # noqa: PT012
            connection.execute("DELETE FROM meta")
            connection.execute("INSERT INTO meta (key, value) VALUES ('a', '1')")
            raise ValueError("stop")
        assert connection.execute(count).fetchone() == before
        assert not connection.in_transaction


def test_what_is_no_file_is_refused_and_stays_as_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    pipe.chmod(0o644)
    with pytest.raises(LedgerError, match="it is not a file"):
        sqlite_file.create(pipe)
    assert pipe.stat().st_mode & 0o777 == 0o644
