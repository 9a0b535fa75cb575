"""The SQLite ledger that the migrations make, as `migrations/empty_sqlite.sql` has it.

    uv run python -m tests.ledger.store.engines.empty_ledger        writes that file

To be called when a migration is added; a test compares the file with what they make.
"""

import tempfile
from pathlib import Path
from unittest import mock

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.store import db
from ledger.store.engines import migration, sqlite_file
from ledger.store.engines.sqlite_file import REVISION

FILE = Path(__file__).parents[4] / "migrations" / sqlite_file.EMPTY_LEDGER


def migrated(connection: Connection) -> None:
    """Make an empty ledger by the migrations."""
    migration.run_alembic("upgrade", connection, "head")


def schema_of(connection: Connection) -> list[tuple[str, str]]:
    """Everything in a file: name and statement."""
    found = connection.execute(sa.text("SELECT name, sql FROM sqlite_master ORDER BY rowid"))
    # SQLite's own come with what needs them.
    return [(name, sql) for name, sql in found if not name.startswith("sqlite_")]


def text() -> str:
    """What the file has to be."""
    with (
        tempfile.TemporaryDirectory() as folder,
        db.disposing(db.create(f"sqlite:///{folder}/ledger.db")) as engine,
        # Views and guards are made by `derive` from today's code, and not kept here.
        mock.patch.object(migration, "derive"),
        migration.migrating(engine) as connection,
    ):
        migrated(connection)
        statements = [sql for _, sql in schema_of(connection)]
    statements.append(f"INSERT INTO alembic_version (version_num) VALUES ('{REVISION}')")
    return "".join(f"{statement}{sqlite_file.STATEMENT_END}" for statement in statements)


if __name__ == "__main__":
    FILE.write_text(text())
