"""Pure. The key of an exchange in a database, moments of days and as SQLite stores them, and how
a statement takes many keys."""

from collections.abc import Sequence
from datetime import UTC, date, datetime

import orjson

type Key = tuple[str, str]
"""opened_at as text, and the exchange's id."""


def instant_text(moment: datetime) -> str:
    """A moment as text of fixed width, in UTC. With a `T`, a comparison with
    `datetime('now', '-1 hour')` would be wrong."""
    # Not with strftime, which does not pad years on some systems, so the text would not sort.
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'microseconds')}Z"


def midnight(day: date) -> datetime:
    """The begin of a UTC day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def parameters(keys: Sequence[Key]) -> dict[str, str]:
    """The parameter of `chosen`: one JSON text, however many keys there are."""
    return {"keys": orjson.dumps(keys).decode()}


def chosen(dialect: str) -> str:
    """A query for the opened_at and the id of each key."""
    if dialect == "sqlite":
        return "SELECT value ->> 0, value ->> 1 FROM json_each(:keys)"
    return (
        "SELECT (k ->> 0)::timestamptz, k ->> 1 FROM jsonb_array_elements(CAST(:keys AS jsonb)) k"
    )
