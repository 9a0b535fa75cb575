"""The commands about the ledger: what they print where, and their exit codes."""

import os
import sqlite3
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from ledger import cli
from ledger.model.errors import WrongCallError
from ledger.parts.sync import shipper
from ledger.store import db, spool
from ledger.store.engines import migration, sqlite_file, urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.spool import RefusedExchange
from tests.app import APP
from tests.ledger.store.test_migrations import OLDER, data_of, fill, migrate
from tests.ledger.written import NOON, alter, put, row, settled, whole
from tests.named import for_each

pytestmark = pytest.mark.usefixtures("own_data_directory")


@pytest.fixture
def tokentee(run):
    return partial(run, url=None)


def test_a_ledger_is_made_and_looked_at(tokentee, tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    result = tokentee("db", "upgrade", "--ledger", url)
    assert result.stdout == ""
    assert f"{url} has the schema {REVISION}" in result.stderr
    assert tokentee("db", "current", "--ledger", url).stdout == f"{REVISION}\n"
    assert tokentee("db", "check", "--ledger", url).stdout == ""


def test_the_default_ledger_is_meant_if_none_is_named(tokentee, own_data_directory):
    tokentee("db", "upgrade")
    assert (own_data_directory / "ledger.sqlite3").exists()


def test_an_empty_ledger_option_is_not_the_default_ledger(tokentee, own_data_directory):
    for words in (["db", "upgrade"], ["report"]):
        assert "empty" in tokentee(*words, "--ledger", "", exits=2).stderr
    with pytest.raises(WrongCallError, match="empty"):
        tokentee("run", "--ledger", "")
    assert not (own_data_directory / "ledger.sqlite3").exists()


def test_an_older_ledger_is_said_to_be_one_and_copied_before_it_changes(tokentee, tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with db.disposing(db.create(url)) as engine:
        migrate(engine, "0001")
    result = tokentee("db", "current", "--ledger", url, exits=1)
    assert result.stdout == "0001\n"
    assert "tokentee db upgrade" in result.stderr
    tokentee("db", "check", "--ledger", url, exits=1)
    result = tokentee("db", "upgrade", "--ledger", url)
    assert f"{url} has the schema {REVISION}; it had 0001" in result.stderr
    (copy,) = tmp_path.glob("ledger.sqlite3.before-*")
    assert f"as it was before, it lies in {copy} until you delete that" in result.stderr


@pytest.mark.large
@pytest.mark.parametrize("words", [("report",), ("requests",), ("export", "out"), ("top",)])
def test_a_command_that_migrates_says_so_and_leaves_nothing_to_do(
    tokentee, tmp_path, monkeypatch, caplog, words
):
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with db.disposing(db.create(url)) as engine:
        migrate(engine, OLDER[0])
        fill(engine, data_of(OLDER[0]))
    tokentee(*words, "--ledger", url)
    (copy,) = tmp_path.glob("ledger.sqlite3.before-*")
    (line,) = [each.getMessage() for each in caplog.records if each.name.startswith("ledger")]
    assert line == (
        f"tokentee: {url} was migrated from the schema {OLDER[0]} to {REVISION}; as it was before, "
        f"it lies in {copy} until you delete that"
    )
    assert row(url, "SELECT COUNT(*) FROM stale_days") == (0,)
    assert row(url, "SELECT COUNT(*) > 0 FROM sums") == (1,)
    caplog.clear()
    tokentee(*words, "--ledger", url)
    assert not [each for each in caplog.records if each.name.startswith("ledger")]


def test_differences_are_printed(tokentee, url):
    alter(url, "ALTER TABLE learned ADD COLUMN surprise INTEGER")
    result = tokentee("db", "check", "--ledger", url, exits=1)
    assert "surprise" in result.stdout


def test_every_column_is_described(tokentee, new_sqlite):
    result = tokentee("db", "describe", "--ledger", new_sqlite())
    for words in ("usage_daily: ", "cache_hit_rate", "charges: ", "amount_picousd", "bigint"):
        assert words in result.stdout


def test_dropping_asks_first(tokentee, url):
    put(url, whole(settled("a")), whole(settled("b", at=NOON.replace(day=5))))
    result = tokentee("db", "drop", "--before", "2026-11-04", "--ledger", url, exits=1)
    assert "1 exchanges were opened before 2026-11-04 00:00 UTC; --yes drops them" in result.stderr
    assert row(url, "SELECT COUNT(*) FROM exchanges") == (2,)
    tokentee("db", "drop", "--before", "2026-11-04", "--yes", "--ledger", url)
    assert row(url, "SELECT COUNT(*), MIN(id) FROM exchanges") == (1, "b")


@pytest.mark.large
@pytest.mark.parametrize("revision", OLDER)
def test_dropping_reaches_the_copies_of_every_older_schema(tokentee, tmp_path, revision):
    path = tmp_path / "ledger.sqlite3"
    with db.disposing(db.create(f"sqlite:///{path}")) as engine:
        migrate(engine, revision)
        fill(engine, data_of(revision))
    db.ensure(f"sqlite:///{path}").dispose()
    (copy,) = sqlite_file.copies_of(path)
    ended = "SELECT COUNT(*) FROM exchanges WHERE state != 'open'"
    with db.disposing(db.open_existing(f"sqlite:///{copy}")) as copied:
        assert row(copied, ended) != (0,)
        words = ("db", "drop", "--before", "2100-01-01", "--ledger", str(path))
        result = tokentee(*words, "--segments")
        assert f"segments of 0 requests were dropped from the copy {copy}" in result.stderr
        assert row(copied, ended) != (0,)
        result = tokentee(*words, "--yes")
        assert f"exchanges were dropped from the copy {copy}" in result.stderr
        assert row(copied, ended) == (0,)
        assert migration.revision_of(copied) == revision


def test_a_sync(tokentee, new_sqlite):
    source, target = new_sqlite("source"), new_sqlite("target")
    put(source, whole(settled("a")), whole(settled("b")))
    result = tokentee("sync", source, target)
    assert result.stdout == ""
    assert "2 exchanges are in the target, 0 were refused" in result.stderr
    put(source, whole(settled("c")), whole(settled("d")))
    trigger = "CREATE TRIGGER refuse BEFORE INSERT ON readings"
    alter(target, f"{trigger} BEGIN SELECT RAISE(ABORT, 'not these'); END")
    tokentee("sync", source, target, exits=1)
    result = tokentee("sync", source, target, exits=1)
    assert result.stdout == "c\tnot these\nd\tnot these\n"
    assert "2 exchanges are in the target, 2 were refused" in result.stderr


@pytest.mark.parametrize("words", [[], ["sqlite:///a"], ["sqlite:///a", "--status"]])
def test_a_sync_of_what(tokentee, words):
    result = tokentee("sync", *words, exits=2)
    assert "give SOURCE and TARGET" in result.stderr


def test_the_status_of_spools(tokentee):
    result = tokentee("sync", "--status")
    assert result.stdout == ""
    assert "no spool" in result.stderr

    url = urls.parse_url("postgresql+psycopg://u:secret@h/d")
    path = spool.path_for(url)
    engine = db.ensure(f"sqlite:///{path}")
    with db.writing(engine) as connection:
        db.note(connection, "target", urls.shown(url))
        connection.exec_driver_sql(
            "INSERT INTO outbox (exchange_id, opened_at) "
            "VALUES ('a', '2026-11-02 12:00:00.000000Z'), ('a', '2026-11-02 12:00:00.000000Z')"
        )
    result = tokentee("sync", "--status")
    assert result.stdout.splitlines() == [
        f"postgresql+psycopg://u:***@h/d\t{path}",
        "  waiting: 1, the oldest of 2026-11-02 12:00:00 UTC",
        "  last shipped: never",
    ]

    with db.writing(engine) as connection:
        refused = [RefusedExchange(("2026-11-02 12:00:00.000000Z", "a"), "not this one")]
        shipper.settle_outbox(connection, 9, refused, now=NOON)
        db.note(connection, "trouble", "connection refused")
    result = tokentee("sync", "--status", exits=1)
    assert result.stdout.splitlines()[1:] == [
        "  waiting: 0",
        "  last shipped: 2026-11-02 12:00:00 UTC",
        "  trouble: connection refused",
        "  refused: a (2026-11-02 12:00:00.000000Z): not this one",
    ]
    engine.dispose()


READING = [
    ["report"], ["report", "--html", "page.html"], ["requests"], ["show", "chatcmpl"],
    ["export", "requests.csv"], ["export", "requests.parquet"], ["statusline"],
    ["cache"], ["context"], ["reprice"], ["top", "--once"],
]  # fmt: skip


@pytest.mark.parametrize("words", [*READING, ["serve"], ["db", "check"]], ids=" ".join)
def test_a_path_that_the_system_refuses_is_one_line(words, capsys, tmp_path):
    long = tmp_path / ("x" * 300)
    with pytest.raises(SystemExit) as end:
        cli.run(lambda: APP([*words, "--ledger", f"sqlite:///{long}"], prog_name="tokentee"))
    assert end.value.code == 1
    assert capsys.readouterr().err == f"tokentee: {long}: File name too long\n"


ODD = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    "words",
    [
        *(["report", "--only", f"model={ODD}"], ["report", "--by", ODD], ["show", ODD]),
        *(
            ["cache", "--session", ODD],
            ["limits", "--key", ODD],
            ["requests", "--only", f"key={ODD}"],
        ),
    ],
    ids=ascii,
)
def test_a_word_that_is_no_text_is_one_line(ledger, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tokentee", *words])
    with pytest.raises(SystemExit) as end:
        cli.run(lambda: APP([*words, "--ledger", ledger], prog_name="tokentee"))
    assert end.value.code in (1, 2)
    assert r"caf\udce9" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_ledger_that_is_damaged_inside_is_one_line(
    own_ledger, words, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    path = Path(own_ledger.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        tables = "('exchanges', 'sqlite_autoindex_exchanges_1')"
        sql = f"SELECT rootpage FROM sqlite_master WHERE name IN {tables} AND rootpage > 0"
        roots = [root for (root,) in connection.execute(sql)]
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        for root in roots:
            file.seek((root - 1) * page_bytes)
            file.write(b"\xff" * page_bytes)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as end:
        cli.run(lambda: APP([*words, "--ledger", own_ledger], prog_name="tokentee"))
    assert end.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "tokentee: the ledger fails: database disk image is malformed; move the file away and "
        "start again, or put a copy in its place"
    )
    assert sorted(tmp_path.iterdir()) == before


@for_each(
    "error, advice",
    [
        (sqlite3.OperationalError("disk I/O error"), "its disk has room"),
        (psycopg.OperationalError("server closed the connection\nunexpectedly"), "server runs"),
        (sqlite3.OperationalError("no such table: surprise"), None),
        (psycopg.errors.UndefinedColumn("column x"), None),
    ],
)
def test_a_database_that_fails_in_a_command_is_told_from_a_fault_of_ours(error, advice):
    kind = sa.exc.OperationalError if "Operational" in type(error).__name__ else sa.exc.DBAPIError
    text = urls.failed(kind("SELECT 1", None, error))
    assert (text is None) if advice is None else (advice in str(text))
    assert urls.failed(ValueError(str(error))) is None
