"""The ledger's PostgreSQL, for commands that are tried on both databases."""

from tests.ledger.conftest import administer, postgres_server  # noqa: F401  # fixtures
