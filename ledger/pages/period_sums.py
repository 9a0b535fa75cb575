"""Database. Cost and tokens of a period by time and model, provider or key, in one query.

Like reports, pages read the stored sums of days that are over, and add up the rest from requests
(`ledger.figures.sums`). The cost is that of reported usage, as in every report.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from ledger.figures import sums as summed
from ledger.figures.figures import Figures, total_of
from ledger.figures.queries import figures_of_row
from ledger.figures.sums import By, Wanted, spans
from ledger.pages.period import Period
from ledger.pricing.charges import BILLING_FIELD
from ledger.settings.names import WORDS
from ledger.store.schema.views import HOURLY
from ledger.store.scope import Scope, dimension, named, within
from ledger.store.tables import exchanges, hourly
from ledger.text.period import DAY

UNKNOWN_FIELDS_MAX = 4
"""Billing fields named on the page."""
GROUPED = ("model", "provider", "key")
"""The dimensions of the first screen."""

FIGURES = (
    "requests",
    "errors",
    "without_usage",
    "complete_without_usage",
    "unpriced",
    "partial",
    "input_tokens",
    "cache_read_tokens",
    "cacheable_input_tokens",
    "output_tokens",
    "cost_picousd",
    "covered",
    "unlisted",
    "covered_value_picousd",
)
"""The figures that a page reads."""

type Groups = Mapping[tuple[str, str | None], Figures]
"""(day or hour, name) -> sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureTable:
    """Figures by (time, name) for each word; the name is a model, a provider or a fingerprint."""

    groups: dict[str, dict[tuple[str, str | None], Figures]]
    hints: dict[str | None, str | None] = field(default_factory=dict)
    """Fingerprint -> the last characters of the key."""

    def total(self) -> Figures:
        """The sum of all requests."""
        return total_of(next(iter(self.groups.values())).values())

    def by_name(self, word: str) -> dict[str | None, Figures]:
        """The sums of each model, provider or key."""
        found: dict[str | None, list[Figures]] = defaultdict(list)
        for (_, name), sums in self.groups[word].items():
            found[name].append(sums)
        return {name: total_of(each) for name, each in found.items()}

    def last_time(self, word: str) -> dict[str | None, str]:
        """The last day or hour with a request, for each name."""
        found: dict[str | None, str] = {}
        for time, name in self.groups[word]:
            found[name] = max(time, found.get(name, ""))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCounts:
    """Counts of problems in a period, over the whole ledger."""

    lost: int = 0
    degraded: int = 0
    duplicates: int = 0
    still_open: int = 0


def read(
    connection: Connection, period: Period, given: Scope, *, by_hour: bool = False
) -> FigureTable:
    """The sums of a period by day, or by hour, and each word of `GROUPED`, under the conditions and
    names of `given`."""
    groups: dict[str, dict[tuple[str, str | None], Figures]] = {word: {} for word in GROUPED}
    hints: dict[str | None, str | None] = {}
    scope = replace(given, since=period.since, until=period.until)
    for words, part in _parts(connection, scope, by_hour=by_hour):
        for row, found in _grouped(connection, part, words, "hour" if by_hour else "day"):
            into, key = groups[row.word], (row.time, row.name)
            into[key] = into[key] + found if key in into else found
            if row.word == "key":
                hints[row.name] = row.hint or hints.get(row.name)
    return FigureTable(groups=groups, hints=hints)


def _parts(
    connection: Connection, scope: Scope, *, by_hour: bool
) -> Iterator[tuple[tuple[str, ...], Scope]]:
    """The words of each query. For days with stored sums, one query per word reads the fewest rows;
    for others, as for days of a zone, one scan serves all words."""
    if by_hour or scope.zone is not None:
        yield GROUPED, scope
        return
    for span in spans(connection, scope.since, scope.until, step=DAY):
        part = replace(scope, since=span.since, until=span.until)
        if span.has_sums:
            yield from (((word,), part) for word in GROUPED)
        else:
            yield GROUPED, part


def _grouped(
    connection: Connection, scope: Scope, words: tuple[str, ...], time: str
) -> Iterator[tuple[Row[Any], Figures]]:
    """The sums by time and each of these words: rows of word, time, name and hint."""
    dialect = connection.dialect.name

    def by(of: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        found = [dimension(word, dialect, of, scope.zone) for word in (time, *words)]
        return [*found, of.c.key_hint] if "key" in words else found

    def question(parts: sa.Subquery, *, is_split: bool) -> sa.CompoundSelect[Any]:
        every = sa.select(parts).cte("every_sum").prefix_with("MATERIALIZED")
        c = every.c
        hint = sa.func.max(c[f"by_{len(words) + 1}"]) if "key" in words else None
        return sa.union_all(
            *(
                sa.select(
                    sa.literal(word).label("word"),
                    c.by_0.label("time"),
                    c[f"by_{place}"].label("name"),
                    (sa.cast(sa.null(), sa.Text) if hint is None or word != "key" else hint).label(
                        "hint"
                    ),
                    *summed.figures_of(every, FIGURES, dialect, is_split=is_split),
                ).group_by(c.by_0, c[f"by_{place}"])
                for place, word in enumerate(words, 1)
            )
        )

    rows = summed.asked(connection, _wanted(by, (time, *words), scope), question)
    is_split = bool(rows) and summed.is_split(rows[0])
    for row in rows:
        yield row, _sums(row, is_split=is_split)


def read_by(connection: Connection, scope: Scope, word: str, *, time: str) -> FigureTable:
    """The sums by time and any word."""
    dialect = connection.dialect.name

    def by(of: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        if word in WORDS:
            name = named(word, dialect, scope.names, of)
        else:
            name = dimension(word, dialect, of)
        return [name, dimension(time, dialect, of, scope.zone)]

    rows = summed.grouped(connection, _wanted(by, (word, time), scope))
    is_split = bool(rows) and summed.is_split(rows[0])
    found = {(row.by_1, row.by_0): _sums(row, is_split=is_split) for row in rows}
    return FigureTable(groups={word: found})


@dataclass(frozen=True, slots=True, kw_only=True)
class Costliest:
    """The groups with the highest cost, and the others as one."""

    shown: Mapping[str | None, Figures]
    """In the order of cost; of requests if nothing has a price."""
    rest: Figures
    merged: int
    """Number of groups in the rest."""


def costliest_of(by_name: Mapping[str | None, Figures], rows_max: int) -> Costliest:
    """The costliest of some groups. One group alone is not merged into a rest."""
    ranked = ranked_names({("", name): each for name, each in by_name.items()})
    shown = ranked[:rows_max] if len(ranked) > rows_max + 1 else ranked
    rest = ranked[len(shown) :]
    return Costliest(
        shown={name: by_name[name] for name in shown},
        rest=total_of(by_name[name] for name in rest),
        merged=len(rest),
    )


def ranked_names(groups: Groups) -> list[str | None]:
    """Names by cost; by requests if nothing has a price."""
    cost: dict[str | None, int] = defaultdict(int)
    requests: dict[str | None, int] = defaultdict(int)
    for (_, name), sums in groups.items():
        cost[name] += sums.cost_picousd or 0
        requests[name] += sums.requests
    return sorted(cost, key=lambda name: (-cost[name], -requests[name], name is None, name or ""))


def read_costliest(connection: Connection, scope: Scope, word: str, rows_max: int) -> Costliest:
    """The costliest groups of a dimension of the ledger. The database ranks them: there are tens of
    thousands of sessions."""
    dialect = connection.dialect.name

    def question(parts: sa.Subquery, *, is_split: bool) -> sa.Select[Any]:
        sums = summed.figures_of(parts, FIGURES, dialect, is_split=is_split)
        groups = sa.select(parts.c.by_0, *sums).group_by(parts.c.by_0)
        return groups if is_split else _ranked(groups.cte("named"), rows_max, dialect)

    wanted = _wanted(lambda of: [dimension(word, dialect, of)], (word,), scope)
    rows = summed.asked(connection, wanted, question)
    if rows and summed.is_split(rows[0]):
        return costliest_of({row.by_0: _sums(row, is_split=True) for row in rows}, rows_max)
    merged = next((row.merged for row in rows if not row.place), 0)
    return Costliest(
        shown={row.by_0: _sums(row, is_split=False) for row in rows if row.place},
        rest=next((_sums(row, is_split=False) for row in rows if not row.place), Figures()),
        merged=merged,
    )


def _ranked(groups: sa.CTE, rows_max: int, dialect: str) -> sa.Select[Any]:
    """The groups at the first places, in their order, and the others as place 0; the order is that
    of `ranked_names`."""
    c = groups.c
    name = sa.collate(c.by_0, "C") if dialect == "postgresql" else c.by_0
    order = (sa.func.coalesce(c.cost_picousd, 0).desc(), c.requests.desc(), c.by_0.is_(None), name)
    numbered = sa.select(
        groups,
        sa.func.row_number().over(order_by=order).label("number"),
        sa.func.count().over().label("groups"),
    ).subquery("numbered")
    n = numbered.c
    is_shown = (n.number <= rows_max) | (n.groups == rows_max + 1)
    placed = sa.select(numbered, sa.case((is_shown, n.number), else_=0).label("place")).subquery(
        "placed"
    )
    p = placed.c
    return (
        sa.select(
            p.place,
            sa.func.count().label("merged"),
            sa.func.max(sa.case((p.place > 0, p.by_0))).label("by_0"),
            *(sa.func.sum(p[name]).label(name) for name in FIGURES),
        )
        .group_by(p.place)
        .order_by(p.place)
    )


def first_request(connection: Connection) -> datetime | None:
    """The moment of the ledger's first request."""
    found = connection.scalar(
        sa.select(sa.func.min(exchanges.c.opened_at, type_=exchanges.c.opened_at.type))
    )
    assert found is None or isinstance(found, datetime)
    return found


def count_troubles(connection: Connection, period: Period) -> ProblemCounts:
    """Count the lost, degraded, duplicate and open exchanges."""
    found: dict[str, int] = defaultdict(int)
    names = [each.name for each in fields(ProblemCounts)]
    for span in spans(connection, period.since, period.until, step=DAY):
        scope = Scope(since=span.since, until=span.until)
        if span.has_sums:
            columns = [sa.func.sum(hourly.c[name]).label(name) for name in names]
            query = sa.select(*columns).where(*within(scope, hourly.c.hour))
        else:
            e = exchanges.alias("e")
            counts = [sa.literal_column(HOURLY[name], sa.BigInteger).label(name) for name in names]
            query = sa.select(*counts).select_from(e).where(*within(scope, e.c.opened_at))
        counted = connection.execute(query).one()
        for name in names:
            found[name] += int(counted._mapping[name] or 0)
    return ProblemCounts(**found)


def unknown_fields(connection: Connection, period: Period) -> list[str]:
    """Why requests are priced in part, the most frequent reasons first: billing fields with a value
    that no rule knows."""
    opened_at = sa.column("opened_at", exchanges.c.opened_at.type)
    lines = sa.table("unpriced", opened_at, sa.column("line"), sa.column("reason"))
    at, reason = lines.c.opened_at, lines.c.reason
    query = (
        sa.select(reason)
        .where(lines.c.line == BILLING_FIELD, at < period.end)
        .group_by(reason)
        .order_by(sa.func.count().desc(), reason)
        .limit(UNKNOWN_FIELDS_MAX)
    )
    if period.since is not None:
        query = query.where(at >= period.since)
    return [row.reason for row in connection.execute(query)]


def _wanted(by: By, words: Sequence[str], scope: Scope) -> Wanted:
    return Wanted(by=by, words=frozenset((*words, *scope.wanted())), figures=FIGURES, scope=scope)


def _sums(row: Any, *, is_split: bool) -> Figures:
    """The figures at the end of a row."""
    return figures_of_row(row, FIGURES, row[-len(FIGURES) :], is_split=is_split)
