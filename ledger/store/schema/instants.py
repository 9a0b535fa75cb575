"""Pure. Moments as SQLite stores them."""

from datetime import UTC, datetime


def instant_text(moment: datetime) -> str:
    """A moment as text of fixed width, in UTC. With a `T`, a comparison with
    `datetime('now', '-1 hour')` would be wrong."""
    # Not with strftime, which does not pad years on some systems, so the text would not sort.
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'microseconds')}Z"
