"""What the ledger says, read with plain SQL from outside, as its users would."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

type Row = dict[str, Any]

WAIT_SECONDS_MAX = 60

_EXCHANGES = """
SELECT exchanges.*, readings.*, exchanges.id AS id, exchanges.opened_at AS opened_at,
       (SELECT count(*) FROM readings AS r WHERE r.exchange_id = exchanges.id) AS reading_count
FROM exchanges LEFT JOIN readings ON readings.exchange_id = exchanges.id
ORDER BY exchanges.opened_at, exchanges.id
"""


def query(ledger: Path, sql: str, *values: object) -> list[Row]:
    """Rows of any query. A ledger that is not there yet has none."""
    if not ledger.exists():
        return []
    with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql, values)]


@contextmanager
def locked(ledger: Path) -> Iterator[None]:
    """Another connection holds the lock for writing."""
    with closing(sqlite3.connect(ledger, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def exchanges(ledger: Path) -> list[Row]:
    """Every exchange with its reading; booleans and tags as values."""
    rows = query(ledger, _EXCHANGES)
    for row in rows:
        row["tags"] = json.loads(row["tags"] or "{}")
        for name in ("usage_asked", "usage_injected", "usage_stripped", "streamed", "resent"):
            row[name] = None if row[name] is None else bool(row[name])
    return rows


def by_tag(ledger: Path, tag: str) -> dict[str, list[Row]]:
    """Exchanges by the value of a tag that the test gave them."""
    found: dict[str, list[Row]] = {}
    for row in exchanges(ledger):
        found.setdefault(row["tags"].get(tag, ""), []).append(row)
    return found


def eventually(is_so: Callable[[], bool], seconds_max: float = WAIT_SECONDS_MAX) -> bool:
    """Whether something comes true that another process does in its own time.

    Only for ends that the client itself brought about: there is nothing else to wait for. An end
    that the client has seen is in the ledger by then, and is read without this.
    """
    pause = threading.Event()
    bound = time.monotonic() + seconds_max
    while not is_so():
        if time.monotonic() > bound:
            return False
        pause.wait(0.01)
    return True


def open_count(ledger: Path) -> int:
    """How many exchanges are not settled."""
    (row,) = query(ledger, "SELECT count(*) AS n FROM exchanges WHERE state = 'open'")
    return int(row["n"])
