"""Opening a ledger: where it lives, its first use, what of its URL people may see, and what is said when it
cannot be had."""

import contextlib
import multiprocessing
import os
import sqlite3
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from ledger import recording
from ledger.model.errors import LedgerError
from ledger.settings import small_files
from ledger.store import db, secret
from ledger.store.engines import migration, sqlite_file, urls
from ledger.store.engines.sqlite_file import REVISION
from tests.ledger.written import file_of, on_sqlite, row, rows, settled, whole
from tests.named import for_each, named


def test_the_default_is_a_file_in_the_data_directory(own_data_directory):
    assert urls.default_url() == f"sqlite:///{own_data_directory / 'ledger.sqlite3'}"


def test_a_user_without_a_home_is_told_so(monkeypatch):
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TOKENTEE_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # a container's
    assert small_files.config_directory() == small_files.SYSTEM_FOLDER
    with pytest.raises(
        LedgerError, match=r"^this user has no home folder: set HOME or XDG_DATA_HOME$"
    ):
        urls.default_url()
    for url in ("~/l.db", "sqlite:///~/l.db", "sqlite:///~nobody at all/l.db"):
        with pytest.raises(LedgerError, match=r"^there is no home folder for ~"):
            urls.sqlite_path(url)
    monkeypatch.setenv("TOKENTEE_SECRET_FILE", "~/secret")
    with pytest.raises(LedgerError, match=r"^there is no home folder for ~/secret"):
        secret.of_machine()


def test_the_environment_says_otherwise(monkeypatch):
    monkeypatch.setenv("TOKENTEE_LEDGER", "sqlite:////srv/other.sqlite3")
    assert urls.default_url() == "sqlite:////srv/other.sqlite3"


@for_each(
    "url, drivername",
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
    assert urls.parse_url(url).drivername == drivername


def test_the_password_of_the_user_part_wins():
    both = urls.parse_url("postgresql://u:first@h:65535/d?password=second")
    assert (both.password, dict(both.query), both.port) == ("first", {}, 65_535)
    assert urls.parse_url("postgresql://u@h/d?password=second").password == "second"


def test_a_name_with_a_question_mark_is_named_as_it_can_be_given(tmp_path):
    path = f"{tmp_path}/a?b=c.db"
    db.ensure(path).dispose()
    assert [file.name for file in tmp_path.iterdir()] == ["a?b=c.db"]
    assert urls.sqlite_path(urls.shown(path)) == urls.sqlite_path(path) == Path(path)


def test_a_path_is_a_url():
    assert urls.parse_url("/srv/a b.sqlite3") == urls.parse_url("sqlite:////srv/a b.sqlite3")
    assert urls.parse_url("a.db") == urls.parse_url("sqlite:///a.db")
    assert urls.shown("a.db") == "sqlite:///a.db"
    assert urls.shown("postgresql://u:secret@h/d") == "postgresql+psycopg://u:***@h/d"


@for_each(
    "url, said",
    [
        ("", "not a ledger URL"),
        ("ledger", "not a ledger URL: ledger; use sqlite:////path"),
        ("/srv/ledger", "not a ledger URL"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory"),
        ("sqlite:////srv/a?b=c.db", "'b' is no option of SQLite; a name with ?"),
        ("postgresql://h:65536/d", "its port is not in 1 to 65535"),
        ("mysql://u:secret@h/d", "cannot be kept in 'mysql': mysql://u:***@h/d"),
        ("postgresql+psycopg2://h/d", "cannot be kept in 'postgresql+psycopg2'"),
        ("postgresql://h:port/d", "not a ledger URL"),
    ],
)
def test_what_is_no_url_of_a_ledger(url, said):
    with pytest.raises(LedgerError) as caught:
        urls.parse_url(url)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@for_each(
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
        "postgresql+psycopg://u:hunter2[bad",
        "postgresql://u:hunter2#h/d",
        "postgresql://u:hunter2%40h/d",
        "postgresql://u:hunter2:5432/d",
        "postgresql://u:hunter2",
        "postgres:/u:hunter2/d",
        "u:hunter2",
        "mysql://u:hunter2",
        "host=h password='hunter2 hunter2' dbname=d",
        "postgresql://u/hunter2@h/d",
    ],
)
def test_no_password_is_printed_whatever_is_wrong_with_the_url(url):
    with pytest.raises(LedgerError) as caught:
        db.open_existing(url)
    assert "hunter2" not in str(caught.value)


def test_a_password_of_digits_without_a_host():
    with pytest.raises(LedgerError, match="its port is not in 1 to 65535") as caught:
        urls.parse_url("postgresql://u:7777777/d")
    assert "7777777" not in str(caught.value)


def test_a_password_in_the_query_is_one():
    parsed = urls.parse_url("postgresql://u@127.0.0.1:1/d?password=hunter2&connect_timeout=1")
    assert parsed.password == "hunter2"
    assert urls.shown(parsed) == "postgresql+psycopg://u:***@127.0.0.1:1/d?connect_timeout=1"


def test_a_path_that_is_no_utf_8_is_shown():
    assert urls.shown("sqlite:////srv/\udca1.db").endswith("/srv/%3F.db")
    assert urls.shown("/srv/ä.db") == "sqlite:////srv/%C3%A4.db"


@for_each(
    "url",
    [
        "sqlite:////srv/ledger.sqlite3",
        "sqlite+pysqlite:////srv/ledger.sqlite3",
        "sqlite:///relative/a.db",
        "sqlite:///~/a.db",
        "sqlite:///-",
        "/srv/a.db",
        "a.sqlite",
        "~/a-b_c+d.sqlite3",
        "/srv/a b.db",
        "sqlite:////srv/a%20b.db",
        "sqlite:////srv/ä.db",
        "sqlite:////srv/a.db?timeout=3",
        "sqlite+pysqlite:////srv/a.db?cache=shared",
    ],
)
def test_an_ordinary_path_is_read_as_sqlalchemy_reads_it(url):
    parsed = urls.parse_url(url)
    assert urls.sqlite_path(url) == urls.file_of(parsed)
    assert urls.shown(url) == urls.shown(parsed)


@for_each("url", ["ledger", "sqlite:///", "sqlite:///:memory:", "mysql://h/d", "/a"])
def test_what_is_no_path_of_a_ledger_is_refused_by_both(url):
    for read in (urls.parse_url, urls.sqlite_path, urls.shown):
        with pytest.raises(LedgerError):
            read(url)


def test_a_shared_ledger_has_no_file():
    assert urls.sqlite_path("postgresql://u@h/d") is None


def test_a_missing_slash_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match=rf"four slashes: sqlite:///{tmp_path}/a\.db"):
        urls.sqlite_path(f"sqlite://{tmp_path}/a.db")
    assert urls.sqlite_path("sqlite:///new-folder/a.db") == Path("new-folder/a.db")
    (tmp_path / "tmp").mkdir()
    assert urls.sqlite_path("sqlite:///tmp/a.db") == Path("tmp/a.db")


POSTGRESQL = sa.make_url("postgresql+psycopg://u:hunter2@127.0.0.1:1/d")
SQLITE = sa.make_url("sqlite:////x/ledger.sqlite3")


def failed(text: str) -> OperationalError:
    return OperationalError("SELECT 1", {}, Exception(text))


@for_each(
    "url, said, line",
    named(
        {
            "two lines of libpq": (
                POSTGRESQL,
                "connection failed: Connection refused\n\tIs the server running there?\n",
                "cannot open the ledger postgresql+psycopg://u:***@127.0.0.1:1/d: connection failed: "
                "Connection refused. Is the server running there?; check that the server runs and the "
                "URL is right",
            ),
            "the password is cut out": (
                POSTGRESQL,
                'password "hunter2" is wrong',
                'cannot open the ledger postgresql+psycopg://u:***@127.0.0.1:1/d: password "***" is '
                "wrong; check that the server runs and the URL is right",
            ),
            "another file": (
                SQLITE,
                "file is not a database",
                "cannot open the ledger sqlite:////x/ledger.sqlite3: file is not a database; move the "
                "file away and start again, or put a copy in its place",
            ),
            "read-only": (
                SQLITE,
                "attempt to write a readonly database",
                "cannot open the ledger sqlite:////x/ledger.sqlite3: attempt to write a readonly "
                "database; name a file you can write to (ledger_url, TOKENTEE_LEDGER)",
            ),
            "locked": (
                SQLITE,
                "database is locked",
                "cannot open the ledger sqlite:////x/ledger.sqlite3: database is locked; check that no "
                "process holds the file and that its disk has room",
            ),
        }
    ),
)
def test_the_line_names_the_ledger_the_cause_and_the_remedy(url: sa.URL, said: str, line: str):
    assert urls.not_opened(url, failed(said)) == line


@for_each(
    "said",
    [
        "permission denied for table meta",
        "must be owner of table exchanges",
        "cannot execute INSERT in a read-only transaction",
    ],
)
def test_a_role_without_the_right_is_told_where_the_rights_stand(said: str):
    error = DBAPIError("INSERT", {}, Exception(f"{said}\nDETAIL: more"))
    text = urls.failed(error) or ""
    assert text.startswith(f"the ledger fails: {said}")
    assert text.endswith("docs/operations.md lists the rights")


@for_each(
    "said, is_trouble",
    [("database is locked", True), ("no such table: x", False), ('near "SELEC": syntax', False)],
)
def test_a_wrong_statement_is_no_trouble_of_the_database(said: str, is_trouble: bool):
    assert urls.is_trouble(failed(said)) is is_trouble


def test_a_new_file_is_its_owners_alone(tmp_path):
    from tests.ledger import bundled

    path = tmp_path / "new" / "folder" / "ledger.sqlite3"
    with db.disposing(db.ensure(f"sqlite:///{path}")) as engine:
        bundled.put(engine, whole(settled("a")))
        for file in (path, path.with_name("ledger.sqlite3-wal")):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_connection_is_durable_patient_and_checks_references(url):
    """Of an engine, and of the driver alone."""
    settings = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    expected = ["wal", 2, 1, sqlite_file.BUSY_MS_MAX]
    assert [row(url, f"PRAGMA {name}")[0] for name in settings] == expected
    with contextlib.closing(sqlite_file.connect(file_of(url))) as connection:
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in settings]
    assert found == expected


@for_each("path", ["/proc/nowhere/ledger.sqlite3", "/dev/null/ledger.sqlite3", "/proc/version"])
def test_a_place_that_cannot_be_written(path):
    with pytest.raises(LedgerError, match=r"cannot (create|write|open) the ledger") as caught:
        db.ensure(f"sqlite:///{path}")
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database(text_file):
    path = text_file("notes.txt", "not a database, but long enough to be looked at" * 100)
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
    with pytest.raises(LedgerError, match="is empty: `tokentee db upgrade` makes it a ledger"):
        db.open_existing(f"sqlite:///{path}")


@for_each(
    "names",
    ["exchanges", "alembic_version", "anything", "exchanges alembic_version", "meta readings"],
)
@for_each("kind", ["TABLE", "VIEW"])
def test_a_database_of_another_program_is_refused_and_stays_as_it_is(tmp_path, kind, names):
    path = tmp_path / "other.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as other:
        for name in names.split():
            other.execute(f"CREATE {kind} {name} {'AS SELECT 1' if kind == 'VIEW' else '(a)'}")
    path.chmod(0o644)
    before = path.read_bytes()
    url = f"sqlite:///{path}"
    for opening in (
        db.ensure,
        db.open_existing,
        lambda url: migration.upgrade(db.create(url)),
        lambda _: sqlite_file.connect(path),
        lambda url: recording.open_ledger(url, node="n", log=lambda *_: None),
    ):
        with pytest.raises(LedgerError, match="is not a ledger"):
            opening(url)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o644


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


def test_a_ledger_that_others_could_read_is_made_private(url):
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
