"""Pure. A time span, the span before it, and the bars of its charts.

Its days are those of the zone of `now`: a named one (`ZoneInfo`), or UTC.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from ledger.text.period import DAY, INSTANT, hour_of, moment, zone_in

HOURS_UP_TO = timedelta(hours=49)
"""Periods up to this length have bars of an hour: two days and a partial hour."""
DAYS_UP_TO = timedelta(days=124)
WEEKS_UP_TO = timedelta(days=800)

PRESETS = (
    ("today", (("days", "1"),)),
    ("7 days", (("days", "7"),)),
    ("30 days", (("days", "30"),)),
    ("90 days", (("days", "90"),)),
    ("this month", (("since", "this-month"),)),
    ("last month", (("since", "last-month"), ("until", "this-month"))),
)
"""Name -> the words of a page's address. `days`: whole days that end today, today included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From `since` up to, not including, `until`, both in UTC. None: from the ledger's first
    request; until now."""

    since: datetime | None
    until: datetime | None
    now: datetime

    @property
    def zone(self) -> ZoneInfo | None:
        """Whose days the period has; None: UTC."""
        zone = zone_in(self.now)
        return zone if isinstance(zone, ZoneInfo) and zone.key != "UTC" else None

    @property
    def zone_name(self) -> str:
        """`Europe/Berlin`, `UTC`."""
        return self.zone.key if self.zone else "UTC"

    def local(self, moment: datetime) -> datetime:
        """A moment on the clock of the zone."""
        return moment.astimezone(self.zone or UTC)

    @property
    def end(self) -> datetime:
        """The end of the period, at most now; in UTC."""
        now = self.now.astimezone(UTC)
        return now if self.until is None else min(self.until, now)

    @property
    def length(self) -> timedelta:
        """How long the period is on the clock of its zone, where each day has 24 hours; if that is
        less than a day, the time that passes. The period must have a beginning."""
        assert self.since is not None
        on_clock = self.local(self.end) - self.local(self.since)
        return on_clock if on_clock >= DAY else self.end - self.since

    @property
    def before(self) -> "Period | None":
        """The span of equal length just before it; None if the period has no beginning."""
        if self.since is None or self.end <= self.since:
            return None
        if self.length < DAY:
            since = self.since - self.length
        else:
            since = (self.local(self.since) - self.length).astimezone(UTC)
        return Period(since=since, until=self.since, now=self.now)

    def options(self) -> str:
        """The period as options of a command."""
        words = ""
        for name, at in (("since", self.since), ("until", self.until)):
            if at is None:
                continue
            # A day of the zone, or any other moment in UTC.
            local = self.local(at)
            if local.time() == time():
                words += f" --{name} {local:%Y-%m-%d}"
            else:
                words += f" --{name} {at.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"
        return words + self.zone_option()

    def zone_option(self) -> str:
        """What a command needs to mean the days of this period's zone; nothing for UTC."""
        return "" if self.zone_name == "UTC" else f" --timezone {self.zone_name}"

    @property
    def bar(self) -> str:
        """hour, day, week or month: the span of one bar of a chart."""
        if self.since is None:
            return "month"
        length = self.length
        if length <= HOURS_UP_TO:
            return "hour"
        if length <= DAYS_UP_TO:
            return "day"
        return "week" if length <= WEEKS_UP_TO else "month"

    def bars(self) -> list[str]:
        """The name of every bar in order, empty ones included."""
        if self.since is None or self.end <= self.since:
            return []
        bar, names = self.bar, dict[str, None]()
        if bar == "hour":
            at = hour_of(self.local(self.since)).start.astimezone(UTC)
            while at < self.end:
                names[f"{self.local(at):%Y-%m-%d %H}"] = None
                at += timedelta(minutes=30)  # offsets change by this much, too
            return list(names)
        day, last = self.local(self.since).date(), self.local(self.end - INSTANT).date()
        while day <= last:
            names[bar_name(str(day), bar)] = None
            day += DAY
        return list(names)

    def __str__(self) -> str:
        end, last = self.local(self.end), self.local(self.end - INSTANT)
        zone = self.zone_name
        if self.since is None:
            return f"everything up to {_day(last)} {zone}"
        since = self.local(self.since)
        starts_at_midnight = (since.hour, since.minute) == (0, 0)
        ends_at_midnight = self.until is None or (end.hour, end.minute) == (0, 0)
        if not (starts_at_midnight and ends_at_midnight):
            return f"{_day(since)} {since:%H:%M} to {_day(end)} {end:%H:%M} {zone}"
        if since.date() == last.date():
            return f"{_day(last)} {zone}"
        begin = f"{since.day} {since:%b}" if since.year == last.year else _day(since)
        return f"{begin} to {_day(last)} {zone}"


def last_days(count: int, now: datetime) -> Period:
    """Whole days, today included."""
    return Period(since=moment(f"{count}d", now), until=None, now=now)


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
