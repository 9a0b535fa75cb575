"""Every migration, from a filled ledger of the schema before it, on both databases.

`filled/<schema>.sql` fills a ledger of that schema, and of the later ones up to the
next file, and says what must hold after the migration. A new migration that changes what can be
filled in brings a new file; nothing here changes.
"""

import ast
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from ledger.maintenance import reprice
from ledger.maintenance.checking import verify
from ledger.model.errors import LedgerError
from ledger.store import db
from ledger.store.engines import migration, sqlite_file
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.processes import nodes
from ledger.store.tables import metadata
from ledger.store.writing.ledger_file import LedgerFile
from tests.ledger.priced import BOTH
from tests.ledger.store.engines import empty_ledger
from tests.ledger.written import alter, put, rows, run_python, settled, whole

pytestmark = pytest.mark.large

FILLED = Path(__file__).parents[1] / "filled"
SUMS = ("daily", "daily_by", "hourly", "hourly_usage", "sums", "unpriced_lines", "stale_days")
"""What days add up to is made anew."""
MADE_ANEW = (*SUMS, "cap_leases")
"""And what processes share of caps: an account that is not there is added up from the ledger."""
OLDER = [f"{number:04}" for number in range(1, int(REVISION))]
FIRST_OR_LAST = {*(path.stem for path in FILLED.glob("*.sql")), OLDER[-1]}
"""Released migrations are never edited: what a new one does to the data of each file shows here."""


def data_of(revision: str) -> str:
    name = max(path.stem for path in FILLED.glob("*.sql") if path.stem <= revision)
    return (FILLED / f"{name}.sql").read_text()


def migrate(engine, revision: str) -> None:
    with migration.migrating(engine) as connection:
        migration.run_alembic("upgrade", connection, revision)


def fill(engine, text: str) -> None:
    alter(engine, *(line for line in text.splitlines() if line and not line.startswith("--")))


type Columns = dict[str, list[str]]


def columns(engine) -> Columns:
    """The columns of each table, but for what belongs to the migrations. A partition has no row
    that its table has not."""
    with engine.connect() as connection:
        inspector = sa.inspect(connection)
        return {
            table: [column["name"] for column in inspector.get_columns(table)]
            for table in inspector.get_table_names()
            if table != "alembic_version" and not table.endswith("_pdefault")
        }


def contents(engine, of: Columns | None = None) -> dict[str, list[tuple[object, ...]]]:
    """Everything that a ledger holds in these columns."""
    with engine.connect() as connection:
        return {
            table: sorted(
                tuple(str(value) for value in found)
                for found in connection.execute(sa.text(f"SELECT {_quoted(names)} FROM {table}"))
            )
            for table, names in (of or columns(engine)).items()
        }


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)  # `window` is a word of PostgreSQL's


@pytest.fixture(params=BOTH)
def empty(request, tmp_path):
    """A database without a schema."""
    if request.param == "sqlite":
        engine = db.create(f"sqlite:///{tmp_path / 'empty.sqlite3'}")
    else:
        engine = db.open_engine(request.getfixturevalue("new_database")())
    yield engine
    engine.dispose()


def test_an_empty_database_names_the_command_that_fills_it(empty):
    with pytest.raises(LedgerError, match="is empty: `tokentee db upgrade` makes it a ledger"):
        db.open_existing(empty.url)
    with empty.begin() as connection:
        connection.execute(sa.text("CREATE TABLE notes (a INTEGER)"))
    with pytest.raises(LedgerError, match="is not a ledger of tokentee"):
        db.open_existing(empty.url)


@pytest.mark.parametrize(
    "revision",
    [
        pytest.param(each, marks=() if each in FIRST_OR_LAST else pytest.mark.nightly)
        for each in OLDER
    ],
)
def test_a_filled_ledger_is_brought_to_the_newest_schema(empty, revision):
    migrate(empty, revision)
    text = data_of(revision)
    fill(empty, text)
    known = {table: names for table, names in columns(empty).items() if table not in MADE_ANEW}
    before = contents(empty, known)

    copy = migration.upgrade(empty)

    assert migration.revision_of(empty) == REVISION
    assert migration.differences(empty) == []
    if empty.dialect.name == "postgresql" and revision < "0005":
        # 0005 moves the secret to a schema that readers of the ledger have no right to.
        (kept,) = (value for name, value in before.pop("meta") if name == "secret")
        assert rows(empty, "SELECT key FROM meta") == []
        assert rows(empty, "SELECT value FROM tokentee_private.secret") == [(kept,)]
        del known["meta"]
    assert contents(empty, known) == before
    for line in text.splitlines():
        if line.startswith("-- after: "):
            query, _, expected = line.removeprefix("-- after: ").partition(" -> ")
            (found,) = rows(empty, query)
            assert ", ".join(map(str, found)) == expected, query
    assert (copy is not None) == (empty.dialect.name == "sqlite")


def test_days_whose_figures_follow_a_newer_rule_are_summed_up_again(empty):
    """Those of lost exchanges, of readings with equal revisions, of orders, and no other."""
    migrate(empty, "0023")
    text = data_of("0023").replace("2026-02-01 02:", "2026-02-02 02:")
    again = [line for line in text.splitlines() if "'ra', 1," in line]
    fill(empty, text)
    fill(empty, again[0].replace("'ra', 1,", "'rz', 1,").replace(" 20, '{}'", " 21, '{}'"))
    day = "INSERT INTO meta (key, value) VALUES ('rolled_until', '2026-02-02 00:00:00.000000Z')"
    fill(empty, day)
    order = next(line for line in text.splitlines() if "'b', 'settled'" in line)
    order = order.replace("2026-02-0", "2026-01-0").replace("'b', ", "'order', ")
    order = order.replace("duplicate_of", "finish_reason").replace("'d-1', 'a'", "'d-2', 'queued'")
    fill(empty, order)
    migration.upgrade(empty)
    assert [str(found) for (found,) in rows(empty, "SELECT day FROM stale_days ORDER BY day")] == [
        "2026-01-01",
        "2026-01-31",
    ]
    assert rows(empty, "SELECT reading_id, output_tokens FROM requests WHERE id = 'a'") == [
        ("rz", 21)
    ]


def copied(engine, other, table: str) -> None:
    """Copy the rows of a table of SQLite into the columns that an older schema has, too."""
    own = {column.name: column.type for column in metadata.tables[table].columns}
    names = [name for name in columns(other)[table] if name in own]
    into = sa.table(table, *map(sa.column, names))
    for found in rows(engine, f"SELECT {_quoted(names)} FROM {table}"):
        values = {
            name: bool(value) if isinstance(own[name], sa.Boolean) else value
            for name, value in zip(names, found, strict=True)
            if value is not None
        }
        with other.begin() as connection:
            connection.execute(sa.insert(into).values(values))


def test_what_was_repriced_before_pricings_is_as_it_was_priced(empty, sqlite_engine):
    """In schema 0017 a line that was priced again was a row of `charges`; a ledger merged with
    another that was repriced has two of one revision."""
    put(sqlite_engine, whole(settled("a")), whole(settled("b")), whole(settled("c")))
    migrate(empty, "0017")
    for table in ("exchanges", "readings"):
        copied(sqlite_engine, empty, table)
    booked = sa.table("charges", *map(sa.column, columns(empty)["charges"]))
    for found in rows(sqlite_engine, "SELECT * FROM charges ORDER BY reading_id, ordinal"):
        line = {name: found._mapping[name] for name in booked.columns.keys()}  # noqa: SIM118
        again, before = [line], line["id"]
        # a: one line once. b: each twice, and the first by two ledgers. c: none.
        units = {"a.1": [7]}.get(f"{found.exchange_id}.{found.ordinal}", [])
        for revision, unit in enumerate([5, 6] if found.exchange_id == "b" else units, 2):
            for source in ("list 2", "list 3") if found.ordinal == 0 else ("list 2",):
                amount = unit * found.quantity
                priced = line | {"unit_picousd": unit, "amount_picousd": amount}
                priced |= {"price_source": source, "revision": revision, "supersedes": before}
                digest = reprice.line_digest(SimpleNamespace(**priced))
                name = f"{found.reading_id}.{found.ordinal}.{revision}.{digest}"
                again.append(priced | {"id": name, "reason": "a new price"})
            before = min(each["id"] for each in again if each["revision"] == revision)
        with empty.begin() as connection:
            connection.execute(sa.insert(booked), again)
    assert rows(empty, "SELECT COUNT(*) FROM charges WHERE revision > 1")[0][0] > 5

    migration.upgrade(empty)

    assert [each.promise.name for each in verify(empty, None) if each.count] == []
    of = " ON pricings" if empty.dialect.name == "postgresql" else ""
    alter(empty, f"DROP TRIGGER pricings_append_only{of}")
    alter(empty, "UPDATE pricings SET amount_picousd = amount_picousd + 1 WHERE exchange_id = 'b'")
    assert "digests" in [each.promise.name for each in verify(empty, None) if each.count]


def test_a_copy_of_the_older_file_is_put_beside_it(tmp_path):
    with db.disposing(db.create(f"sqlite:///{tmp_path / 'ledger.sqlite3'}")) as engine:
        migrate(engine, OLDER[-1])
        fill(engine, data_of(OLDER[-1]))
        before = contents(engine)
        copy = migration.upgrade(engine)
        assert copy is not None
        assert Path(copy).stat().st_mode & 0o777 == 0o600
        copied = db.open_existing(f"sqlite:///{copy}")
        assert migration.revision_of(copied) == OLDER[-1]
        assert contents(copied) == before
        assert migration.upgrade(engine) is None
    copied.dispose()


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(empty):
    migrate(empty, "0001")
    with migration.migrating(empty) as connection:
        # Stands where migration 0003 wants to put its view.
        connection.exec_driver_sql("CREATE TABLE requests (id INTEGER)")
    with pytest.raises(Exception, match=r"requests"):
        migration.upgrade(empty)
    assert migration.revision_of(empty) == "0001"


def test_a_migration_that_fails_names_its_cause_and_leaves_one_copy(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with db.disposing(db.create(url)) as engine:
        migrate(engine, "0001")
        with migration.migrating(engine) as connection:
            connection.exec_driver_sql("CREATE TABLE requests (id INTEGER)")
        for _ in range(3):
            with pytest.raises(LedgerError, match=r"table requests already exists.* db upgrade"):
                db.ensure(url)
        assert [copy.name for copy in sqlite_file.copies_of(tmp_path / "ledger.sqlite3")] == [
            f"ledger.sqlite3.before-{REVISION}-from-0001"
        ]
        assert not list(tmp_path.glob("*.part*"))
        with migration.migrating(engine) as connection:
            connection.exec_driver_sql("DROP TABLE requests")
    db.ensure(url).dispose()
    assert len(sqlite_file.copies_of(tmp_path / "ledger.sqlite3")) == 1


@pytest.mark.parametrize("revision", ["0001", "0002", "0004", "0005"])
def test_a_downgrade_that_would_delete_facts_is_refused(empty, revision):
    migrate(empty, revision)
    below = f"{int(revision) - 1:04}" if revision != "0001" else "base"
    with pytest.raises(NotImplementedError), migration.migrating(empty) as connection:
        migration.run_alembic("downgrade", connection, below)


def test_views_can_be_taken_back(empty):
    migrate(empty, "0003")
    with migration.migrating(empty) as connection:
        migration.run_alembic("downgrade", connection, "0002")
    assert migration.revision_of(empty) == "0002"
    migrate(empty, "0003")


def test_the_code_is_written_for_the_newest_migration():
    config = Config()
    config.set_main_option("script_location", str(sqlite_file.MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_no_migration_imports_todays_code():
    for path in sorted((sqlite_file.MIGRATIONS / "versions").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                assert (module or "").partition(".")[0] not in ("ledger", "addon"), path.name


def test_an_empty_ledger_is_what_the_migrations_make(tmp_path):
    assert empty_ledger.FILE.read_text() == empty_ledger.text()
    schemas: list[dict[str, str]] = []
    for make in (migration._create, empty_ledger.migrated):
        url = f"sqlite:///{tmp_path}/{len(schemas)}.db"
        with db.disposing(db.create(url)) as engine, migration.migrating(engine) as connection:
            make(connection)
            schemas.append(dict(empty_ledger.schema_of(connection)))
            assert migration._revision(connection) == REVISION
    assert schemas[0] == schemas[1]


def test_a_new_sqlite_ledger_needs_no_alembic(tmp_path):
    code = (
        f"import sys; from ledger.store import db; db.ensure('sqlite:///{tmp_path}/a.db').dispose()"
        "; sys.exit('alembic' in sys.modules)"
    )
    assert run_python(code).returncode == 0


def set_revision(engine, revision: str) -> None:
    alter(engine, f"UPDATE alembic_version SET version_num = '{revision}'")


def test_a_newer_ledger_is_refused(engine, ledger_url):
    set_revision(engine, "9999")
    for open_it in (db.ensure, db.open_existing):
        with pytest.raises(LedgerError, match=r"written by a newer tokentee .*upgrade tokentee"):
            open_it(ledger_url)
    with pytest.raises(LedgerError, match="newer"):
        migration.upgrade(engine)


def test_the_schema_is_what_the_tables_say(engine):
    assert migration.revision_of(engine) == REVISION
    assert migration.differences(engine) == []


def test_a_difference_is_found(engine):
    alter(engine, "ALTER TABLE learned ADD COLUMN extra INTEGER")
    (found,) = migration.differences(engine)
    assert "extra" in found


@pytest.mark.postgres
def test_an_older_shared_ledger_is_not_migrated_by_the_way(new_postgres):
    url = new_postgres()
    with db.disposing(db.open_engine(url)) as engine:
        set_revision(engine, "0003")
        with pytest.raises(LedgerError, match=r"has the schema 0003.*run `tokentee db upgrade`"):
            db.ensure(url)


def hold_lock(path: Path, node: str, first_line: str) -> int:
    """Hold a node's lock, as a process of another version does."""
    lock = nodes.lock_path(path, node)
    lock.parent.mkdir(exist_ok=True)
    turn = nodes.take_turn(lock)
    assert turn is not None
    os.write(turn, first_line.encode())
    return turn


@pytest.mark.parametrize(
    ("first_line", "name"),
    [
        pytest.param("", "host/1/2020", id="one-that-notes-nothing"),
        pytest.param("an-exchange\nanother", "host/1/2020", id="one-that-notes-exchanges"),
        pytest.param("0001 host/2/2020\nan-exchange", "host/2/2020", id="one-that-notes-itself"),
    ],
)
def test_a_migration_beside_an_older_recorder_is_refused_and_names_it(tmp_path, first_line, name):
    url, path = f"sqlite:///{tmp_path / 'ledger.sqlite3'}", tmp_path / "ledger.sqlite3"
    with db.disposing(db.create(url)) as engine:
        migrate(engine, OLDER[-1])
        alter(
            engine,
            "INSERT INTO exchanges (id, origin, provider, dialect, operation, path, opened_at, "
            "streamed, state, usage_injected, usage_stripped, resent, tags, source, node, "
            "id_unstable) VALUES ('a', 'o', 'p', 'd', 'chat', '/', '2026-01-01 00:00:00.000000Z', "
            "0, 'open', 0, 0, 0, '{}', 'live', 'host/1/2020', 0)",
        )
        turn = hold_lock(path, "host/1/2020", first_line)
        newer = hold_lock(path, "host/3/2020", "9999 host/3/2020")
        opening = LedgerFile(path, shown_url=url, spooling=False, log=print)
        for open_it in (lambda: db.ensure(url), lambda: migration.upgrade(engine), opening.open):
            with pytest.raises(LedgerError, match=rf"an older .*\({name}\).* stop it"):
                open_it()
        assert migration.revision_of(engine) == OLDER[-1]
        assert not sqlite_file.copies_of(path)
        os.close(turn)
        assert migration.upgrade(engine) is not None
    os.close(newer)
    opening.open()
    opening.close()


def test_an_older_copy_under_the_name_of_a_recorded_ledger_is_migrated_by_its_recorders(tmp_path):
    """They write the schema that it gets."""
    path = tmp_path / "ledger.sqlite3"
    claims = [nodes.Claim(path, f"host/{number}/2020").take() for number in range(2)]
    with db.disposing(db.create(f"sqlite:///{path}")) as engine:
        migrate(engine, OLDER[-1])
    file = LedgerFile(path, shown_url=str(path), spooling=False, log=print)
    file.open()
    assert sqlite_file.revision_of(file.connection) == REVISION
    file.close()
    for claim in claims:
        claim.release()
