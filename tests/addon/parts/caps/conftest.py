"""As a recorder is made in this process."""

from tests.addon.proxy import conftest

ledger = conftest.ledger
