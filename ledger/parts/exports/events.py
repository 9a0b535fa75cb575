"""Database. Requests as billing events: files of CloudEvents 1.0, one JSON document a line, that
add up to the ledger's total; or of AUDR records (`audr.py`), whose corrections state all again.

A request is one event. If it counts otherwise later (a fuller reading, a new price, a duplicate
that was found), the next export writes the difference, which names the event that it corrects.

What a cursor has told of each request is in the ledger (`meta`), a value for each day. The events
of a file are kept there too, in the same transaction, until the file is complete. So a run that
was killed ends with the same file under the same name, whatever was recorded since.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import batched
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.figures.sum_query import extent
from ledger.model.errors import LedgerError, WrongCallError
from ledger.model.money import usd
from ledger.parts.exports import audr
from ledger.parts.exports.day_files import ExportedFile, replacing
from ledger.store import db
from ledger.store.keys import midnight
from ledger.store.scope import Scope, as_text, requests, snapshot, within
from ledger.store.tables import exchanges
from ledger.text.period import DAY

FILE_EVENTS_MAX = 10_000
"""Events of one file, which are in memory at once: about 10 MB."""
NAME = re.compile("[a-z0-9][a-z0-9-]{0,31}")
SOURCE = "tokentee"
RECORDED, CORRECTED = "tokentee.usage.recorded", "tokentee.usage.corrected"
FIGURES = (
    *("cost_picousd", "list_value_picousd", "input_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "output_tokens", "reasoning_tokens"),
)
"""What a correction states the difference of."""
FACTS = (
    *("provider", "model", "operation", "service_tier", "billing", "usage_source", "outcome"),
    *("key_fingerprint", "account", "session_id", "project", "git_branch", "agent", "end_user"),
    "tags",
)

type Told = dict[str, list[Any]]
"""Id of a request -> its last event, and the figures that all of its events add up to."""


def export_events(
    engine: Engine, directory: Path, cursor: str, scope: Scope, environment: str | None = None
) -> Iterator[ExportedFile]:
    """Write what a cursor has not told yet; yields each file when it is complete. LedgerError for a
    name that is none, for conditions on requests, or while another export has the cursor.
    `environment`: write AUDR records, of requests that ran there, with cursors of their own."""
    if not NAME.fullmatch(cursor):
        raise WrongCallError(f"--cursor {cursor[:60]!r}: up to 32 of a-z, 0-9 and -")
    if scope.only:
        raise WrongCallError("events take no --only: their cursor is for the whole ledger")
    key = f"{'audr' if environment else 'events'}/{cursor}"
    yield from _write_pending(engine, directory, cursor, key)
    with snapshot(engine) as connection:
        first, last = extent(connection, scope)
    day = first and midnight(first.date())
    while day is not None and last is not None and day <= last:
        with snapshot(engine) as connection:
            number = int(db.noted(connection, key) or 0)
            kept = db.noted(connection, f"{key}/{day:%Y-%m-%d}")
            told: Told = json.loads(kept or "{}")
            events = list(_events(connection, scope, day, told, environment))
        for some in batched(events, FILE_EVENTS_MAX):
            number += 1
            told |= {request: figures for request, _, figures in some}
            lines = "".join(f"{json.dumps(event)}\n" for _, event, _ in some)
            with db.writing(engine) as connection:
                if int(db.noted(connection, key) or 0) != number - 1:
                    raise LedgerError(f"another export of the cursor {cursor} is running")
                db.note(connection, key, str(number))
                db.note(connection, f"{key}/pending", lines)
                db.note(connection, f"{key}/{day:%Y-%m-%d}", json.dumps(told))
            yield from _write_pending(engine, directory, cursor, key)
        day += DAY


def _write_pending(
    engine: Engine, directory: Path, cursor: str, key: str
) -> Iterator[ExportedFile]:
    """The file of the last transaction, if nobody has noted that it is complete."""
    with snapshot(engine) as connection:
        number = int(db.noted(connection, key) or 0)
        lines = db.noted(connection, f"{key}/pending")
    if lines is None:
        return
    suffix = "audr.jsonl" if key.startswith("audr/") else "jsonl"
    path = directory / f"{cursor}-{number:08}.{suffix}"
    with replacing(path) as part, part.open("w", encoding="ascii") as file:
        file.write(lines)
    with db.writing(engine) as connection:
        db.note(connection, f"{key}/pending", None)
    yield ExportedFile(path, lines.count("\n"))


def _events(
    connection: Connection, scope: Scope, day: datetime, told: Told, environment: str | None
) -> Iterator[tuple[str, dict[str, Any], list[Any]]]:
    """Request, event and what is told of it then, of a day's events that were not told."""

    def made(
        row: Mapping[Any, Any], figures: list[int | None], before: list[Any] | None
    ) -> tuple[str, dict[str, Any], list[Any]]:
        if environment is None:
            return row["id"], *_event(row, figures, before)
        amounts = dict(zip(FIGURES, figures, strict=True))
        record = audr.record_of(row, amounts, before[0] if before else None, environment)
        return row["id"], record, [record["record_id"], *figures]

    columns = (as_text(requests.c[name]).label(name) for name in (*FACTS, *FIGURES))
    counted: set[str] = set()
    query = sa.select(requests.c.id, requests.c.opened_at, requests.c.settled_at, *columns)
    for row in connection.execute(
        query.where(
            requests.c.outcome != "refused",
            *_of_day(requests.c.opened_at, day),
            *within(scope, requests.c.opened_at),
        ).order_by(requests.c.opened_at, requests.c.id)
    ).mappings():
        counted.add(row["id"])
        figures = [None if row[name] is None else int(row[name]) for name in FIGURES]
        before = told.get(row["id"])
        if before is None or before[1:] != figures:
            yield made(row, figures, before)
    # What is in the ledger and does not count any more; what retention dropped stays as told.
    e = exchanges.c
    for row in connection.execute(
        sa.select(
            *(e.id, e.opened_at, e.settled_at, e.provider, e.operation, e.session_id),
            sa.func.coalesce(e.response_model, e.request_model).label("model"),
            as_text(e.tags).label("tags"),
        ).where(
            e.duplicate_of.is_not(None), *_of_day(e.opened_at, day), *within(scope, e.opened_at)
        )
    ).mappings():
        before = None if row["id"] in counted else told.get(row["id"])
        if before is not None and any(before[1:]):
            yield made(row, [0 if value else value for value in before[1:]], before)


def _of_day(at: sa.ColumnElement[datetime], day: datetime) -> list[sa.ColumnElement[bool]]:
    return [at >= day, at < day + timedelta(days=1)]


def _event(
    row: Mapping[Any, Any], figures: list[int | None], before: list[Any] | None
) -> tuple[dict[str, Any], list[Any]]:
    """The event, and what is told of the request with it. Its id is a digest of the figures and of
    the event before it, so it is the same whenever it is written."""
    corrects = before[0] if before else None
    content = json.dumps([row["id"], corrects, figures]).encode()
    event_id = hashlib.blake2b(content, digest_size=16).hexdigest()
    amounts = dict(zip(FIGURES, figures, strict=True))
    if before:
        for name, value in zip(FIGURES, before[1:], strict=True):
            if value is not None or amounts[name] is not None:
                amounts[name] = (amounts[name] or 0) - (value or 0)
    cost = usd(amounts["cost_picousd"])
    facts = {name: row.get(name) for name in FACTS}
    facts["tags"] = json.loads(facts["tags"] or "{}")
    event = {
        "specversion": "1.0",
        "id": event_id,
        "source": SOURCE,
        "type": CORRECTED if before else RECORDED,
        "subject": row["id"],
        "time": (row["settled_at"] or row["opened_at"]).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": {
            **facts,
            "corrects": corrects,
            "cost_usd": None if cost is None else f"{cost:.12f}",
            **amounts,
        },
    }
    return event, [event_id, *figures]
