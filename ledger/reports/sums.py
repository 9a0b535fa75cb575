"""Database. A report out of the sums of days, where these can answer it.

`daily` holds what each day that is over adds up to, by provider, model and key; the view
`live_daily` adds up the days that have no sums, today among them. A report by these, by day, week
or month, or by a name that a key decides, needs nothing else: it takes as long for five million
exchanges as for five. It has no times and no savings, which are facts of single requests.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime, time, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.names.names import WORDS, Facts, Names, fits
from ledger.reports.figures import Figures, Key
from ledger.store.dimensions import KEY_CHARACTERS_MIN, matches
from ledger.store.scope import Scope
from ledger.store.tables import daily, meta, stale_days

PLAIN = ("provider", "model", "key", "day", "week", "month")
"""What the sums can be by."""
NOT_SUMMED = ("saved_picousd", "difference_picousd")
"""Figures that only single requests give."""

_COLUMNS = [column for column in daily.c if column.name != "day"]
_LIVE = sa.table(
    "live_daily",
    sa.column("stale_day", sa.Date),
    sa.column("day", sa.Date),
    *(sa.column(column.name, column.type) for column in _COLUMNS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """What a report adds up to, and the ends of its keys."""

    groups: Mapping[Key, Figures]
    hints: Mapping[Key, str]


def can_answer(by: tuple[str, ...], scope: Scope) -> bool:
    """Whether whole days, by provider, model and key, are all that is asked for."""
    asked = {*by, *scope.wanted()}
    names = tuple(word for word in asked if word in WORDS)
    return (
        asked <= {*PLAIN, *WORDS}
        and scope.names.facts_of(names) <= {"key", "key_hint"}
        and _is_midnight(scope.since)
        and _is_midnight(scope.until)
    )


def are_kept(connection: Connection) -> bool:
    """Whether days were ever summed up; if not, `live_daily` would add up everything."""
    rolled = sa.select(meta.c.value).where(meta.c.key == "rolled_until")
    return connection.scalar(rolled) is not None


def summed(connection: Connection, by: tuple[str, ...], scope: Scope) -> Summed:
    """The figures of each group. `can_answer` must hold."""
    groups: dict[Key, Figures] = {}
    hints: dict[Key, str] = {}
    wanted = scope.wanted()
    for row in _rows(connection, scope):
        facts = Facts(key=row.key_fingerprint, key_hint=row.key_hint, day=row.day)
        if not all(
            _is_wanted(word, values, row, facts, scope.names) for word, values in wanted.items()
        ):
            continue
        key = tuple(_value(word, row, facts, scope.names) for word in by)
        groups[key] = groups.get(key, Figures()) + _figures(row)
        if "key" in by and row.key_hint is not None:
            hints[key] = row.key_hint
    return Summed(groups=groups, hints=hints)


def _rows(connection: Connection, scope: Scope) -> Iterator[Any]:
    fresh = sa.select(daily.c.day, *_COLUMNS).where(
        ~sa.exists().where(stale_days.c.day == daily.c.day), *_within(daily.c.day, scope)
    )
    live = sa.select(_LIVE.c.day, *(_LIVE.c[column.name] for column in _COLUMNS)).where(
        *_within(_LIVE.c.day, scope)
    )
    yield from connection.execute(fresh)
    yield from connection.execute(live)


def _within(day: sa.ColumnElement[Any], scope: Scope) -> list[sa.ColumnElement[bool]]:
    where: list[sa.ColumnElement[bool]] = []
    if scope.since is not None:
        where.append(day >= scope.since.date())
    if scope.until is not None:
        where.append(day < scope.until.date())
    return where


def _value(word: str, row: Any, facts: Facts, names: Names) -> str | None:
    day: date = row.day
    match word:
        case "day":
            return day.isoformat()
        case "week":
            return (day - timedelta(days=day.weekday())).isoformat()
        case "month":
            return day.isoformat()[:7]
        case "key":
            return facts.key
        case "provider" | "model":
            found: str | None = getattr(row, word)
            return found
        case _:
            return names.word_of(word, facts)


def _is_wanted(word: str, values: list[str], row: Any, facts: Facts, names: Names) -> bool:
    value = _value(word, row, facts, names)
    if matches(value, values):
        return True
    return word == "key" and any(_is_key(each, facts, names) for each in values)


def _is_key(value: str, facts: Facts, names: Names) -> bool:
    """As `dimensions._key_is`: by name, last characters, or the fingerprint's beginning."""
    return (
        (facts.key_hint is not None and facts.key_hint == value.lstrip("…."))
        or (len(value) >= KEY_CHARACTERS_MIN and (facts.key or "").startswith(value))
        or any(entry.name == value and fits(entry, facts) for entry in names.entries)
    )


_COUNTS = tuple(each.name for each in fields(Figures) if each.default == 0)
_SUMS = tuple(
    each.name for each in fields(Figures) if each.default is None and each.name not in NOT_SUMMED
)


def _figures(row: Any) -> Figures:
    counts = {name: getattr(row, name) or 0 for name in _COUNTS}
    # The sums count both as unpriced.
    counts["unpriced"] -= counts["partial"]
    sums: dict[str, Any] = {name: getattr(row, name) for name in _SUMS}
    return Figures(**counts, **sums)


def _is_midnight(moment: datetime | None) -> bool:
    return moment is None or moment.time() == time()
