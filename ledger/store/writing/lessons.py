"""Database. Lessons about an upstream, learnt from its traffic: read at the start, stored when they
are learnt."""

import sqlite3
from datetime import datetime

from ledger.model import door
from ledger.model.columns import TEXT_CHARACTERS_MAX
from ledger.model.learned import Learned
from ledger.store.schema.instants import instant_text

_VALID = "SELECT origin, path, verdict, learned_at, expires_at FROM learned WHERE expires_at > ?"
_KEEP = (
    "INSERT INTO learned (origin, path, verdict, learned_at, expires_at) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (origin, path) DO UPDATE SET "
    "verdict = excluded.verdict, learned_at = excluded.learned_at, "
    "expires_at = excluded.expires_at"
)


def valid_at(connection: sqlite3.Connection, now: datetime) -> dict[tuple[str, str], Learned]:
    """The lessons that have not expired, by origin and path."""
    return {
        (origin, path): Learned(
            origin=origin,
            path=path,
            verdict=verdict,
            learned_at=datetime.fromisoformat(learned_at),
            expires_at=datetime.fromisoformat(expires_at),
        )
        for origin, path, verdict, learned_at, expires_at in connection.execute(
            _VALID, (instant_text(now),)
        )
    }


def keep(connection: sqlite3.Connection, lesson: Learned) -> None:
    """Insert a lesson, or replace the one for the same origin and path."""
    connection.execute(
        _KEEP,
        (
            door.text_of(lesson.origin),
            door.text_of(lesson.path, TEXT_CHARACTERS_MAX),
            door.text_of(lesson.verdict),
            instant_text(lesson.learned_at),
            instant_text(lesson.expires_at),
        ),
    )
