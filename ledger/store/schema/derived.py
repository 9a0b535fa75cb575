"""Database. Everything that a ledger derives from its tables; each upgrade recreates it.

Migrations change tables, and drop derived objects that are in the way. `derive` then creates them
all, from one text for both databases.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.store.schema import descriptions, guards, links, views

type _Rows = Sequence[Mapping[str, Any]]


def derive(connection: Connection) -> None:
    """Replace views, guards, comments and the function that links."""
    dialect = connection.dialect.name
    rights = _rights(connection) if dialect == "postgresql" else []
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


def _rights(connection: Connection) -> _Rows:
    """The grants on the views: dropping a view removes them."""
    found = connection.execute(
        sa.text(
            "SELECT table_name, privilege_type, "
            "CASE grantee WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(grantee) END AS grantee "
            "FROM information_schema.role_table_grants "
            "WHERE table_schema = current_schema() AND table_name = ANY(:views) "
            "AND grantee <> current_user"
        ),
        {"views": list(views.VIEWS)},
    )
    return [dict(row) for row in found.mappings()]
