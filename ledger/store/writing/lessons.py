"""Database. Lessons about an upstream, learnt from its traffic: read at the start, stored when they
are learnt."""

import contextlib
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ledger.model import door
from ledger.model.columns import TEXT_CHARACTERS_MAX
from ledger.model.learned import Learned
from ledger.store.engines import sqlite_file
from ledger.store.keys import instant_text
from ledger.store.processes.supervision import SetAside
from ledger.store.writing.unwritten import TROUBLE

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


class Lessons:
    """What a process has learnt, or read of others."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Learned] = {}
        """By origin and path, the newest last."""
        self.new: list[Learned] = []
        """On their way into the ledger."""
        self._since: datetime | None = None
        """Lessons of other processes that were learned before are known."""

    def remember(self, lesson: Learned) -> None:
        """Know a lesson, in place of the oldest if there are too many."""
        upstream = (lesson.origin, lesson.path)
        self.known.pop(upstream, None)
        self.known[upstream] = lesson
        while len(self.known) > KEPT_LESSONS_MAX:
            del self.known[next(iter(self.known))]

    def refresh(self, path: Path) -> None:
        """Read the lessons of other processes."""
        with (
            contextlib.suppress(*TROUBLE),
            contextlib.closing(sqlite_file.connect(path)) as connection,
        ):
            found = valid_at(connection, datetime.now(UTC), since=self._since)
            for upstream, lesson in found.items():
                known = self.known.get(upstream)
                if known is None or known.learned_at < lesson.learned_at:
                    self.remember(lesson)
            if found:
                self._since = max(each.learned_at for each in found.values()) - LESSON_LATE_MAX

    def store(self, connection: sqlite3.Connection, set_aside: SetAside) -> None:
        """Store the new ones, each in place of the one for the same origin and path, in one commit.
        What cannot be stored now is learnt again."""
        try:
            rows = [
                (
                    door.text_of(lesson.origin),
                    door.text_of(lesson.path, TEXT_CHARACTERS_MAX),
                    door.text_of(lesson.verdict),
                    instant_text(lesson.learned_at),
                    instant_text(lesson.expires_at),
                )
                for lesson in self.new
            ]
            with sqlite_file.writing(connection):
                connection.executemany(_KEEP, rows)
                connection.execute(_FORGET, (KEPT_LESSONS_MAX,))
        except sqlite3.OperationalError:
            return
        except Exception as error:  # noqa: BLE001  # a lesson must not end the writer
            for lesson in self.new:
                set_aside.add(lesson, error)


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
