"""Pure. Words for periods: `2026-11`, `2026-11-01`, `last-month`, `this-week`, `7d`, ISO times.

Days are calendar days, in UTC or in the zone of the moment that they are counted from (a
`ZoneInfo`): `7d` are seven of them, today included, on pages and in commands alike. `12h` is
rolling; so is `30x24h`, thirty times 24 hours that end now.

A word names a span of time. For an option that takes one moment (`--since`, `--until`) it means the
first instant of that span, so `--since last-month --until this-month` is exactly the last month.
Weeks begin on Monday, as in ISO 8601.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from ledger.model.errors import WrongCallError
from ledger.text.hints import suggestion

NAMED = (
    *("now", "today", "yesterday", "this-week", "last-week", "this-month", "last-month"),
    *("this-year", "last-year"),
)
ACCEPTED = (
    "2026-11, 2026-11-01, 2026-11-01T12:00:00Z, 12h, 30d, 1w, 30x24h, today, yesterday, "
    "this-week, last-week, this-month or last-month"
)
"""The accepted words, as an error and `--help` list them."""

INSTANT = timedelta(microseconds=1)
"""The step in which moments are kept."""
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(weeks=1)

_AGO = re.compile(r"(\d{1,6})-?(m|h|d|w|x24h)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks", "x24h": "days"}
_YEAR = re.compile(r"\d{4}")
_MONTH = re.compile(r"(\d{4})-(\d{2})")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}")
YEAR_MIN, YEAR_MAX = 1970, 9000
"""Nothing was recorded before, and what compares with a period may move it by years."""
_WEEK = re.compile(r"\d{4}-?W\d{2}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A span of time; `end` is not part of it."""

    start: datetime
    end: datetime


def moment(text: str, now: datetime) -> datetime:
    """The first instant of the span that the word names, in UTC. LedgerError for an unknown
    word."""
    return span(text, now).start.astimezone(UTC)


def zone_of(name: str) -> ZoneInfo:
    """A zone by its name in the IANA database. LedgerError for an unknown one."""
    if name not in _zones():
        hint = suggestion(name, sorted(_zones()))
        raise WrongCallError(f"not a time zone: {name[:60]!r}{hint}; write Europe/Berlin or UTC")
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())  # it reads 600 files: 10 ms


def zone_in(moment: datetime) -> tzinfo:
    """The zone whose days a moment is in: its own if it was named, else UTC."""
    return moment.tzinfo if isinstance(moment.tzinfo, ZoneInfo) else UTC


def span(text: str, now: datetime) -> TimeSpan:
    """The span that the word names: a day, week, month or year; `7d` ends with today, `12h`,
    `30x24h` and a single moment end now."""
    now = now.astimezone(zone_in(now))
    word = re.sub(r"[\s_]+", "-", text.strip().lower())
    try:
        found = _named(word, now) or _dated(text.strip(), now)
    except (OverflowError, ValueError):
        found = None
    if found is None or found.start.year < YEAR_MIN or found.end.year > YEAR_MAX:
        hint = suggestion(word, NAMED)
        raise WrongCallError(f"not a date or period: {text[:60]!r}{hint}; write {ACCEPTED}")
    return found


def hour_of(at: datetime) -> TimeSpan:
    """The hour that a moment is in."""
    start = at.astimezone(zone_in(at)).replace(minute=0, second=0, microsecond=0)
    end = start.astimezone(UTC) + timedelta(hours=1)
    return TimeSpan(start=start, end=end.astimezone(start.tzinfo))


def day_of(at: datetime) -> TimeSpan:
    """The day that a moment is in. With a named zone it may have 23 or 25 hours."""
    start = at.astimezone(zone_in(at)).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return TimeSpan(start=start, end=start + DAY)


def week_of(at: datetime) -> TimeSpan:
    """The ISO week, from Monday, that a moment is in."""
    day = day_of(at).start
    start = day - DAY * day.weekday()
    return TimeSpan(start=start, end=start + WEEK)


def month_of(at: datetime) -> TimeSpan:
    """The calendar month that a moment is in."""
    start = day_of(at).start.replace(day=1)
    # The 28th is in every month, and four days after it is the next one.
    return TimeSpan(start=start, end=(start.replace(day=28) + 4 * DAY).replace(day=1))


def year_of(at: datetime) -> TimeSpan:
    """The calendar year that a moment is in."""
    start = month_of(at).start.replace(month=1)
    return TimeSpan(start=start, end=start.replace(year=start.year + 1))


SPANS = {"hour": hour_of, "day": day_of, "week": week_of, "month": month_of, "year": year_of}
"""Name of a kind of span -> the span of that kind around a moment."""


def _named(word: str, now: datetime) -> TimeSpan | None:
    if ago := _AGO.fullmatch(word):
        length = timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        if ago[2] in ("d", "w"):
            today = day_of(now)
            return TimeSpan(start=min(today.end - length, today.start), end=today.end)
        return TimeSpan(start=(now.astimezone(UTC) - length).astimezone(now.tzinfo), end=now)
    if word not in NAMED:
        return None
    if word == "now":
        return TimeSpan(start=now, end=now)
    if word in ("today", "yesterday"):
        return day_of(now if word == "today" else now - DAY)
    which, _, kind = word.partition("-")
    current = SPANS[kind](now)
    return current if which == "this" else SPANS[kind](current.start - timedelta(microseconds=1))


def _dated(text: str, now: datetime) -> TimeSpan | None:
    if _YEAR.fullmatch(text):
        return year_of(datetime(int(text), 1, 1, tzinfo=zone_in(now)))
    if month := _MONTH.fullmatch(text):
        return month_of(datetime(int(month[1]), int(month[2]), 1, tzinfo=zone_in(now)))
    found = datetime.fromisoformat(text)
    zone = zone_in(now)
    found = found.replace(tzinfo=zone) if found.tzinfo is None else found.astimezone(zone)
    if _DATE.fullmatch(text):
        return day_of(found)
    if _WEEK.fullmatch(text):
        return week_of(found)
    return TimeSpan(start=found, end=max(found, now))
