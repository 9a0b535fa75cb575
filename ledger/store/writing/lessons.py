"""Database. Lessons about an upstream, learnt from its traffic: read at the start, stored when they
are learnt."""

import sqlite3
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.model import door
from ledger.model.columns import TEXT_CHARACTERS_MAX
from ledger.model.learned import Learned
from ledger.store.schema.columns import instant_text
from ledger.store.tables import learned

_KEEP = (
    "INSERT INTO learned (origin, path, verdict, learned_at, expires_at) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (origin, path) DO UPDATE SET "
    "verdict = excluded.verdict, learned_at = excluded.learned_at, "
    "expires_at = excluded.expires_at"
)


def valid_at(engine: Engine, now: datetime) -> dict[tuple[str, str], Learned]:
    """The lessons that have not expired, by origin and path."""
    with engine.connect() as connection:
        rows = connection.execute(sa.select(learned).where(learned.c.expires_at > now))
        return {(row.origin, row.path): Learned(**row._mapping) for row in rows}


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
