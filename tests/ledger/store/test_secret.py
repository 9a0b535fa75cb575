"""The secret of key fingerprints lies apart from the ledger. Ledgers of two secrets: one key would have
two fingerprints, and sync says so."""

import contextlib
import errno
import os
import shutil
import sqlite3

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from ledger.model.errors import LedgerError
from ledger.parts.sync.merging import sync
from ledger.store import db, secret
from ledger.store.engines import urls
from tests.app import APP
from tests.ledger.written import alter, file_of, put, row, rows, settled, whole, writing


@pytest.fixture
def path(tmp_path, monkeypatch):
    file = tmp_path / "keys" / "secret"
    monkeypatch.setenv("TOKENTEE_SECRET_FILE", str(file))
    return file


def ledger(new_sqlite, name, *, kept=None):
    engine = db.open_engine(new_sqlite(name))
    if kept is not None:
        alter(engine, f"INSERT INTO meta (key, value) VALUES ('secret', '{kept.hex()}')")
    return engine


def test_all_ledgers_of_a_user_have_one_secret_that_only_the_user_reads(new_sqlite, path):
    found = {secret.of_ledger(ledger(new_sqlite, name)) for name in ("a", "b")}
    assert found == {secret.of_machine()}
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert len(secret.of_machine()) == secret.KEY_SECRET_BYTES


def test_the_secret_of_an_older_ledger_moves_out_of_it(new_sqlite, path):
    kept = b"k" * 32
    engine = ledger(new_sqlite, "a", kept=kept)
    assert secret.of_ledger(engine) == kept
    assert rows(engine, "SELECT * FROM meta WHERE key = 'secret'") == []
    assert secret.of_machine() == kept
    rows(engine, "PRAGMA wal_checkpoint(TRUNCATE)")
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
        schema = "SCHEMA public TO tt_reader"
        alter(shared, f"GRANT USAGE ON {schema}", f"GRANT SELECT ON ALL TABLES IN {schema}")
        with shared.connect() as connection:
            connection.exec_driver_sql("SET ROLE tt_reader")
            connection.exec_driver_sql("SELECT * FROM requests")
            assert not connection.exec_driver_sql("SELECT * FROM meta").all()
            with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
                connection.exec_driver_sql("SELECT * FROM tokentee_private.secret")
    finally:
        alter(shared, "DROP OWNED BY tt_reader")
        shared.dispose()
        administer("DROP ROLE tt_reader")


@pytest.fixture
def of_machine(own_data_directory, tmp_path, monkeypatch):
    """Lets what follows run on a machine with a secret of its own."""

    def be(name):
        monkeypatch.setenv("TOKENTEE_SECRET_FILE", str(tmp_path / f"secret-of-{name}"))
        return secret.of_machine()

    return be


@pytest.fixture
def recorded(new_sqlite):
    def record(name):
        url = new_sqlite(name)
        with writing(url) as written:
            written.settle(settled(name))
        return url

    return record


def secret_of(url):
    with db.disposing(db.open_existing(url)) as engine:
        return secret.known(engine)


def fill(url, value):
    """A target that somebody records into with this secret."""
    with db.disposing(db.open_existing(url)) as engine:
        put(engine, whole(settled("theirs")))
        assert secret.store(engine, value)


def test_two_secrets_are_said_in_one_line(of_machine, recorded, ledger_url):
    of_machine("laptop")
    source = recorded("ours")
    fill(ledger_url, of_machine("team"))
    result = CliRunner().invoke(APP, ["sync", source, ledger_url])
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "two fingerprints" in line]
    assert "TOKENTEE_SECRET_FILE" in line
    assert secret_of(ledger_url) == of_machine("team")


def test_one_secret_is_nothing_to_say(of_machine, recorded, ledger_url):
    of_machine("laptop")
    fill(ledger_url, of_machine("laptop"))
    assert not sync(recorded("ours"), ledger_url).has_two_secrets


def test_an_empty_target_takes_the_secret(of_machine, recorded, ledger_url):
    value = of_machine("laptop")
    source = recorded("ours")
    file_of(source).with_name("ours.sqlite3.secret").write_text(value.hex())
    of_machine("team")
    for _ in range(2):
        assert not sync(source, ledger_url, with_secret=True).has_two_secrets
        assert secret_of(ledger_url) == value
    assert sync(source, ledger_url).has_two_secrets is False


def test_a_target_with_exchanges_keeps_its_secret(of_machine, recorded, ledger_url):
    value = of_machine("laptop")
    source = recorded("ours")
    file_of(source).with_name("ours.sqlite3.secret").write_text(value.hex())
    fill(ledger_url, of_machine("team"))
    with pytest.raises(LedgerError, match="for an empty target"):
        sync(source, ledger_url, with_secret=True)
    assert secret_of(ledger_url) == of_machine("team")
    assert row(ledger_url, "SELECT COUNT(*) FROM exchanges") == (1,)


def test_a_secret_that_stayed_elsewhere_cannot_be_carried(of_machine, recorded, ledger_url):
    of_machine("laptop")
    source = recorded("ours")
    of_machine("team")
    with pytest.raises(LedgerError, match="TOKENTEE_SECRET_FILE"):
        sync(source, ledger_url, with_secret=True)


@pytest.mark.postgres
def test_a_shared_ledger_gives_its_secret(of_machine, new_postgres, new_sqlite):
    source, target = new_postgres(), new_sqlite()
    fill(source, of_machine("team"))
    of_machine("laptop")
    assert sync(source, target).has_two_secrets
    other = new_sqlite("other")
    assert not sync(source, other, with_secret=True).has_two_secrets
    assert secret_of(other) == of_machine("team")


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o604, 0o601, 0o600, 0o400])
def test_a_secret_that_others_may_read_is_made_private_with_a_line(path, mode, caplog):
    made = secret.of_machine()
    path.chmod(mode)
    assert secret.of_machine() == made
    is_private = not mode & 0o077
    assert path.stat().st_mode & 0o777 == (mode if is_private else 0o600)
    assert [record.message for record in caplog.records] == (
        [] if is_private else [f"tokentee: others could read {path}: its mode is 0600 now"]
    )


@pytest.mark.parametrize(("mode", "is_refused"), [(0o644, True), (0o602, True), (0o440, False)])
def test_a_secret_of_another_user_that_all_may_read_is_refused(path, monkeypatch, mode, is_refused):
    made = secret.of_machine()
    path.chmod(mode)

    def refused(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(type(path), "chmod", refused)
    if is_refused:
        with pytest.raises(
            LedgerError, match=r"others can read .* Operation not permitted; give it"
        ):
            secret.of_machine()
    else:
        assert secret.of_machine() == made


@pytest.mark.parametrize("text", ["127.0.0.1 localhost", "", "abcd"])
def test_a_file_that_is_no_secret_keeps_its_mode(path, text):
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="is not a secret of key fingerprints"):
        secret.of_machine()
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.timeout(20)
def test_a_pipe_as_secret_is_not_waited_for(path):
    path.parent.mkdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(LedgerError, match=r"cannot read the secret of key .*: it is a pipe"):
        secret.of_machine()


@pytest.fixture
def backup(new_sqlite, path, tmp_path, monkeypatch):
    """A ledger as the documentation saves it, put back for another user; and its secret."""
    engine = ledger(new_sqlite, "a")
    kept = secret.of_ledger(engine)
    (tmp_path / "restored").mkdir()
    copy = tmp_path / "restored" / "ledger.sqlite3"
    with contextlib.closing(sqlite3.connect(str(urls.file_of(engine.url)))) as source:
        source.execute(f"VACUUM INTO '{copy}'")
    shutil.copy(path, f"{copy}.secret")
    monkeypatch.setenv("TOKENTEE_SECRET_FILE", str(tmp_path / "another" / "secret"))
    return db.open_engine(f"sqlite:///{copy}"), kept


def test_a_backup_as_documented_keeps_the_names_of_keys(backup, caplog):
    engine, kept = backup
    assert secret.of_ledger(engine) == kept
    assert caplog.messages == []


def test_a_ledger_that_is_put_back_without_its_secret_says_so_once(backup, caplog):
    engine, kept = backup
    restored = urls.file_of(engine.url)
    assert restored is not None
    own = restored.with_name(f"{restored.name}.secret")
    own.unlink()
    other = secret.of_ledger(engine)
    assert other != kept
    (line,) = caplog.messages
    assert line.startswith(f"tokentee: the keys in {restored} were hashed with another secret")
    caplog.clear()
    assert secret.of_ledger(engine) == other
    assert caplog.messages == []


@pytest.mark.postgres
def test_a_spool_that_takes_the_shared_secret_does_not_warn(path, new_postgres, new_sqlite, caplog):
    spool = ledger(new_sqlite, "spool")
    secret.of_ledger(spool)
    with db.disposing(db.open_engine(new_postgres())) as shared:
        assert secret.store(shared, b"\xab" * 32)
        assert secret.share(spool, shared)
    assert secret.of_ledger(spool) == b"\xab" * 32
    assert caplog.messages == []
