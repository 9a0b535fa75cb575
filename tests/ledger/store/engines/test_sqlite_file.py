"""The SQLite file of a ledger, opened without SQLAlchemy."""

import contextlib
import os
import sqlite3

import pytest

from ledger.model.errors import LedgerError
from ledger.store.engines import sqlite_file
from tests.ledger.written import file_of


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
