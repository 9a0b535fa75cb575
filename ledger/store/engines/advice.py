"""Database. Turns a driver's error into advice for the operator."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.store.engines import urls

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.engine import URL


def is_trouble(error: sa.exc.DBAPIError) -> bool:
    """Whether the database cannot be reached or written at all, whatever the statement."""
    import sqlalchemy as sa

    text = str(error.orig)
    return isinstance(error, sa.exc.OperationalError) and not any(
        word in text for word in ("already exists", "no such", "near ", "does not exist")
    )


def not_opened(url: URL, error: sa.exc.DBAPIError) -> str:
    """One line for the operator, made from a driver's error."""
    text = urls.cut(_one_line(str(error.orig)), urls.password_of(url))
    return _line(urls.shown(url), text, is_file=url.drivername == "sqlite")


def file_not_opened(shown: str, error: sqlite3.Error) -> str:
    """The same for a SQLite file; `shown` names the ledger."""
    return _line(shown, urls.cut(_one_line(str(error))), is_file=True)


def no_ledger(path: Path) -> str:
    """The same for a file that does not exist."""
    return (
        f"there is no ledger {path}: record one with `tokentee run -- COMMAND`, or name another "
        "file with --ledger or TOKENTEE_LEDGER"
    )


def no_tables(shown: str) -> str:
    """The same for a database that holds something else, or nothing."""
    return f"{shown} is no ledger: it has no tables of one"


def _one_line(text: str) -> str:
    # libpq puts what it adds on a line of its own.
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return ". ".join(line.rstrip(".") for line in lines if line)


def _line(shown: str, text: str, *, is_file: bool) -> str:
    if "not a database" in text or "malformed" in text:
        advice = "move the file away and start again, or put a copy in its place"
    elif "readonly" in text or "unable to open" in text:
        advice = "name a file you can write to (ledger_url, TOKENTEE_LEDGER)"
    elif is_file:
        advice = "check that no process holds the file and that its disk has room"
    else:
        advice = "check that the server runs and the URL is right"
    return f"cannot open the ledger {shown}: {text}; {advice}"
