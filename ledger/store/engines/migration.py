"""Database. The schema of a ledger: finds its revision, migrates it to this code's, lists
differences. Migrations change tables, and drop derived objects that are in the way; `derive` then
creates them all, from one text for both databases.

A migration holds a lock, so two processes that start at once do not collide. A SQLite ledger
is copied before its migration. A schema that is newer than this code is refused. So is a migration
while a process of an older version records into the file: its rows would fit into no table.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.errors import LedgerError
from ledger.store.engines import sqlite_file, urls
from ledger.store.engines.sqlite_file import REVISION, refuse_newer
from ledger.store.processes import nodes
from ledger.store.schema import descriptions, guards, links, views
from ledger.store.tables import PARTITIONED

MIGRATION_LOCK = 0x746F6B656E746565
"""`tokentee` as a number: the advisory lock on PostgreSQL."""
NAMED_ROWS = 10_000
"""Of the newest exchanges, among which the name of an older process is searched."""
_NEWEST_NODES = (
    "SELECT DISTINCT node FROM "
    "(SELECT node FROM exchanges ORDER BY opened_at DESC LIMIT :rows) WHERE node IS NOT NULL"
)
LINKS_SINCE = "0008"
"""The first schema whose links follow `schema/links.py`."""


def revision_of(engine: Engine) -> str | None:
    """The schema of a ledger; None if it has none yet. LedgerError if it is newer than this
    code."""
    with engine.connect() as connection:
        return _revision(connection)


def upgrade(engine: Engine, *, is_copy: bool = False) -> str | None:
    """Migrate a ledger to this code's schema; the name of the copy made before, if any. None is
    made of what is a copy itself."""
    try:
        with migrating(engine) as connection:
            found = _revision(connection)
            if found == REVISION:
                return None
            path = urls.file_of(engine.url)
            copy = None
            if path and found and not is_copy:
                _refuse_beside_older(connection, path, found)
                copy = sqlite_file.copy_before(path, found, new_revision=REVISION)
            if path and found is None:
                _create(connection)
            else:
                run_alembic("upgrade", connection, "head")
            if found is not None and found < LINKS_SINCE:
                relink_all(connection)
    except sa.exc.DBAPIError as error:
        if urls.is_trouble(error):
            raise LedgerError(urls.not_opened(engine.url, error)) from error
        cause = urls.cut(" ".join(str(error.orig).split()), urls.password_of(engine.url))
        raise LedgerError(
            f"cannot migrate the ledger {urls.shown(engine.url)} to schema {REVISION}: {cause}; "
            "it is as it was: remove what stands in the way, and run `tokentee db upgrade`"
        ) from error
    return str(copy) if copy else None


def _refuse_beside_older(connection: Connection, path: Path, found: str) -> None:
    """LedgerError while a process that writes an older schema than this code's records."""
    older = [each for each in nodes.recorders(path) if each.schema < REVISION]
    if not older:
        return
    known: list[str] = []
    with contextlib.suppress(sa.exc.DBAPIError):
        known = list(connection.execute(sa.text(_NEWEST_NODES), {"rows": NAMED_ROWS}).scalars())
    names = [
        each.node
        or next((node for node in known if nodes.lock_path(path, node) == each.file), "")
        or f"the one that holds {each.file}"
        for each in older
    ]
    raise LedgerError(
        f"{urls.shown(connection.engine.url)} has the schema {found}, and a process of an older "
        f"tokentee records into it ({', '.join(names)}): a migration to {REVISION} would end its "
        "recording. Nothing is changed: stop it, then run this again"
    )


def differences(engine: Engine) -> list[str]:
    """What differs between a ledger and this code's tables, in words; empty if nothing does."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from ledger.store.tables import metadata

    with engine.connect() as connection:
        found = _revision(connection)
        if found != REVISION:
            return [f"schema {found or 'none'}, not {REVISION}"]
        context = MigrationContext.configure(connection, opts={"include_object": is_ours})
        return [str(difference) for difference in compare_metadata(context, metadata)]


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that locks out other migrations."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # Batch mode copies a table and drops the old one, which foreign keys would refuse.
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.rollback()
            connection.execution_options(tokentee_begin="BEGIN IMMEDIATE")
        with connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            yield connection
        # This connection has foreign keys off, so it must not return to the pool.
        connection.invalidate()


def is_ours(thing: Any, name: str | None, kind: str, _reflected: bool, _other: Any) -> bool:
    """The shipper creates partitions month by month, so they are not in the schema; and only SQLite
    has foreign keys (`tables.py`), which Alembic cannot express."""
    if kind == "foreign_key_constraint":
        return False
    if kind == "index":
        name = thing.table.name
    return not (name or "").startswith(tuple(f"{table}_p" for table in PARTITIONED))


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    refuse_newer(found, urls.shown(connection.engine.url))
    return found


def run_alembic(command: str, connection: Connection, *arguments: str) -> None:
    """Run one of Alembic's commands in a transaction of `migrating`."""
    import logging

    # mitmproxy shows every INFO record to the user, and alembic logs while it is imported.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    import alembic.command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(sqlite_file.MIGRATIONS))
    config.attributes["connection"] = connection
    getattr(alembic.command, command)(config, *arguments)


def _create(connection: Connection) -> None:
    """Create the schema of an empty SQLite ledger."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    sqlite_file.create_schema(driver)


def derive(connection: Connection) -> None:
    """Replace views, guards, comments and the function that links."""
    dialect = connection.dialect.name
    rights: Sequence[Any] = []
    if dialect == "postgresql":
        # The grants on the views: dropping a view removes them.
        rights = (
            connection.execute(
                sa.text(
                    "SELECT table_name, privilege_type, "
                    "CASE grantee WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(grantee) END "
                    "AS grantee FROM information_schema.role_table_grants "
                    "WHERE table_schema = current_schema() AND table_name = ANY(:views) "
                    "AND grantee <> current_user"
                ),
                {"views": list(views.VIEWS)},
            )
            .mappings()
            .all()
        )
    statements = [*views.statements(dialect), *guards.statements(dialect)]
    if dialect == "postgresql":
        # The driver reads a single % as a parameter.
        statements = [
            each.replace("%", "%%") for each in (*statements, links.postgresql_function())
        ]
    for statement in statements:
        connection.exec_driver_sql(statement)
    if dialect == "postgresql":
        descriptions.comment_on_all(connection)
        for right in rights:
            connection.exec_driver_sql(
                f"GRANT {right['privilege_type']} ON {right['table_name']} TO {right['grantee']}"
            )


def relink_all(connection: Connection) -> None:
    """Apply the rule of duplicates to every exchange; an earlier release had another rule."""
    connection.exec_driver_sql(
        "UPDATE exchanges SET duplicate_of = NULL WHERE duplicate_of IS NOT NULL"
    )
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"SELECT {links.FUNCTION}(coalesce(jsonb_agg(jsonb_build_array(opened_at, id)), '[]')) "
            f"FROM exchanges e WHERE {links.has_company('e')}"
        )
        return
    for statement in links.sqlite_relinking("true"):
        connection.exec_driver_sql(statement)
