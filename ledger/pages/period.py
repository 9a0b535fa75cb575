"""Pure. A time span, the span before it, and the bars of its charts."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

DAY = timedelta(days=1)

HOURS_UP_TO = timedelta(hours=49)
"""Periods up to this length have bars of an hour: two days and a partial hour."""
DAYS_UP_TO = timedelta(days=124)
WEEKS_UP_TO = timedelta(days=800)

PRESETS = (("today", 1), ("7 days", 7), ("30 days", 30), ("90 days", 90))
"""Name -> whole days that end today, today included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From `since` up to, not including, `until`. None: from the ledger's first request; until
    now."""

    since: datetime | None
    until: datetime | None
    now: datetime

    @property
    def end(self) -> datetime:
        """The end of the period, at most now."""
        return self.now if self.until is None else min(self.until, self.now)

    @property
    def before(self) -> "Period | None":
        """The span of equal length just before it; None if the period has no beginning."""
        if self.since is None or self.end <= self.since:
            return None
        length = self.end - self.since
        return Period(since=self.since - length, until=self.since, now=self.now)

    def starting(self, first: datetime | None) -> "Period":
        """The same period with a beginning: its own, or the ledger's first request."""
        since = self.since if self.since is not None else first
        return Period(since=since, until=self.until, now=self.now)

    @property
    def bar(self) -> str:
        """hour, day, week or month: the span of one bar of a chart."""
        if self.since is None:
            return "month"
        length = self.end - self.since
        if length <= HOURS_UP_TO:
            return "hour"
        if length <= DAYS_UP_TO:
            return "day"
        return "week" if length <= WEEKS_UP_TO else "month"

    def bars(self) -> list[str]:
        """The name of every bar in order, empty ones included."""
        if self.since is None:
            return []
        step = timedelta(hours=1) if self.bar == "hour" else DAY
        at = self.since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        if self.bar != "hour":
            at = at.replace(hour=0)
        names: dict[str, None] = {}
        while at < self.end:
            names[
                bar_name(f"{at:%Y-%m-%d %H}" if self.bar == "hour" else f"{at:%Y-%m-%d}", self.bar)
            ] = None
            at += step
        return list(names)

    def __str__(self) -> str:
        end = self.end
        last = end - timedelta(microseconds=1)
        if self.since is None:
            return f"everything up to {_day(last)}"
        starts_at_midnight = (self.since.hour, self.since.minute) == (0, 0)
        ends_at_midnight = self.until is None or (end.hour, end.minute) == (0, 0)
        if not (starts_at_midnight and ends_at_midnight):
            return f"{_moment(self.since)} to {_moment(end)} UTC"
        if self.since.date() == last.date():
            return f"{_day(last)} UTC"
        same_year = self.since.year == last.year
        begin = f"{self.since.day} {self.since:%b}" if same_year else _day(self.since)
        return f"{begin} to {_day(last)} UTC"


def last_days(count: int, now: datetime) -> Period:
    """Whole days, today included."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Period(since=today - (count - 1) * DAY, until=None, now=now)


def bar_name(time: str, bar: str) -> str:
    """The bar that a day (`YYYY-MM-DD`) or an hour (`YYYY-MM-DD HH`) falls into; a week is named
    by its Monday."""
    if bar == "hour":
        return time
    if bar == "month":
        return time[:7]
    if bar == "week":
        day = date.fromisoformat(time[:10])
        return str(day - timedelta(days=day.weekday()))
    return time[:10]


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%b %Y}"


def _moment(moment: datetime) -> str:
    return f"{moment.day} {moment:%b %Y %H:%M}"
