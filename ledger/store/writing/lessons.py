"""Database. Lessons about an upstream, learnt from its traffic: read at the start, stored when they
are learnt."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from ledger.model import door
from ledger.model.columns import TEXT_CHARACTERS_MAX
from ledger.model.learned import Learned
from ledger.store.engines import sqlite_file
from ledger.store.keys import instant_text

KEPT_LESSONS_MAX = 1_000
"""Upstreams and paths that are remembered, in memory and in the ledger, the newest. A client with
an upstream of its own can invent paths without end."""
LESSON_LATE_MAX = timedelta(minutes=1)
"""A lesson may be committed so much later than it was learned."""
_VALID = (
    "SELECT origin, path, verdict, learned_at, expires_at FROM learned "
    "WHERE expires_at > ? AND learned_at > ? ORDER BY learned_at DESC LIMIT ?"
)
_FORGET = (
    "DELETE FROM learned WHERE (origin, path) IN "
    "(SELECT origin, path FROM learned ORDER BY learned_at DESC LIMIT -1 OFFSET ?)"
)
_KEEP = (
    "INSERT INTO learned (origin, path, verdict, learned_at, expires_at) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (origin, path) DO UPDATE SET "
    "verdict = excluded.verdict, learned_at = excluded.learned_at, "
    "expires_at = excluded.expires_at"
)


def valid_at(
    connection: sqlite3.Connection, now: datetime, *, since: datetime | None = None
) -> dict[tuple[str, str], Learned]:
    """The lessons that have not expired, by origin and path, the oldest first; `since`: only those
    that were learned later."""
    after = "" if since is None else instant_text(since)
    found = connection.execute(_VALID, (instant_text(now), after, KEPT_LESSONS_MAX)).fetchall()
    return {
        (origin, path): Learned(
            origin=origin,
            path=path,
            verdict=verdict,
            learned_at=datetime.fromisoformat(learned_at),
            expires_at=datetime.fromisoformat(expires_at),
        )
        for origin, path, verdict, learned_at, expires_at in reversed(found)
    }


def keep(connection: sqlite3.Connection, lessons: Sequence[Learned]) -> None:
    """Insert lessons, each in place of the one for the same origin and path, in one commit."""
    rows = [
        (
            door.text_of(lesson.origin),
            door.text_of(lesson.path, TEXT_CHARACTERS_MAX),
            door.text_of(lesson.verdict),
            instant_text(lesson.learned_at),
            instant_text(lesson.expires_at),
        )
        for lesson in lessons
    ]
    with sqlite_file.writing(connection):
        connection.executemany(_KEEP, rows)
        connection.execute(_FORGET, (KEPT_LESSONS_MAX,))
