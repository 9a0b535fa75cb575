"""The schema of a ledger: the newest one, and what differs from it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from ledger.model.errors import LedgerError
from ledger.store import db
from ledger.store.engines import migration
from ledger.store.engines.sqlite_file import REVISION
from tests.ledger.store.engines import empty_ledger

pytestmark = pytest.mark.large

MIGRATIONS = Path(__file__).parents[4] / "migrations"


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
    assert migration.revision_of(engine) == REVISION
    assert migration.differences(engine) == []


def test_an_empty_ledger_is_what_the_migrations_make(tmp_path):
    assert empty_ledger.FILE.read_text() == empty_ledger.text()
    schemas: list[dict[str, str]] = []
    for make in (migration._create, empty_ledger.migrated):
        engine = db.create(f"sqlite:///{tmp_path}/{len(schemas)}.db")
        with migration.migrating(engine) as connection:
            make(connection)
            schemas.append(dict(empty_ledger.schema_of(connection)))
            assert migration._revision(connection) == REVISION
        engine.dispose()
    assert schemas[0] == schemas[1]


def test_a_new_sqlite_ledger_needs_no_alembic(tmp_path):
    code = (
        f"import sys; from ledger.store import db; db.ensure('sqlite:///{tmp_path}/a.db').dispose()"
        "; sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_difference_is_found(engine):
    with db.writing(engine) as connection:
        connection.execute(sa.text("ALTER TABLE learned ADD COLUMN extra INTEGER"))
    (found,) = migration.differences(engine)
    assert "extra" in found


def set_revision(engine, revision: str) -> None:
    with db.writing(engine) as connection:
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{revision}'"))


def test_a_newer_ledger_is_refused(engine, ledger_url):
    set_revision(engine, "9999")
    for open_it in (db.ensure, db.open_existing):
        with pytest.raises(LedgerError, match=r"written by a newer tokentee .*upgrade tokentee"):
            open_it(ledger_url)
    with pytest.raises(LedgerError, match="newer"):
        migration.upgrade(engine)


@pytest.mark.postgres
def test_an_older_shared_ledger_is_not_migrated_by_the_way(new_postgres):
    url = new_postgres()
    engine = db.open_engine(url)
    set_revision(engine, "0003")
    with pytest.raises(LedgerError, match=r"has the schema 0003.*run `tokentee db upgrade`"):
        db.ensure(url)
    engine.dispose()
