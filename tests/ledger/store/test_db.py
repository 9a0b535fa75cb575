"""Opening a ledger: where it lives, its first use, and what is said when it cannot be had."""

import ast
import multiprocessing
import sqlite3
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from ledger.model.errors import LedgerError
from ledger.store import db
from ledger.store.tables import REVISION
from tests.ledger.written import put, row, rows, settled, whole

MIGRATIONS = Path(db.__file__).parents[2] / "migrations"


def test_the_default_is_a_file_in_the_data_directory(own_data_directory):
    assert db.default_url() == f"sqlite:///{own_data_directory / 'ledger.sqlite3'}"


def test_the_environment_says_otherwise(monkeypatch):
    monkeypatch.setenv("TOKENTEE_LEDGER", "sqlite:////srv/other.sqlite3")
    assert db.default_url() == "sqlite:////srv/other.sqlite3"


@pytest.mark.parametrize(
    ("url", "drivername"),
    [
        ("sqlite:////srv/l.sqlite3", "sqlite"),
        ("sqlite+pysqlite:////srv/l.sqlite3", "sqlite"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("laptop.sqlite3", "sqlite"),
        ("/srv/ledger.db", "sqlite"),
    ],
)
def test_urls_of_ledgers(url, drivername):
    assert db.parse_url(url).drivername == drivername


def test_a_path_is_a_url():
    assert db.parse_url("/srv/a b.sqlite3") == db.parse_url("sqlite:////srv/a b.sqlite3")
    assert db.parse_url("a.db") == db.parse_url("sqlite:///a.db")
    assert db.shown("a.db") == "sqlite:///a.db"
    assert db.shown("postgresql://u:secret@h/d") == "postgresql+psycopg://u:***@h/d"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "not a ledger URL"),
        ("ledger", "not a ledger URL: ledger; use sqlite:////path"),
        ("/srv/ledger", "not a ledger URL"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory"),
        ("mysql://u:secret@h/d", "cannot live in 'mysql': mysql://u:***@h/d"),
        ("postgresql+psycopg2://h/d", "cannot live in 'postgresql+psycopg2'"),
        ("postgresql://h:port/d", "not a ledger URL"),
    ],
)
def test_what_is_no_url_of_a_ledger(url, said):
    with pytest.raises(LedgerError) as caught:
        db.parse_url(url)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_new_file_is_its_owners_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "ledger.sqlite3"
    engine = db.ensure(f"sqlite:///{path}")
    put(engine, whole(settled("a")))
    for file in (path, path.with_name("ledger.sqlite3-wal")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    engine.dispose()


def test_a_connection_is_durable_patient_and_checks_references(new_sqlite):
    engine = db.open_engine(new_sqlite())
    assert row(engine, "PRAGMA journal_mode") == ("wal",)
    assert row(engine, "PRAGMA synchronous") == (2,)
    assert row(engine, "PRAGMA foreign_keys") == (1,)
    assert row(engine, "PRAGMA busy_timeout") == (db.BUSY_MS_MAX,)


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
    with pytest.raises(LedgerError, match="see that the server runs") as caught:
        db.ensure("postgresql+psycopg://u:secret@127.0.0.1:1/d")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_code_is_written_for_the_newest_migration():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_no_migration_imports_todays_code():
    for path in sorted((MIGRATIONS / "versions").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                assert (module or "").partition(".")[0] not in ("ledger", "addon"), path.name


def test_the_schema_is_what_the_tables_say(engine):
    assert db.revision_of(engine) == REVISION
    assert db.differences(engine) == []


def test_a_difference_is_found(engine):
    with db.writing(engine) as connection:
        connection.execute(sa.text("ALTER TABLE learned ADD COLUMN extra INTEGER"))
    (found,) = db.differences(engine)
    assert "extra" in found


def test_partitions_are_no_difference(new_postgres):
    from datetime import date

    from ledger.store import partitions

    engine = db.ensure(new_postgres())
    outcome = partitions.ensure(engine, [date(2026, 1, 1)], date(2026, 2, 3))
    assert outcome == {date(2026, 1, 1): None}
    assert db.differences(engine) == []
    engine.dispose()


test_partitions_are_no_difference = pytest.mark.postgres(test_partitions_are_no_difference)


def set_revision(engine, revision: str) -> None:
    with db.writing(engine) as connection:
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{revision}'"))


def test_a_newer_ledger_is_refused(engine, ledger_url):
    set_revision(engine, "9999")
    for open_it in (db.ensure, db.open_existing):
        with pytest.raises(LedgerError, match=r"written by a newer tokentee .*upgrade tokentee"):
            open_it(ledger_url)
    with pytest.raises(LedgerError, match="newer"):
        db.upgrade(engine)


@pytest.mark.postgres
def test_an_older_shared_ledger_is_not_migrated_by_the_way(new_postgres):
    url = new_postgres()
    engine = db.open_engine(url)
    set_revision(engine, "0003")
    with pytest.raises(LedgerError, match=r"has the schema 0003.*run `tokentee db upgrade`"):
        db.ensure(url)
    engine.dispose()


def test_a_ledger_that_must_be_there_is_not_made(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    with pytest.raises(LedgerError, match="there is no ledger"):
        db.open_existing(f"sqlite:///{path}")
    assert not path.exists()
    sqlite3.connect(path).close()
    with pytest.raises(LedgerError, match="is no ledger"):
        db.open_existing(f"sqlite:///{path}")


def _ensure(url: str) -> str | None:
    engine = db.ensure(url)
    found = db.revision_of(engine)
    engine.dispose()
    return found


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("pg", marks=pytest.mark.postgres)])
@pytest.mark.process
def test_processes_that_start_at_once_do_not_collide(kind, tmp_path, request):
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    else:
        url = request.getfixturevalue("new_database")()
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_ensure, [url] * 3) == [REVISION] * 3
    engine = db.open_engine(url)
    assert len(rows(engine, "SELECT * FROM alembic_version")) == 1
    engine.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://bob:hun@hunter2@[bad",
        "postgresql://bob:hunter2:x@h:port/d",
        "mysql://u:hunter2@h/d?password=hunter2",
        "postgresql+psycopg://127.0.0.1:1/d?password=hunter2&sslpassword=hunter2",
        "postgres//u:hunter2@h",
        "postgres:/u:hunter2@h/d",
        "postgres:u:hunter2@h/d",
        "postgresql//u:hunter2/hunter2:hunter2@h",
        "u:hunter2@h/d",
        "u:hunter2@hunter2@h",
        "//u:hunter2@h/d",
        "://u:hunter2 hunter2@h/d",
        "postgresql:// u:hunter2@h:port/d",
        "postgresql://u:hunter2 hunter2@h:port/d",
        "postgresql://:hunter2@h:port/d",
    ],
)
def test_no_password_is_printed_whatever_is_wrong_with_the_url(url):
    with pytest.raises(LedgerError) as caught:
        db.open_existing(url)
    assert "hunter2" not in str(caught.value)


def test_no_password_is_left_in_a_text():
    said = "cannot reach postgresql://u:hunter2@h/d?password=hunter2 and //v:hunter2@x@h2 either"
    kept = "cannot reach postgresql://u:***@h/d?password=*** and //v:***@h2 either"
    assert db.without_passwords(said) == kept
    assert db.without_passwords(kept) == kept


def test_a_password_in_the_query_is_one():
    parsed = db.parse_url("postgresql://u@127.0.0.1:1/d?password=hunter2&connect_timeout=1")
    assert parsed.password == "hunter2"
    assert db.shown(parsed) == "postgresql+psycopg://u:***@127.0.0.1:1/d?connect_timeout=1"


def test_a_ledger_that_others_could_read_is_made_private(new_sqlite):
    url = new_sqlite()
    path = db.file_of(db.parse_url(url))
    path.chmod(0o644)
    db.ensure(url).dispose()
    assert path.stat().st_mode & 0o777 == 0o600
