"""Edge. Providers' statements from files."""

from dataclasses import replace
from pathlib import Path

from ledger.model.errors import LedgerError
from ledger.reconcile.statements import Statement, read

FILE_BYTES_MAX = 256 * 1024 * 1024
"""A year of an organisation by the minute; more is not a statement."""


def load(name: str, *, provider: str | None) -> Statement:
    """One file; `provider` is whose it is where it does not say."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise LedgerError(f"cannot read {name}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise LedgerError(f"{name} is larger than {FILE_BYTES_MAX} bytes: not a statement")
    try:
        statement = read(name, data.decode("utf-8"))
    except UnicodeDecodeError:
        raise LedgerError(f"{name} is not UTF-8 text: not a statement") from None
    return replace(statement, provider=statement.provider or provider)
