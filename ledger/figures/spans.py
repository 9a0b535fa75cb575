"""Database. Which parts of a period have sums, and which must be added up from requests.

Days that are over have stored sums, except those written to since (`stale_days`). Stale days, days
that are not over and the cut ends of a period are added up from requests. The spans of an answer
are adjacent and cover the period once, so their sum is exact.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.store import db
from ledger.store.keys import midnight
from ledger.store.scope import Scope, within
from ledger.store.tables import exchanges, stale_days
from ledger.text.period import DAY

STALE_SPANS_MAX = 20
"""Each is a subquery of one statement. With more, the closest ones are merged into one span, with
the days between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of time. None: unbounded on that side."""

    since: datetime | None
    until: datetime | None
    has_sums: bool


def spans(
    connection: Connection, since: datetime | None, until: datetime | None, *, step: timedelta
) -> list[Span]:
    """The spans of a period, in order. `step`: the sums are per hour or per day."""
    whole = [Span(since=since, until=until, has_sums=False)]
    kept = db.noted(connection, "rolled_until")
    if kept is None:
        return whole
    rolled = datetime.fromisoformat(kept).astimezone(UTC)
    first = None if since is None else _up(since, step)
    last = rolled if until is None else min(rolled, _down(until, step))
    if first is not None and first >= last:
        return whole
    found: list[Span] = []

    def add(start: datetime | None, end: datetime | None, *, has_sums: bool) -> None:
        if start is not None and end is not None and start >= end:
            return
        if found and not has_sums and not found[-1].has_sums:
            start = found.pop().since
        found.append(Span(since=start, until=end, has_sums=has_sums))

    if since is not None and first is not None:
        add(since, first, has_sums=False)
    at = first
    for begin, end in _stale(connection, first, last):
        add(at, begin, has_sums=True)
        add(begin, end, has_sums=False)
        at = end
    add(at, last, has_sums=True)
    add(last, until, has_sums=False)
    return found


def stale_count(connection: Connection) -> int:
    """Days that are over and have no stored sums."""
    return connection.execute(sa.select(sa.func.count()).select_from(stale_days)).scalar_one()


def extent(connection: Connection, scope: Scope) -> tuple[datetime | None, datetime | None]:
    """The first and the last exchange of the period: two lookups at the ends of the primary key."""
    at = exchanges.c.opened_at
    found: list[datetime | None] = [
        connection.scalar(sa.select(at).where(*within(scope, at)).order_by(order).limit(1))
        for order in (at, at.desc())
    ]
    return found[0], found[1]


def _stale(
    connection: Connection, first: datetime | None, last: datetime
) -> list[tuple[datetime, datetime]]:
    """The spans of stale days within the bounds of the sums, consecutive days as one. At most
    `STALE_SPANS_MAX` spans: the closest ones are merged."""
    where = [stale_days.c.day < _up(last, DAY).date()]
    if first is not None:
        where.append(stale_days.c.day >= first.date())
    days = connection.scalars(
        sa.select(stale_days.c.day).where(*where).order_by(stale_days.c.day)
    ).all()
    by_gap = sorted(range(1, len(days)), key=lambda at: days[at] - days[at - 1])
    begins = {0, *(at for at in by_gap[1 - STALE_SPANS_MAX :] if days[at] - days[at - 1] > DAY)}
    found: list[tuple[datetime, datetime]] = []
    for at, day in enumerate(days):
        begin = midnight(day) if at in begins else found.pop()[0]
        found.append((begin, midnight(day + DAY)))
    return [(begin if first is None else max(begin, first), min(end, last)) for begin, end in found]


def _down(moment: datetime, step: timedelta) -> datetime:
    """The hour or day that a moment lies in."""
    moment = moment.astimezone(UTC)
    hour = 0 if step == DAY else moment.hour
    return moment.replace(hour=hour, minute=0, second=0, microsecond=0)


def _up(moment: datetime, step: timedelta) -> datetime:
    begin = _down(moment, step)
    return begin if begin == moment else begin + step
