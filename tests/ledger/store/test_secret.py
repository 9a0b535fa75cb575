"""The secret of key fingerprints lies apart from the ledger."""

import pytest
import sqlalchemy as sa

from ledger.model.errors import LedgerError
from ledger.store import db, secret
from ledger.store.engines import urls
from tests.ledger.written import rows


@pytest.fixture
def path(tmp_path, monkeypatch):
    file = tmp_path / "keys" / "secret"
    monkeypatch.setenv("TOKENTEE_SECRET_FILE", str(file))
    return file


def ledger(new_sqlite, name, *, kept=None):
    engine = db.open_engine(new_sqlite(name))
    if kept is not None:
        with db.writing(engine) as connection:
            connection.execute(
                sa.text("INSERT INTO meta (key, value) VALUES ('secret', :value)"),
                {"value": kept.hex()},
            )
    return engine


def test_all_ledgers_of_a_user_have_one_secret_that_only_the_user_reads(new_sqlite, path):
    found = {secret.of_ledger(ledger(new_sqlite, name)) for name in ("a", "b")}
    assert found == {secret.of_machine()}
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert len(secret.of_machine()) == secret.SECRET_BYTES


def test_the_secret_of_an_older_ledger_moves_out_of_it(new_sqlite, path):
    kept = b"k" * 32
    engine = ledger(new_sqlite, "a", kept=kept)
    assert secret.of_ledger(engine) == kept
    assert rows(engine, "SELECT * FROM meta WHERE key = 'secret'") == []
    assert secret.of_machine() == kept
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    path = urls.file_of(engine.url)
    assert path is not None
    assert kept.hex().encode() not in path.read_bytes()


def test_a_second_older_ledger_keeps_its_own(new_sqlite, path):
    first, second = b"1" * 32, b"2" * 32
    assert secret.of_ledger(ledger(new_sqlite, "a", kept=first)) == first
    engine = ledger(new_sqlite, "b", kept=second)
    for _ in range(2):
        assert secret.of_ledger(engine) == second
    path = urls.file_of(engine.url)
    assert path is not None
    beside = path.with_name("b.sqlite3.secret")
    assert beside.stat().st_mode & 0o777 == 0o600
    assert secret.of_machine() == first


@pytest.mark.parametrize("text", ["", "zz", "00ff"])
def test_a_secret_that_is_none_is_said(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(LedgerError, match="secret of key fingerprints"):
        secret.of_machine()


def test_a_place_that_cannot_be_written_is_said(monkeypatch):
    monkeypatch.setenv("TOKENTEE_SECRET_FILE", "/proc/nowhere/secret")
    with pytest.raises(LedgerError, match="TOKENTEE_SECRET_FILE"):
        secret.of_machine()


@pytest.mark.postgres
def test_who_may_read_the_ledger_may_not_read_the_secret(new_sqlite, new_postgres, administer):
    shared = db.open_engine(new_postgres())
    spool = ledger(new_sqlite, "spool")
    assert not secret.share(spool, shared)
    assert rows(shared, "SELECT value FROM tokentee_private.secret") == [
        (secret.of_machine().hex(),)
    ]
    assert not secret.share(spool, shared)
    administer("CREATE ROLE tt_reader")
    try:
        with shared.connect() as connection, connection.begin():
            connection.exec_driver_sql("GRANT USAGE ON SCHEMA public TO tt_reader")
            connection.exec_driver_sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO tt_reader")
        with shared.connect() as connection:
            connection.exec_driver_sql("SET ROLE tt_reader")
            connection.exec_driver_sql("SELECT * FROM requests")
            assert not connection.exec_driver_sql("SELECT * FROM meta").all()
            with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
                connection.exec_driver_sql("SELECT * FROM tokentee_private.secret")
    finally:
        with shared.connect() as connection, connection.begin():
            connection.exec_driver_sql("DROP OWNED BY tt_reader")
        shared.dispose()
        administer("DROP ROLE tt_reader")
