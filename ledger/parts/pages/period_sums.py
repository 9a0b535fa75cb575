"""Database. Cost and tokens of a period by time and model, provider or key, in one query."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.figures.figures import Figures, total_of
from ledger.figures.queries import groups
from ledger.figures.sum_query import spans
from ledger.parts.pages.period import Period
from ledger.pricing.charges import BILLING_FIELD
from ledger.store.schema.sums import BY_EXCHANGES
from ledger.store.schema.views import HOURLY
from ledger.store.scope import Scope, within
from ledger.store.tables import exchanges, sums
from ledger.text.period import DAY

UNKNOWN_FIELDS_MAX = 4
"""Billing fields named on the page."""
GROUPED = ("model", "provider", "key")
"""The dimensions of the first screen."""

PAGE_FIGURES = (
    "requests",
    "refused",
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
        for (_, name), figures in self.groups[word].items():
            found[name].append(figures)
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
    scope = replace(given, since=period.since, until=period.until)
    parts: dict[str, dict[tuple[str, str | None], list[Figures]]] = {
        word: defaultdict(list) for word in GROUPED
    }
    hints: dict[str | None, str | None] = {}
    queries: list[tuple[tuple[str, ...], Scope]]
    if by_hour or scope.zone is not None:
        queries = [(GROUPED, scope)]  # one scan serves all words
    else:
        # Of days with stored sums, a query for each word reads the fewest rows.
        queries = []
        for span in spans(connection, scope.since, scope.until, step=DAY):
            part = replace(scope, since=span.since, until=span.until)
            queries += [((word,), part) for word in GROUPED] if span.has_sums else [(GROUPED, part)]
    for words, part in queries:
        by = ("hour" if by_hour else "day", *words)
        for (time, *names), group in groups(connection, by, part, figures=PAGE_FIGURES).items():
            for word, name in zip(words, names, strict=True):
                parts[word][time or "", name].append(group.figures)
                if word == "key":
                    hints[name] = max(group.hint or "", hints.get(name) or "") or None
    tables = {
        word: {key: total_of(each) for key, each in by_key.items()}
        for word, by_key in parts.items()
    }
    return FigureTable(groups=tables, hints=hints)


def read_by(connection: Connection, scope: Scope, word: str, *, time: str) -> FigureTable:
    """The sums by time and any word."""
    by_key = groups(connection, (time, word), scope, figures=PAGE_FIGURES)
    table = {(at or "", name): group.figures for (at, name), group in by_key.items()}
    return FigureTable(groups={word: table})


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


def ranked_names(by_name: Groups) -> list[str | None]:
    """Names by cost; by requests if nothing has a price."""
    cost: dict[str | None, int] = defaultdict(int)
    requests: dict[str | None, int] = defaultdict(int)
    for (_, name), figures in by_name.items():
        cost[name] += figures.cost_picousd or 0
        requests[name] += figures.requests
    return sorted(cost, key=lambda name: (-cost[name], -requests[name], name is None, name or ""))


def read_costliest(connection: Connection, scope: Scope, word: str, rows_max: int) -> Costliest:
    """The costliest groups of a dimension of the ledger."""
    by_key = groups(connection, (word,), scope, figures=PAGE_FIGURES)
    return costliest_of({name: group.figures for (name,), group in by_key.items()}, rows_max)


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
            columns = [sa.func.sum(sums.c[name]).label(name) for name in names]
            query = sa.select(*columns).where(
                sums.c.summed_by == BY_EXCHANGES, *within(scope, sums.c.opened_at)
            )
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
