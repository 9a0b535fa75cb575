"""The ledger's PostgreSQL, for proxies that share one."""

from tests.ledger.conftest import administer, new_database, postgres_server  # noqa: F401  # fixtures
