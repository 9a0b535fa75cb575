"""Edge (environment). Where a ledger lives: its URL, its file, and the URL without secrets for
display.

The path of an ordinary SQLite ledger is read without SQLAlchemy, which a proxy does not import for
such a ledger.
"""

from __future__ import annotations

import os
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.model.errors import LedgerError, WrongCallError
from ledger.settings import places
from ledger.text.extras import needs
from ledger.text.passwords import mistyped_url, without_passwords

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

SHOWN_CHARACTERS_MAX = 300
"""Characters that an error repeats of a text."""
PORT_MAX = 65_535
_ORDINARY = re.compile(r"(?:sqlite(?:\+pysqlite)?:///)?([\w.~/+-]+)", re.ASCII)
"""A path without characters that a URL escapes."""


def default_url() -> str:
    """`TOKENTEE_LEDGER`, or a SQLite file in the user's data directory."""
    if url := os.environ.get("TOKENTEE_LEDGER"):
        return url
    return f"sqlite:///{places.data_directory() / 'ledger.sqlite3'}"


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite ledger, None for a shared ledger; LedgerError if it is no ledger's
    URL."""
    ordinary = _ordinary_path(url)
    path = Path(ordinary).expanduser() if ordinary else file_of(parse_url(url))
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
        return parsed.set(drivername="sqlite")
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise LedgerError(needs("psycopg"))
        return _with_its_password(parsed.set(drivername="postgresql+psycopg"))
    raise WrongCallError(
        f"a ledger cannot live in {parsed.drivername!r}: {shown(parsed)}; "
        "use sqlite:///… or postgresql+psycopg://…"
    )


def shown(url: URL | str) -> str:
    """The URL without its password, for people."""
    if isinstance(url, str) and (ordinary := _ordinary_path(url)):
        return f"sqlite:///{ordinary}"
    parsed = parse_url(url)
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
    return Path(url.database).expanduser()


def _with_its_password(url: URL) -> URL:
    """The URL with a `?password=` moved to the password's place, where `shown` redacts it."""
    given = url.query.get("password")
    if not isinstance(given, str):
        return url
    return url.set(password=url.password or given).difference_update_query(["password"])


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
