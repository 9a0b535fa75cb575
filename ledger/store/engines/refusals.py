"""Database. Errors of a database: whether a row causes them, and their text without the row."""

import sqlalchemy as sa

from ledger.model.errors import LedgerError
from ledger.text.printable import without_passwords

REFUSALS = (sa.exc.IntegrityError, sa.exc.DataError)
"""Errors that the row causes: a retry fails as well."""
_REFUSING_CLASSES = ("21", "22", "23", "2F", "38", "39", "44", "54", "P0")
"""Classes of SQLSTATE that the row causes: values, constraints, checks, limits of the server, and
exceptions raised by a trigger."""

_REFUSING_TEXTS = ("JSON cannot hold BLOB values", "malformed JSON")
"""What SQLite says, without a class of its own, of a value that no row of the recorder's has."""


def is_refusal(error: Exception) -> bool:
    """Whether the row causes the error; False: the database does, and a retry may succeed."""
    if isinstance(error, REFUSALS):
        return True
    if isinstance(error, sa.exc.DBAPIError):
        if str(getattr(error.orig, "sqlstate", None) or "")[:2] in _REFUSING_CLASSES:
            return True
        return any(text in str(error.orig) for text in _REFUSING_TEXTS)
    return not isinstance(error, sa.exc.SQLAlchemyError | LedgerError | OSError | MemoryError)


def reason_of(error: Exception, *passwords: str | None) -> str:
    """The database's message, without the row it is about and without these passwords."""
    if not isinstance(error, sa.exc.DBAPIError):
        return without_passwords(f"{type(error).__name__}: {error}", *passwords)[:300]
    diagnosis = getattr(error.orig, "diag", None)
    text = (diagnosis.message_primary if diagnosis else None) or str(error.orig)
    return without_passwords(" ".join(text.split()), *passwords)[:300]
