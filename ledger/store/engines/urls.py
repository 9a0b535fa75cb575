"""Edge (environment). Where a ledger lives: its URL, its file, the URL without secrets for display,
and advice for the operator where it cannot be opened.

The path of an ordinary SQLite ledger is read without SQLAlchemy, which a proxy does not import for
such a ledger.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.model.errors import LedgerError, WrongCallError
from ledger.settings import small_files
from ledger.settings.extras import needs
from ledger.text.printable import mistyped_url, without_passwords

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.engine import URL

SHOWN_CHARACTERS_MAX = 300
"""Characters that an error repeats of a text."""
PORT_MAX = 65_535
SQLITE_OPTIONS = frozenset(
    {"cache", "cached_statements", "mode", "nolock", "timeout", "uri", "vfs"}
)
_ORDINARY = re.compile(r"(?:sqlite(?:\+pysqlite)?:///)?([\w.~/+-]+)", re.ASCII)
"""A path without characters that a URL escapes."""

type Place = URL | str
"""Where a ledger is: a URL, parsed or not."""


def default_url() -> str:
    """`TOKENTEE_LEDGER`, or a SQLite file in the user's data directory."""
    if url := os.environ.get("TOKENTEE_LEDGER"):
        return url
    return f"sqlite:///{small_files.data_directory() / 'ledger.sqlite3'}"


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite ledger, None for a shared ledger; LedgerError if it is no ledger's
    URL."""
    ordinary = _ordinary_path(url)
    path = small_files.expanded(ordinary) if ordinary else file_of(parse_url(url))
    if path is not None and not path.is_absolute() and "://" in url:
        meant = Path("/") / path
        if not path.parent.exists() and meant.parent.exists():
            raise LedgerError(
                f"{_given(url)} is below the current folder; for {meant} write four slashes: "
                f"sqlite:///{meant}"
            )
    return path


def parse_url(url: str | URL) -> URL:
    """The URL of a ledger, or the path of its file; LedgerError if it is neither. One that was
    parsed stays as it is."""
    import sqlalchemy as sa
    from sqlalchemy.engine import URL, make_url

    if isinstance(url, URL):
        return url
    try:
        parsed = URL.create("sqlite", database=url) if _is_path(url) else make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError(
            f"not a ledger URL: {_given(url)}; "
            "use sqlite:////path/to/ledger.sqlite3 or postgresql+psycopg://user@host/database"
        ) from None
    if "@" in (parsed.host or ""):
        # Otherwise the end of the password would be resolved, and shown, as a host name.
        raise LedgerError(
            f"not a ledger URL: {_given(url)}; write an @ in a user or password as %40"
        )
    if parsed.username is None and "@" in (parsed.database or ""):
        # A slash typed instead of the colon would turn user and password into host and database.
        raise LedgerError(f"not a ledger URL: {_given(url)}; write //USER:PASSWORD@HOST/NAME")
    if parsed.port is not None and not 0 < parsed.port <= PORT_MAX:
        # A password of digits without its host: `//user:123456/database`.
        raise LedgerError(f"not a ledger URL: {_given(url)}; its port is not in 1 to {PORT_MAX}")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if not parsed.database or parsed.database == ":memory:" or "mode=memory" in url:
            raise LedgerError(f"a ledger in memory keeps nothing: {_given(url)}; name a file")
        if not SQLITE_OPTIONS.issuperset(parsed.query):
            raise LedgerError(
                f"not a ledger URL: {_given(url)}; {next(iter(parsed.query))[:20]!r} is no "
                "option of SQLite; a name with ? is written as a path that ends in .db, without "
                "sqlite:"
            )
        return parsed.set(drivername="sqlite")
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise LedgerError(needs("psycopg"))
        parsed = parsed.set(drivername="postgresql+psycopg")
        given = parsed.query.get("password")
        if isinstance(given, str):  # to the password's place, where `shown` redacts it
            parsed = parsed.set(password=parsed.password or given)
            parsed = parsed.difference_update_query(["password"])
        return parsed
    raise WrongCallError(
        f"a ledger cannot be kept in {parsed.drivername!r}: {shown(parsed)}; "
        "use sqlite:///… or postgresql+psycopg://…"
    )


def shown(url: URL | str) -> str:
    """The URL without its password, for people."""
    if isinstance(url, str) and (ordinary := _ordinary_path(url)):
        return f"sqlite:///{ordinary}"
    parsed = parse_url(url)
    if parsed.drivername == "sqlite" and "?" in (parsed.database or ""):
        return str(parsed.database)  # as it can be named: a URL ends at the question mark
    if parsed.database is not None and not parsed.database.isascii():
        # A path may hold bytes that are no UTF-8; SQLAlchemy cannot write them.
        parsed = parsed.set(database=parsed.database.encode("utf-8", "replace").decode("utf-8"))
    return without_passwords(parsed.render_as_string(hide_password=True))


def option(url: URL | str) -> str:
    """How a command names a ledger, without its password; empty if it asks this one unasked."""
    ours, default = (shown(each).replace(":***@", "@") for each in (url, default_url()))
    return "" if ours == default else f" --ledger {shlex.quote(ours)}"


def password_of(url: URL) -> str | None:
    """The password in a URL, to be redacted from texts."""
    return str(url.password) if url.password is not None else None


def file_of(url: URL) -> Path | None:
    """The file of a SQLite ledger."""
    if url.drivername != "sqlite" or not url.database:
        return None
    return small_files.expanded(url.database)


def _is_path(text: str) -> bool:
    return "://" not in text and text.endswith((".sqlite3", ".sqlite", ".db"))


def _ordinary_path(url: str) -> str | None:
    """The path in the URL of a SQLite file, if nothing in it is escaped or an option."""
    found = _ORDINARY.fullmatch(url)
    return found[1] if found and ("://" in url or _is_path(url)) else None


def _given(url: str) -> str:
    """The text that was given as a URL, without its password, even if it is mistyped."""
    return cut(mistyped_url(url))


def cut(text: str, *known: str | None) -> str:
    """A text for one line of an error, without passwords; `known` passwords are redacted anywhere
    in it."""
    text = without_passwords(text, *known)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"


def is_trouble(error: sa.exc.DBAPIError) -> bool:
    """Whether the database cannot be reached or written at all, whatever the statement."""
    import sqlalchemy as sa

    text = str(error.orig)
    return isinstance(error, sa.exc.OperationalError) and not any(
        word in text for word in ("already exists", "no such", "near ", "does not exist")
    )


def not_opened(url: URL, error: sa.exc.DBAPIError) -> str:
    """One line for the operator, made from a driver's error."""
    text = cut(_one_line(str(error.orig)), password_of(url))
    return _advised(shown(url), text, is_file=url.drivername == "sqlite")


def failed(error: Exception) -> str | None:
    """The same for a database that fails while a command uses it; None: that is not the cause."""
    import sqlalchemy as sa

    if not isinstance(error, sa.exc.DBAPIError):
        return None
    text = cut(_one_line(str(error.orig)))
    if not (is_trouble(error) or _is_damaged(text) or _has_odd_value(text) or _is_refused(text)):
        return None
    is_file = type(error.orig).__module__ == "sqlite3"
    return f"the ledger fails: {text}; {_advice(text, is_file=is_file)}"


def file_not_opened(shown: str, error: sqlite3.Error) -> str:
    """The same for a SQLite file; `shown` names the ledger."""
    return _advised(shown, cut(_one_line(str(error))), is_file=True)


def no_ledger(path: Path) -> str:
    """The same for a file that does not exist."""
    return (
        f"there is no ledger {path}: record one with `tokentee run -- COMMAND`, or name another "
        "file with --ledger or TOKENTEE_LEDGER"
    )


def empty(shown: str) -> str:
    """The same for a database without tables and views."""
    return f"{shown} is empty: `tokentee db upgrade` makes it a ledger, once"


def no_tables(shown: str) -> str:
    """The same for a database that holds something else, or nothing."""
    return (
        f"{shown} is not a ledger of tokentee, and stays as it is: name another with --ledger or "
        "TOKENTEE_LEDGER"
    )


def _one_line(text: str) -> str:
    # libpq puts what it adds on a line of its own.
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return ". ".join(line.rstrip(".") for line in lines if line)


def _advised(shown: str, text: str, *, is_file: bool) -> str:
    return f"cannot open the ledger {shown}: {text}; {_advice(text, is_file=is_file)}"


def _advice(text: str, *, is_file: bool) -> str:
    if _is_damaged(text) and not _has_odd_value(text):
        return "move the file away and start again, or put a copy in its place"
    if _has_odd_value(text):
        return "a row holds what no recorder writes: give a period without it (--since)"
    if "readonly" in text or "unable to open" in text:
        return "name a file you can write to (ledger_url, TOKENTEE_LEDGER)"
    if _is_refused(text):
        return "name a role and a server that may do it: docs/operations.md lists the rights"
    if is_file:
        return "check that no process holds the file and that its disk has room"
    return "check that the server runs and the URL is right"


def _has_odd_value(text: str) -> bool:
    return "malformed JSON" in text or "decode to UTF-8" in text


def _is_refused(text: str) -> bool:
    """Whether PostgreSQL says that this role, or a standby, may not do it."""
    return any(word in text for word in ("permission denied", "must be owner", "read-only trans"))


def _is_damaged(text: str) -> bool:
    return "not a database" in text or "malformed" in text
