"""Pure. The one spelling of durations on screens, pages and in messages."""

from datetime import datetime, timedelta
from decimal import Decimal

MILLISECOND = timedelta(milliseconds=1)


def duration_text(milliseconds: int) -> str:
    """A duration at a glance, in two digits or whole units: `540 ms`, `1.2 s`, `42 s`, `3.5 min`,
    `42 min`, `2 h 05 min`, `3 d 4 h`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = Decimal(milliseconds) / 1000
    if seconds < 120:
        return f"{_two_digits(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{_two_digits(seconds / 60)} min"
    hours = round(seconds / 3600)
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{hours // 24} d {hours % 24} h"


def seconds_text(seconds: float) -> str:
    """The same, of seconds."""
    return duration_text(round(seconds * 1000))


def exact_duration_text(milliseconds: int) -> str:
    """Every digit, where one request is explained: `12,345 ms`."""
    return f"{milliseconds:,} ms"


def pair_text(middle: int, high: int) -> str:
    """Two durations in milliseconds, in the unit of the second: `230/880 ms`, `0.88/12 s`."""
    if high < 1000:
        return f"{middle}/{high} ms"
    shown = [_two_digits(Decimal(each) / 1000) for each in (middle, high)]
    return f"{shown[0]}/{shown[1]} s"


def until_text(moment: datetime | None, now: datetime) -> str:
    """How long until a moment: `2 h 05 min`, `now`; nothing if it is not known."""
    if moment is None:
        return ""
    return duration_text((moment - now) // MILLISECOND) if moment >= now else "now"


def _two_digits(number: Decimal) -> str:
    """`0.042`, `0.42`, `4.2`, `42`, `420`; a whole number without decimals."""
    places = max(0, 1 - number.adjusted()) if number else 0
    text = f"{number:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
