"""Database. The public view `requests` for queries, the scope of a query, and the dimensions of
reports (`--by`) and filters (`--only`), as SQL.

Dimensions are columns of the view `requests`, times, tags, and the words of the names file. A
request's team is not stored: `NameFacts` lets the database group by the few columns that decide it,
and maps the groups. Where single rows are chosen (`--only team=…` of an export), it is a CASE
expression.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.errors import WrongCallError
from ledger.settings.names import (
    KEY_CHARACTERS_MIN,
    NO_NAMES,
    WORDS,
    GroupFacts,
    NameEntry,
    Names,
    host_globs,
    pattern,
    texts,
)
from ledger.store.keys import midnight
from ledger.store.schema import views
from ledger.store.schema.columns import Instant
from ledger.store.schema.dimensions import COLUMN_OF, TIME_CHARACTERS
from ledger.store.tables import exchanges, readings
from ledger.text.hints import suggestion
from ledger.text.origins import host_of, stored_origin

_SQL_TYPES: Mapping[str, Any] = {
    "instant": Instant,
    "boolean": sa.Boolean,
    "integer": sa.BigInteger,
    "text": sa.Text,
}
_FIGURE_ENDINGS = ("_tokens", "_ms", "_picousd", "_revision")
"""How the names of the figures end that the view computes."""


def _kind_of(name: str) -> str:
    """The type of a column: as in the table that has it."""
    for table in (exchanges, readings):
        if name in table.c:
            kind = table.c[name].type
            of_table = {Instant: "instant", sa.Boolean: "boolean", sa.Integer: "integer"}
            return next((word for each, word in of_table.items() if isinstance(kind, each)), "text")
    return "integer" if name.endswith(_FIGURE_ENDINGS) else "text"


REQUEST_COLUMNS: Mapping[str, str] = {
    name: _kind_of(name) for name in views.REQUESTS_VIEW_COLUMNS if not name.endswith("_usd")
}
"""Column -> type of its values: all columns of the view but those in USD, which are for reading."""

requests = sa.table(
    "requests",
    *(sa.column(name, _SQL_TYPES[kind]) for name, kind in REQUEST_COLUMNS.items()),
)

FIRST_YEAR, LAST_YEAR = 2020, 2040
"""Changes of a zone's offset are known within these; before and after it is the nearest one."""
MEANT = {
    "name": "key",
    "api_key": "key",
    "user": "person",
    "date": "day",
    "time": "hour",
    "host": "origin",
    "client": "agent",
    "repo": "project",
    "status": "http_status",
    "cost_center": "cost_centre",
}
"""What is typed for a dimension -> its word."""
NO_VALUE = "(none)"
"""The value that stands for a missing value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which requests a query selects."""

    since: datetime | None = None
    until: datetime | None = None
    only: tuple[tuple[str, str], ...] = ()
    """(dimension, value): a request must have one of the values of each dimension. `*` and `?`
    stand for any characters."""
    names: Names = NO_NAMES
    """The names of teams, people, cost centres and keys."""
    zone: ZoneInfo | None = None
    """Of the days that requests are grouped by; None: UTC."""

    def wanted(self) -> dict[str, list[str]]:
        """Dimension -> the values of which a request must have one."""
        found: dict[str, list[str]] = {}
        for word, value in self.only:
            found.setdefault(word, []).append(value)
        return found


def as_text(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A column whose JSON comes as text from both databases."""
    return sa.cast(column, sa.Text) if isinstance(column.type, sa.Text) else column


@contextmanager
def snapshot(engine: Engine | Connection) -> Iterator[Connection]:
    """A connection whose queries all see the same snapshot; one that has a snapshot keeps it."""
    if isinstance(engine, Connection):
        yield engine
        return
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            # SQLite's readers have a snapshot in WAL mode anyway.
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def conditions(
    scope: Scope, dialect: str, of: sa.FromClause = requests
) -> list[sa.ColumnElement[bool]]:
    """The conditions for a request to be in a scope; `of` has the columns of `requests`."""
    return [*within(scope, of.c.opened_at), *limits(scope, dialect, of)]


def limits(scope: Scope, dialect: str, of: sa.FromClause) -> list[sa.ColumnElement[bool]]:
    """The conditions of a scope beside its period."""
    return [
        condition(word, values, dialect, scope.names, of, zone=scope.zone)
        for word, values in scope.wanted().items()
    ]


def within(scope: Scope, opened_at: sa.ColumnElement[datetime]) -> list[sa.ColumnElement[bool]]:
    """The conditions of a scope's period on a column of moments."""
    where = []
    if scope.since is not None:
        where.append(opened_at >= scope.since)
    if scope.until is not None:
        where.append(opened_at < scope.until)
    return where


def dimension(
    word: str, dialect: str, of: sa.FromClause = requests, zone: ZoneInfo | None = None
) -> sa.ColumnElement[Any]:
    """The expression of a dimension; LedgerError for an unknown word.

    `of`: the view `requests`, or anything that has its columns. `zone`: of days; None: UTC.
    """
    if word in COLUMN_OF:
        column = of.c[COLUMN_OF[word]]
        # PostgreSQL has no order of JSON; a status is compared as text (`4*`).
        return sa.cast(column, sa.Text) if word in ("tag", "http_status") else column
    if word in TIME_CHARACTERS:
        return time_of(of.c.opened_at, word, dialect, zone)
    name = word.removeprefix("tag:")
    if name != word and name and '"' not in name:
        return _tag(name, dialect, of)
    known = (*COLUMN_OF, *WORDS, "tag:NAME", *TIME_CHARACTERS)
    near = suggestion(word, known, MEANT)
    raise WrongCallError(f"no such dimension: {word[:60]!r}{near}; use one of {', '.join(known)}")


def condition(
    word: str,
    values: Sequence[str],
    dialect: str,
    names: Names,
    of: sa.FromClause = requests,
    *,
    zone: ZoneInfo | None = None,
) -> sa.ColumnElement[bool]:
    """Any of these values; `*` and `?` stand for any characters, `(none)` for no value."""
    if word == "key":
        found = []
        for value in values:
            # Its name, its fingerprint, the fingerprint's beginning, or the key's last characters.
            found += [_is(of.c.key_fingerprint, value, dialect)]
            found += [of.c.key_hint == value.lstrip("….")]
            if len(value) >= KEY_CHARACTERS_MIN and value != NO_VALUE:
                found.append(_glob(of.c.key_fingerprint, f"{value}*", dialect))
            found += [_fits(entry, dialect, of) for entry in names.entries if entry.name == value]
        return sa.or_(*found)
    if word == "origin":
        values = [each if _is_pattern(each) else stored_origin(each) for each in values]
    if word in WORDS:
        expression = named(word, dialect, names, of)
    else:
        expression = dimension(word, dialect, of, zone)
    return sa.or_(*(_is(expression, value, dialect) for value in values))


def named(
    word: str, dialect: str, names: Names, of: sa.FromClause = requests
) -> sa.ColumnElement[Any]:
    """The team, person or cost centre of a request, as `Names.word_of`."""
    cases = [
        (_fits(entry, dialect, of), sa.literal(getattr(entry, word), sa.Text))
        for entry in names.for_words((word,))
    ]
    tag = _tag(word, dialect, of)
    return sa.case(*cases, else_=tag) if cases else tag


FACT_COLUMNS = {
    "key": "key_fingerprint",
    "key_hint": "key_hint",
    "host": "origin",
    "session": "session_id",
    "project": "project",
    "tag": "tags",
}
"""Fact that decides a name -> its column."""


class NameFacts:
    """The columns that decide some words of the names file, to group by."""

    def __init__(self, names: Names, words: tuple[str, ...], dialect: str) -> None:
        self._names = names
        self._facts = names.facts_of(words)
        self._tags = names.tags_of(words)
        self._boundaries = names.boundaries(words)
        self._dialect = dialect
        self._kept = [fact for fact in FACT_COLUMNS if fact in self._facts and fact != "tag"]
        self._seen: dict[tuple[Any, ...], GroupFacts] = {}

    def columns(self, of: sa.FromClause = requests) -> list[sa.ColumnElement[Any]]:
        """The columns to group by."""
        found: list[sa.ColumnElement[Any]] = [of.c[FACT_COLUMNS[fact]] for fact in self._kept]
        found += [_tag(tag, self._dialect, of) for tag in self._tags]
        if self._boundaries:
            # How many of the moments have passed.
            cases = [
                (of.c.opened_at < sa.literal(moment, Instant()), number)
                for number, moment in enumerate(self._boundaries)
            ]
            found.append(sa.case(*cases, else_=len(self._boundaries)))
        return found

    def word_of(self, word: str, values: tuple[Any, ...]) -> str | None:
        """The word of a group, from the values of `columns`."""
        facts = self._seen.get(values)
        if facts is None:
            known: dict[str, Any] = dict(zip(self._kept, values, strict=False))
            if known.get("host"):
                known["host"] = host_of(known["host"])
            tags = values[len(self._kept) : len(self._kept) + len(self._tags)]
            known["tags"] = dict(zip(self._tags, tags, strict=True))
            if self._boundaries:
                passed = values[-1]
                known["day"] = self._boundaries[passed - 1].date() if passed else date.min
            facts = self._seen[values] = GroupFacts(**known)
        return self._names.word_of(word, facts)


def matches(value: str | None, wanted: Sequence[str]) -> bool:
    """As `condition`, for a value in memory."""
    return any(
        value is None
        if want == NO_VALUE
        else value is not None and bool(pattern(want).match(value))
        for want in wanted
    )


def time_of(
    at: sa.ColumnElement[Any], word: str, dialect: str, zone: ZoneInfo | None = None
) -> sa.ColumnElement[Any]:
    """The month, day, hour or week of a moment, in a zone; None: UTC."""
    if dialect == "postgresql":
        local = sa.func.timezone(zone.key if zone else "UTC", at)
        if word == "week":
            return sa.func.to_char(sa.func.date_trunc("week", local), "YYYY-MM-DD")
        text: sa.ColumnElement[str] = sa.func.to_char(local, "YYYY-MM-DD HH24")
        return sa.func.substr(text, 1, TIME_CHARACTERS[word])
    shown: sa.ColumnElement[Any] = sa.cast(at, sa.Text)
    if zone is not None:
        # Without the fraction: SQLite would round a moment of the last half millisecond up.
        whole = sa.func.substr(shown, 1, 19)
        changes, last = _changes(zone.key)
        cases = [
            (at < sa.literal(moment, Instant()), f"{seconds} seconds")
            for moment, seconds in changes
        ]
        rest = f"{last} seconds"
        offset = sa.case(*cases, else_=rest) if cases else sa.literal(rest)
        shown = sa.func.strftime("%Y-%m-%d %H", whole, offset)
    if word == "week":
        day = sa.func.substr(shown, 1, 10)
        return sa.func.date(day, "-6 days", "weekday 1")
    return sa.func.substr(shown, 1, TIME_CHARACTERS[word])


def has_whole_hours(zone: ZoneInfo | None) -> bool:
    """Whether each hour of the zone is one of UTC; None is UTC."""
    changes, last = _changes(zone.key) if zone else ((), 0)
    return not any(seconds % 3600 for seconds in (*(each for _, each in changes), last))


@functools.cache
def _changes(name: str) -> tuple[tuple[tuple[datetime, int], ...], int]:
    """The changes of a zone's offset: until when which one, in seconds, and the last one."""
    zone = ZoneInfo(name)

    def offset(moment: datetime) -> int:
        return int((moment.astimezone(zone).utcoffset() or timedelta()).total_seconds())

    found: list[tuple[datetime, int]] = []
    at, end = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC), datetime(LAST_YEAR, 1, 1, tzinfo=UTC)
    while at < end:
        following = at + timedelta(days=1)
        if offset(following) != offset(at):
            low, high = at, following
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // 2
                low, high = (middle, high) if offset(middle) == offset(at) else (low, middle)
            found.append((high.replace(microsecond=0), offset(at)))
        at = following
    return tuple(found), offset(end)


def _tag(name: str, dialect: str, of: sa.FromClause) -> sa.ColumnElement[Any]:
    path = name if dialect == "postgresql" else f'$."{name}"'
    return of.c.tags.op("->>")(sa.literal(path, sa.Text))


def _is(expression: sa.ColumnElement[Any], value: str, dialect: str) -> sa.ColumnElement[bool]:
    if value == NO_VALUE:
        return expression.is_(None)
    if _is_pattern(value):
        return _glob(expression, value, dialect)
    return expression == value


def _is_pattern(value: str) -> bool:
    return "*" in value or "?" in value


def _glob(expression: sa.ColumnElement[Any], value: str, dialect: str) -> sa.ColumnElement[bool]:
    if dialect == "postgresql":
        like = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return expression.like(like.replace("*", "%").replace("?", "_"), escape="\\")
    return expression.op("GLOB", is_comparison=True)(value.replace("[", "[[]"))


def _fits(entry: NameEntry, dialect: str, of: sa.FromClause) -> sa.ColumnElement[bool]:
    """As `names.fits`."""
    r = of.c
    parts: list[sa.ColumnElement[bool]] = []

    def any_of(values: Sequence[sa.ColumnElement[bool]]) -> None:
        if values:
            parts.append(sa.or_(*values))

    any_of([_glob(r.key_fingerprint, f"{each.rstrip('*')}*", dialect) for each in texts(entry.key)])
    any_of([r.key_hint == each.lstrip("….") for each in texts(entry.key_hint)])
    any_of(
        [
            _glob(r.origin, f"*://{each}{port}", dialect)
            for each in host_globs(entry.host)
            for port in ("", ":*")
        ]
    )
    any_of([_is(r.session_id, each, dialect) for each in texts(entry.session)])
    any_of([_is(r.project, each, dialect) for each in texts(entry.project)])
    pairs = [each.partition("=") for each in texts(entry.tag)]
    any_of([_is(_tag(name, dialect, of), value, dialect) for name, _, value in pairs])
    if entry.since:
        parts.append(r.opened_at >= midnight(entry.since))
    if entry.until:
        parts.append(r.opened_at < midnight(entry.until))
    return sa.and_(*parts)
