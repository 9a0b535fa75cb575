"""The empty ledger of the proxy's tests."""

from tests.addon.proxy.conftest import ledger

__all__ = ["ledger"]
