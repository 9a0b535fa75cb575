"""Pure. Turns a driver's error into advice for the operator."""

import sqlalchemy as sa
from sqlalchemy.engine import URL

from ledger.store.engines import urls


def is_trouble(error: sa.exc.DBAPIError) -> bool:
    """Whether the database cannot be reached or written at all, whatever the statement."""
    text = str(error.orig)
    return isinstance(error, sa.exc.OperationalError) and not any(
        word in text for word in ("already exists", "no such", "near ", "does not exist")
    )


def not_opened(url: URL, error: sa.exc.DBAPIError) -> str:
    """One line for the operator, made from a driver's error."""
    # libpq puts what it adds on a line of its own.
    lines = [" ".join(line.split()) for line in str(error.orig).splitlines()]
    text = ". ".join(line.rstrip(".") for line in lines if line)
    if "not a database" in text or "malformed" in text:
        advice = "move the file away and start again, or put a copy in its place"
    elif "readonly" in text or "unable to open" in text:
        advice = "name a file you can write to (ledger_url, TOKENTEE_LEDGER)"
    elif url.drivername == "sqlite":
        advice = "check that no process holds the file and that its disk has room"
    else:
        advice = "check that the server runs and the URL is right"
    shown = urls.cut(text, urls.password_of(url))
    return f"cannot open the ledger {urls.shown(url)}: {shown}; {advice}"
