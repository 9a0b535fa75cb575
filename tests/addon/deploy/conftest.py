"""The ledger's PostgreSQL, for the queries of the dashboards."""

from tests.ledger.conftest import (  # noqa: F401  # fixtures
    administer,
    migrated_database,
    new_database,
    new_postgres,
    postgres_server,
)
