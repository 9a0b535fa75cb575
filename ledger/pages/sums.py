"""Database. Cost and tokens of a period by time and model, provider or key, in one question.

Whole days that are over are read from their sums (`daily`, `hourly`); the edges of a period, days
that changed since they were summed up, and today are added up from `requests`, stretch by stretch,
so that each is found by the moment it lies in. What is read of a month with sums are its sums and
one day's requests. A filter that the sums do not hold (session, tag, ...) is answered from
`requests` alone, with the same figures.

The cost is that of reported usage, as in every report.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.names.names import WORDS
from ledger.pages.period import DAY, Period
from ledger.reports.queries import SPLIT
from ledger.store.dimensions import NONE, dimension, named
from ledger.store.requests_view import requests
from ledger.store.scope import Scope, conditions
from ledger.store.tables import daily, exchanges, hourly, meta, stale_days

SUMMED = {"provider": "provider", "model": "model", "key": "key_fingerprint"}
"""Words that the sums hold -> their column."""
FINGERPRINT = re.compile("[0-9a-f]{32}")
STRETCHES_MAX = 40
"""With more stale days than this in a period, `requests` is asked for all of it at once: a
question has a bound on its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What some requests add up to, as `report` has it. None: nothing of the kind was reported."""

    requests: int = 0
    errors: int = 0
    without_usage: int = 0
    complete_without_usage: int = 0
    """Of these, answered to the end: billed by somebody, and in no total here."""
    unpriced: int = 0
    """Requests of which at least one line has no price."""
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cacheable_input_tokens: int | None = None
    output_tokens: int | None = None
    cost_picousd: int | None = None

    def __add__(self, other: "Sums") -> "Sums":
        added: dict[str, Any] = {}
        for each in fields(Sums):
            left, right = getattr(self, each.name), getattr(other, each.name)
            added[each.name] = left if right is None else right if left is None else left + right
        return Sums(**added)


COUNTS = ("requests", "errors", "without_usage", "complete_without_usage", "unpriced")
TOTALS = tuple(each.name for each in fields(Sums) if each.name not in COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Sums by (time, name) for each word, the name being a model, a provider or a fingerprint."""

    groups: dict[str, dict[tuple[str, str | None], Sums]]
    hints: dict[str | None, str | None] = field(default_factory=dict)
    """Fingerprint -> the last characters of the key."""

    def total(self) -> Sums:
        """Of all requests."""
        return sum(next(iter(self.groups.values())).values(), Sums())

    def by_name(self, word: str) -> dict[str | None, Sums]:
        """Of each model, provider or key."""
        found: dict[str | None, Sums] = defaultdict(Sums)
        for (_, name), sums in self.groups[word].items():
            found[name] += sums
        return dict(found)

    def last_time(self, word: str) -> dict[str | None, str]:
        """The last day or hour in which each of them had a request."""
        found: dict[str | None, str] = {}
        for time, name in self.groups[word]:
            found[name] = max(time, found.get(name, ""))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What went wrong in a period, of the whole ledger."""

    lost: int = 0
    degraded: int = 0
    duplicates: int = 0
    still_open: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which whole days of a period have sums, and which stretches must be added up."""

    first: datetime | None
    last: datetime | None
    """Days from `first` up to, not including, `last` have sums, but for stale ones; both None:
    no day has."""
    stretches: tuple[tuple[datetime | None, datetime | None], ...]


def read(connection: Connection, period: Period, given: Scope, *, by_hour: bool = False) -> Table:
    """The sums of a period by day, or by hour, and each word of `SUMMED`; of `given`, the
    conditions and names."""
    dialect = connection.dialect.name
    scope = replace(given, since=period.since, until=period.until)
    may_use_sums = not by_hour and all(_is_summed(word, value) for word, value in scope.only)
    coverage = cover(connection, period, may_use_sums=may_use_sums)
    parts = list(_parts(coverage, scope, dialect, "hour" if by_hour else "day"))
    every = sa.union_all(*parts).cte("every_sum").prefix_with("MATERIALIZED")
    question = sa.union_all(*(_grouped(every, word) for word in SUMMED))
    groups: dict[str, dict[tuple[str, str | None], Sums]] = {word: {} for word in SUMMED}
    hints: dict[str | None, str | None] = {}
    for row in connection.execute(question):
        groups[row.word][row.time, row.name] = _sums(row)
        if row.word == "key":
            hints[row.name] = row.hint or hints.get(row.name)
    return Table(groups=groups, hints=hints)


def read_requests(
    connection: Connection, scope: Scope, word: str, *, time: str | None
) -> dict[tuple[str, str | None], Sums]:
    """The sums by a word that `daily` does not hold, request by request: some 25 µs each."""
    dialect = connection.dialect.name
    name = named(word, dialect, scope.names) if word in WORDS else dimension(word, dialect)
    bucket = dimension(time, dialect) if time else sa.literal("", sa.Text)
    found = connection.execute(
        sa.select(
            bucket.label("time"),
            name.label("name"),
            *(term.label(each) for each, term in _terms().items()),
        )
        .where(*conditions(scope, dialect))
        .group_by(*([bucket] if time else []), name)
    )
    return {
        (row.time, row.name): Sums(
            **{each: _whole(row._mapping[each]) for each in (*COUNTS, *TOTALS)}
        )
        for row in found
    }


def read_times(
    connection: Connection, scope: Scope, *, time: str, limit: int
) -> list[tuple[str, int | None, int | None]]:
    """Day or hour, time to first token and duration of the latest requests, in milliseconds."""
    r = requests.c
    dialect = connection.dialect.name
    found = connection.execute(
        sa.select(dimension(time, dialect), r.first_token_ms, r.duration_ms)
        .where(*conditions(scope, dialect))
        .order_by(r.opened_at.desc())
        .limit(limit)
    )
    return [(row[0], row[1], row[2]) for row in found]


def first_request(connection: Connection) -> datetime | None:
    """When the ledger begins."""
    found = connection.scalar(
        sa.select(sa.func.min(exchanges.c.opened_at, type_=exchanges.c.opened_at.type))
    )
    assert found is None or isinstance(found, datetime)
    return found


def count_troubles(connection: Connection, period: Period) -> Counts:
    """Lost, degraded, seen twice, still open."""
    coverage = cover(connection, period, may_use_sums=True)
    found: dict[str, int] = defaultdict(int)
    names = [each.name for each in fields(Counts)]
    if coverage.first is not None or coverage.last is not None:
        row = connection.execute(
            sa.select(*(sa.func.sum(hourly.c[name]).label(name) for name in names)).where(
                *_days(hourly.c.day, coverage), ~_is_stale(hourly.c.day)
            )
        ).one()
        for name in names:
            found[name] += int(row._mapping[name] or 0)
    e = exchanges.c
    for since, until in coverage.stretches:
        counted = connection.execute(
            sa.select(
                sa.func.count(sa.case((e.state == "lost", 1))).label("lost"),
                sa.func.count(e.degraded).label("degraded"),
                sa.func.count(e.duplicate_of).label("duplicates"),
                sa.func.count(sa.case((e.state == "open", 1))).label("still_open"),
            ).where(*_between(e.opened_at, since, until))
        ).one()
        for name in names:
            found[name] += counted._mapping[name]
    return Counts(**found)


def cover(connection: Connection, period: Period, *, may_use_sums: bool) -> Coverage:
    """Which days of a period have sums that hold."""
    whole = ((period.since, period.until),)
    rolled = connection.scalar(sa.select(meta.c.value).where(meta.c.key == "rolled_until"))
    if rolled is None or not may_use_sums:
        return Coverage(first=None, last=None, stretches=whole)
    summed_until = _midnight(datetime.fromisoformat(rolled))
    first = None if period.since is None else _next_midnight(period.since)
    last = summed_until if period.until is None else min(summed_until, _midnight(period.until))
    if first is not None and first >= last:
        return Coverage(first=None, last=None, stretches=whole)
    stale = connection.scalars(
        sa.select(stale_days.c.day)
        .where(*_days(stale_days.c.day, Coverage(first=first, last=last, stretches=())))
        .order_by(stale_days.c.day)
    ).all()
    if len(stale) > STRETCHES_MAX:
        return Coverage(first=None, last=None, stretches=whole)
    stretches: list[tuple[datetime | None, datetime | None]] = []
    if first is not None and period.since is not None and period.since < first:
        stretches.append((period.since, first))
    for day in stale:
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        stretches.append((begin, begin + DAY))
    if period.until is None or last < period.until:
        stretches.append((last, period.until))
    return Coverage(first=first, last=last, stretches=tuple(stretches))


def _parts(coverage: Coverage, scope: Scope, dialect: str, time: str) -> Iterator[sa.Select[Any]]:
    """The sums of days, and the stretches that are added up."""
    d = daily.c
    if coverage.last is not None:
        yield sa.select(
            sa.cast(d.day, sa.Text).label("time"),
            d.provider,
            d.model,
            d.key_fingerprint,
            d.key_hint,
            *(d[name] for name in (*COUNTS, *TOTALS)),
        ).where(
            *_days(d.day, coverage),
            ~_is_stale(d.day),
            *(d[SUMMED[word]].in_(values) for word, values in scope.wanted().items()),
        )
    r = requests.c
    terms = _terms()
    bucket = dimension(time, dialect)
    for since, until in coverage.stretches:
        limited = replace(scope, since=since, until=until)
        yield (
            sa.select(
                bucket.label("time"),
                r.provider,
                r.model,
                r.key_fingerprint,
                sa.func.max(r.key_hint).label("key_hint"),
                *(term.label(name) for name, term in terms.items()),
            )
            .where(*conditions(limited, dialect))
            .group_by(bucket, r.provider, r.model, r.key_fingerprint)
        )


def _is_summed(word: str, value: str) -> bool:
    """Whether the sums can answer a condition as it is meant: a pattern, a key's beginning or its
    name is for `requests`."""
    if word == "key":
        return bool(FINGERPRINT.fullmatch(value))
    return word in SUMMED and not set(value) & set("*?") and value != NONE


def _terms() -> dict[str, sa.ColumnElement[Any]]:
    """The sums of some requests, by name."""
    r = requests.c
    is_reported = r.usage_source != "estimated"
    return {
        "requests": sa.func.count(),
        "errors": sa.func.count(sa.case((r.outcome.in_(("error_frame", "http_error")), 1))),
        "without_usage": sa.func.count(
            sa.case((sa.func.coalesce(r.usage_source, "none") == "none", 1))
        ),
        "complete_without_usage": sa.func.count(
            sa.case(
                (
                    (r.outcome == "complete")
                    & (sa.func.coalesce(r.usage_source, "none") == "none"),
                    1,
                )
            )
        ),
        "unpriced": sa.func.count(
            sa.case((is_reported & r.cost_state.in_(("unpriced", "partial")), 1))
        ),
        "input_tokens": _sum(sa.case((is_reported, r.input_tokens))),
        "cache_read_tokens": _sum(sa.case((is_reported, r.cache_read_tokens))),
        "cacheable_input_tokens": _sum(
            sa.case((is_reported & r.cache_read_tokens.is_not(None), r.input_tokens))
        ),
        "output_tokens": _sum(sa.case((is_reported, r.output_tokens))),
        "cost_picousd": _sum(sa.case((is_reported, r.cost_picousd))),
    }


def _whole(value: Any) -> Any:
    return None if value is None else int(value)


def _sum(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A sum within one group, day and key; PostgreSQL's would be a numeric."""
    return sa.cast(sa.func.sum(value), sa.BigInteger)


def _grouped(every: sa.CTE, word: str) -> sa.Select[Any]:
    c = every.c
    name = c[SUMMED[word]]
    hint = sa.func.max(c.key_hint) if word == "key" else sa.cast(sa.null(), sa.Text)
    return sa.select(
        sa.literal(word).label("word"),
        c.time.label("time"),
        name.label("name"),
        hint.label("hint"),
        *(sa.func.sum(c[each]).label(each) for each in COUNTS),
        # In two parts, as reports sum: SQLite's sum ends at 64 bits.
        *(sa.func.sum(c[each] // SPLIT).label(f"{each}_high") for each in TOTALS),
        *(sa.func.sum(c[each] % SPLIT).label(f"{each}_low") for each in TOTALS),
    ).group_by(c.time, name)


def _sums(row: Any) -> Sums:
    values = row._mapping
    counts = {name: int(values[name] or 0) for name in COUNTS}
    totals: dict[str, int | None] = {}
    for name in TOTALS:
        high, low = values[f"{name}_high"], values[f"{name}_low"]
        totals[name] = None if high is None else int(high) * SPLIT + int(low)
    known: dict[str, Any] = {**counts, **totals}
    return Sums(**known)


def _days(column: sa.ColumnElement[Any], coverage: Coverage) -> list[sa.ColumnElement[bool]]:
    first, last = coverage.first, coverage.last
    conditions = [] if first is None else [column >= first.date()]
    return conditions if last is None else [*conditions, column < last.date()]


def _is_stale(day: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    return sa.exists().where(stale_days.c.day == day)


def _between(
    column: sa.ColumnElement[Any], since: datetime | None, until: datetime | None
) -> list[sa.ColumnElement[bool]]:
    found = [] if since is None else [column >= since]
    return found if until is None else [*found, column < until]


def _midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _next_midnight(moment: datetime) -> datetime:
    begin = _midnight(moment)
    return begin if begin == moment else begin + DAY
