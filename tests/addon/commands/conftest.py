"""The ledger's PostgreSQL, for commands that are tried on both databases."""

from tests.ledger.conftest import (  # noqa: F401  # fixtures
    administer,
    new_database,
    postgres_server,
)
