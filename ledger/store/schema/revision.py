"""Pure. The schema that this code needs."""

from ledger.model.errors import LedgerError

REVISION = "0015"
"""The migration that this code needs; a test compares it with the newest one."""


def refuse_newer(found: str | None, shown: str) -> None:
    """LedgerError if a ledger has a newer schema; `shown` names the ledger."""
    if found is not None and str(found) > REVISION:
        raise LedgerError(
            f"{shown} was written by a newer tokentee "
            f"(schema {found}, this is {REVISION}): upgrade tokentee"
        )
