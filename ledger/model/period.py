"""Pure. Words for moments: `2026-11-01`, `2026-11-01T12:00:00Z`, `7d`, `today`."""

import re
from datetime import UTC, datetime, timedelta

from ledger.model.errors import LedgerError

_AGO = re.compile(r"(\d{1,6})\s*(m|h|d|w)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, now: datetime) -> datetime:
    """The moment in UTC; a date is its first instant, without an offset it is UTC."""
    word = text.strip().lower()
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if word in ("now", "today", "yesterday"):
        return {"now": now, "today": today, "yesterday": today - timedelta(days=1)}[word]
    if ago := _AGO.fullmatch(word):
        try:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            raise _unknown(text) from None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _unknown(text) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _unknown(text: str) -> LedgerError:
    return LedgerError(
        f"not a moment: {text[:60]!r}; write 2026-11-01, 2026-11-01T12:00:00Z, 24h, 7d or today"
    )
