"""Database. The sums of one day, read from its requests.

The groups of an hour are read from the database; those of the day by provider, model and key, and
by each dimension alone, are added up from them here, so one pass over the requests makes all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.store.adding_up import added_up, charged_requests, is_overflow, whole
from ledger.store.schema.columns import Instant
from ledger.store.schema.sums import (
    ALONE,
    COUNTS,
    DAILY_DIMENSIONS,
    DIMENSIONS,
    EVERYTHING,
    FIGURES,
    SUMS,
    TIMES,
)
from ledger.store.schema.views import HOURLY
from ledger.store.scope import Scope
from ledger.store.tables import unpriced_lines

SUM_MAX = 9 * 10**18
"""The largest number that 64 bits hold."""
REPEATED = 2
"""From so many equal times on the average, times are kept with how often they occur."""

type Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsOfDay:
    """Rows of the tables `hourly_usage`, `daily`, `daily_by`, `hourly` and `unpriced_lines`."""

    by_hour: Sequence[Values]
    by_day: Sequence[Values]
    by_one: Sequence[Values]
    states: Sequence[Values]
    unpriced: Sequence[Values]


def read(connection: Connection, day: date) -> SumsOfDay:
    """The sums of the requests and exchanges of a day."""
    groups = list(_groups(connection, day))
    states = connection.execute(_states_of(day))
    return SumsOfDay(
        by_hour=[row for group in groups for row in _storable(group)],
        by_day=[{"day": day, **row} for group in _by_day(groups) for row in _storable(group)],
        by_one=[{"day": day, **row} for group in _by_one(groups) for row in _storable(group)],
        states=[{"day": day, **row._asdict()} for row in states],
        unpriced=[{"day": day, **row._asdict()} for row in connection.execute(_unpriced_of(day))],
    )


def _groups(connection: Connection, day: date) -> Iterator[Values]:
    """The groups of each hour; sums are whole numbers of any size."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    scope = Scope(since=begin, until=begin + timedelta(days=1))
    dialect = connection.dialect.name
    is_split = False
    try:
        rows = connection.execute(_question(scope, dialect, is_split=is_split)).all()
    except sa.exc.DBAPIError as error:
        if not is_overflow(error):
            raise
        is_split = True
        rows = connection.execute(_question(scope, dialect, is_split=is_split)).all()
    for row in rows:
        found = row._asdict()
        if is_split:
            found |= {name: whole(row, name, is_split=True) for name in SUMS}
            yield {name: found[name] for name in ("hour", *DIMENSIONS, *FIGURES)}
        elif dialect == "postgresql":
            # It sums to a numeric.
            yield found | {
                name: None if (value := found[name]) is None else int(value) for name in SUMS
            }
        else:
            yield found


def _question(scope: Scope, dialect: str, *, is_split: bool) -> sa.Select[Any]:
    e = charged_requests(scope, dialect)
    # PostgreSQL has no order of JSON.
    tags = sa.cast(e.c.tags, sa.Text).label("tags")
    dimensions = [e.c[name] for name in DIMENSIONS if name != "tags"]
    hour = _hour_of(e.c.opened_at, dialect)
    return (
        sa.select(
            hour.label("hour"), *dimensions, tags, *added_up(FIGURES, dialect, is_split=is_split)
        )
        .select_from(e)
        .group_by(hour, *dimensions, tags.element)
        .order_by(hour)
    )


def _by_day(groups: Sequence[Values]) -> list[Values]:
    """The groups by provider, model and key."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    times: dict[tuple[Any, ...], dict[str, list[str]]] = {}
    for group in groups:
        key = tuple(group[name] for name in DAILY_DIMENSIONS)
        into = found.get(key)
        if into is None:
            into = found[key] = dict(zip(DAILY_DIMENSIONS, key, strict=True))
            into |= {"key_hint": None} | dict.fromkeys(COUNTS, 0) | dict.fromkeys(SUMS)
            times[key] = {name: [] for name in TIMES}
        hints = (each for each in (into["key_hint"], group["key_hint"]) if each)
        into["key_hint"] = max(hints, default=None)
        for name in (*COUNTS, *SUMS):
            value = group[name]
            if value is not None:
                into[name] = value + (into[name] or 0)
        for name, texts in times[key].items():
            if text := group[name]:
                texts.append(text)
    for key, by_name in times.items():
        found[key] |= {name: " ".join(texts) or None for name, texts in by_name.items()}
    return list(found.values())


def _by_one(groups: Sequence[Values]) -> Iterator[Values]:
    """The groups by each dimension alone, added up column by column."""
    columns = {name: [group[name] for group in groups] for name in FIGURES}
    hints = [group["key_hint"] for group in groups]
    for dimension in ALONE:
        places: dict[str | None, list[int]] = defaultdict(list)
        for place, group in enumerate(groups):
            places[None if dimension == EVERYTHING else group[dimension]].append(place)
        for value, here in places.items():
            row: dict[str, Any] = {"dimension": dimension, "value": value, "key_hint": None}
            if dimension == "key_fingerprint":
                row["key_hint"] = max((hint for at in here if (hint := hints[at])), default=None)
            for name, column in columns.items():
                known = [found for at in here if (found := column[at]) is not None]
                if name in TIMES:
                    row[name] = _shortened(" ".join(known))
                else:
                    row[name] = sum(known) if known else 0 if name in COUNTS else None
            yield row


def _shortened(times: str) -> str | None:
    """The times of many requests, each with how often it occurs."""
    values = times.split()
    counts = Counter(values)
    if len(values) < REPEATED * len(counts):
        return times
    found = (f"{value}*{count}" if count > 1 else value for value, count in counts.items())
    return " ".join(found) or None


def _storable(group: Values) -> Iterator[Values]:
    """The group as rows of 64-bit numbers: an excess stands in further rows, without counts."""
    row = group
    while rest := {
        name: value - (SUM_MAX if value > 0 else -SUM_MAX)
        for name in SUMS
        if (value := row[name]) is not None and not -SUM_MAX <= value <= SUM_MAX
    }:
        yield {**row, **{name: SUM_MAX if row[name] > 0 else -SUM_MAX for name in rest}}
        row = {**row, **dict.fromkeys((*SUMS, *TIMES)), **dict.fromkeys(COUNTS, 0), **rest}
    yield row


def _hour_of(opened_at: sa.ColumnElement[Any], dialect: str) -> sa.ColumnElement[Any]:
    """The begin of the hour that a moment lies in."""
    if dialect == "postgresql":
        return sa.func.date_trunc("hour", opened_at, "UTC", type_=Instant())
    begin = sa.func.substr(sa.cast(opened_at, sa.Text), 1, 13)
    return sa.type_coerce(begin.op("||")(sa.literal_column("':00:00.000000Z'")), Instant())


def _states_of(day: date) -> sa.Select[Any]:
    """The counts of exchanges by state for each hour, from the view that counts them."""
    live = sa.table(
        "live_hourly",
        sa.column("stale_day", sa.Date),
        sa.column("hour", Instant),
        *(sa.column(name, sa.BigInteger) for name in HOURLY),
    )
    columns = [live.c[name] for name in ("hour", *HOURLY)]
    return sa.select(*columns).where(live.c.stale_day == day)


def _unpriced_of(day: date) -> sa.Select[Any]:
    """The lines without a price, from the view that finds them."""
    columns = [sa.column(each.name, each.type) for each in unpriced_lines.c if each.name != "day"]
    live = sa.table("live_unpriced", sa.column("stale_day", sa.Date), *columns)
    return sa.select(*(live.c[each.name] for each in columns)).where(live.c.stale_day == day)
