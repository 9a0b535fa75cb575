"""Wiring. Where Alembic meets the ledger.

`ledger.store.engines.migration` hands over a connection that holds the migration lock already;
Alembic's own command line opens the one ledger that `engines.urls.default_url()` names.
"""

from alembic import context
from sqlalchemy import Connection

from ledger.store import db
from ledger.store.engines import migration, urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.tables import metadata


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        # SQLite cannot alter most of a table: batch mode copies it.
        render_as_batch=True,
        include_object=migration.is_ours,
    )
    with context.begin_transaction():
        context.run_migrations()
    if context.get_context().get_current_revision() == REVISION:
        migration.derive(connection)


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with migration.migrating(db.open_engine(urls.default_url())) as connection:
        run(connection)
