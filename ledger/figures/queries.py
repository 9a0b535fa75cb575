"""Database. Figures by model, key, day …, of the requests that count.

The database sums (`sum_query.py`), and Python reads rows of the result. All queries of a report run
in one snapshot. Sums from requests alone (`--exact`) are compared with the view's own sums before
they are shown.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.figures.figures import (
    Figures,
    Key,
    Report,
    ReportRow,
    Times,
    order,
    percentiles,
    top_of,
    total_of,
)
from ledger.figures.sum_query import SumQuery, extent, grouped, stale_count
from ledger.model.aliases import is_another
from ledger.model.charge import DIFFERS
from ledger.model.errors import EmptyLedgerError
from ledger.settings.names import WORDS
from ledger.store import db
from ledger.store.adding_up import histogram, rows_of
from ledger.store.engines import migration, urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.schema.dimensions import COLUMN_OF, TIME_CHARACTERS
from ledger.store.schema.sums import HISTOGRAMS
from ledger.store.scope import NameFacts, Scope, conditions, dimension, matches, requests, snapshot
from ledger.store.tables import exchanges

DIFFERING = timedelta(days=31)
"""Remarks are looked for in requests of so many days: they are in no sum, and have no index."""
FIGURE_NAMES = tuple(each.name for each in fields(Figures))


def report(
    engine: Engine | Connection,
    by: Sequence[str],
    scope: Scope,
    *,
    top: int | None = None,
    now: datetime | None = None,
    is_exact: bool = False,
) -> Report:
    """The figures of a ledger. LedgerError for an unknown dimension.

    Days that are over are read from their sums, unless `is_exact`; the figures are the same.
    """
    words = tuple(by)
    with snapshot(engine) as connection:
        by_key = groups(connection, words, scope, is_exact=is_exact, with_times=True)
        of = opened(scope, connection.dialect.name)
        still_open = connection.scalar(sa.select(sa.func.count()).select_from(of)) or 0
        first, last = extent(connection, scope)
        stale_days = 0 if is_exact else stale_count(connection)
        is_by_models = {"request_model", "model"} <= set(words)
        others = other_models(connection, scope) if is_by_models else {}
        # Remarks are in no sum, and only where providers state figures is there one to look for.
        reported = (group.figures.reported_cost_picousd for group in by_key.values())
        differing = (
            _differing(connection, scope, last)
            if last and any(each is not None for each in reported)
            else 0
        )
    rows = [
        ReportRow(
            key=key,
            figures=group.figures,
            times=times_of(group.histograms),
            hint=group.hint,
            name=_key_name(words, key, group.hint, scope),
        )
        for key, group in by_key.items()
    ]
    of_all = tuple(Counter[int]() for _ in HISTOGRAMS)
    for group in by_key.values():
        for whole, part in zip(of_all, group.histograms, strict=True):
            whole.update(part.elements())  # twice as fast as its pairs
    total = total_of(row.figures for row in rows)
    rows.sort(key=order(words, TIME_CHARACTERS))
    if top is not None:
        rows = top_of(rows, top)
        assert total_of(row.figures for row in rows) == total
    return Report(
        by=words,
        since=scope.since,
        until=scope.until,
        rows=tuple(rows),
        total=ReportRow(
            key=(),
            figures=total,
            times=times_of(of_all),
        ),
        open_requests=still_open,
        now=now or datetime.now(UTC),
        first=first,
        last=last,
        only=scope.only,
        zone=scope.zone,
        stale_days=stale_days,
        other_models=others,
        differing=differing,
    )


@dataclass(slots=True, kw_only=True)
class Group:
    """The figures of the requests of one key."""

    figures: Figures
    hint: str | None
    """The last characters of the key, if the groups are by key."""
    histograms: tuple[Counter[int], ...] = ()
    """Of the times to the first token, and of the durations; empty unless they were asked for."""


def groups_of(engine: Engine, by: tuple[str, ...], scope: Scope) -> dict[Key, Figures]:
    """The figures of each group, without times."""
    with snapshot(engine) as connection:
        return {key: group.figures for key, group in groups(connection, by, scope).items()}


def other_models(connection: Connection, scope: Scope) -> dict[tuple[str, str], int]:
    """(asked for, answered) -> the requests that another model answered than was asked for."""
    found: Counter[tuple[str, str]] = Counter()
    for key, group in groups(connection, ("provider", "request_model", "model"), scope).items():
        provider, asked, answered = key
        if asked and answered and is_another(provider or "", asked, answered):
            found[asked, answered] += group.figures.requests
    return dict(found)


def _differing(connection: Connection, scope: Scope, last: datetime) -> int:
    """The requests of the last days with the remark that the provider's own figure differs from the
    list value."""
    where = [sa.cast(requests.c.remarks, sa.String).contains(DIFFERS)]
    if scope.since is None or scope.since <= last - DIFFERING:
        # One lower bound: SQLite seeks by one of two, maybe the earlier one.
        scope = replace(scope, since=None)
        where.append(requests.c.opened_at > last - DIFFERING)
    where += conditions(scope, connection.dialect.name)
    query = sa.select(sa.func.count()).select_from(requests).where(*where)
    return connection.scalar(query) or 0


def totals(engine: Engine, scope: Scope) -> Figures:
    """The figures of all requests of a scope, without their times."""
    return total_of(groups_of(engine, (), scope).values())


def refused_by_cap(engine: Engine, scope: Scope) -> dict[str, int]:
    """How many requests of a scope each cap refused, by its name; empty: an error of ours."""
    r = requests.c
    where = (r.outcome == "refused", *conditions(scope, engine.dialect.name))
    query = sa.select(r.error_code, sa.func.count()).where(*where).group_by(r.error_code)
    with engine.connect() as connection:
        return {
            str(cap or ""): count for cap, count in connection.execute(query.order_by(r.error_code))
        }


@contextmanager
def existing_ledger(url: str | None) -> Iterator[Engine]:
    """A ledger for queries; by default the one that is recorded into. LedgerError if there is none:
    a query must not create one. One of an older schema is migrated, and its days are summed up."""
    url = url or urls.default_url()
    with db.disposing(db.open_existing(url)) as engine:
        is_older = migration.revision_of(engine) != REVISION
    with db.disposing(db.ensure(url)) as engine:
        if is_older:
            from ledger.maintenance import rollup

            rollup.roll(engine, now=datetime.now(UTC))
        yield engine


def nothing_found(engine: Engine, line: str) -> str:
    """The line that nothing was found; EmptyLedgerError with it if the ledger has no request."""
    with snapshot(engine) as connection:
        if extent(connection, Scope()) == (None, None):
            raise EmptyLedgerError(line)
    return line


def groups(
    connection: Connection,
    by: tuple[str, ...],
    scope: Scope,
    *,
    is_exact: bool = False,
    with_times: bool = False,
    figures: Sequence[str] = FIGURE_NAMES,
) -> dict[Key, Group]:
    """These figures of each group, `unpriced` and `partial` among them; with histograms of the
    times of its requests if they are asked for."""
    dialect = connection.dialect.name
    keys = _Keys(by, scope, dialect)
    query = SumQuery(
        by=keys.columns,
        words=(*by, *scope.wanted()),
        figures=(*figures, *(HISTOGRAMS if with_times else ())),
        scope=keys.rest,
        is_exact=is_exact,
    )
    found: dict[Key, Group] = {}
    everything: list[Figures] = []
    for row in grouped(connection, query):
        begin = keys.columns_count
        end = begin + len(figures)
        values = (None if value is None else int(value) for value in row[begin:end])
        sums: dict[str, Any] = dict(zip(figures, values, strict=True))
        sums["unpriced"] -= sums["partial"]  # both are counted as unpriced
        of_row = Figures(**sums)
        everything.append(of_row)
        if (key := keys.key_of(row)) is None:
            continue
        hint = row[begin - 1] if "key" in by else None
        histograms = tuple(map(histogram, row[end:]))
        group = found.get(key)
        if group is None:
            found[key] = Group(figures=of_row, hint=hint, histograms=histograms)
        else:
            group.figures += of_row
            group.hint = max((each for each in (hint, group.hint) if each), default=None)
            for whole, part in zip(group.histograms, histograms, strict=True):
                whole.update(part.elements())  # twice as fast as its pairs
    if is_exact:
        # The sum of the groups equals the sum of the view.
        names = ("input_tokens", "output_tokens", "cost_picousd")
        added = (sa.func.sum(requests.c[name]) for name in names)
        where = conditions(keys.rest, dialect)
        (row,) = rows_of(connection, sa.select(sa.func.count(), *added).where(*where))
        total = total_of(everything)
        assert row[0] == total.requests + total.refused
        shown: Any
        for name, shown in zip(names, row[1:], strict=True):
            assert (None if shown is None else int(shown)) == getattr(total, name), name
    return found


def times_of(histograms: Sequence[Mapping[int, int]]) -> Times:
    """The percentiles of a group's histograms."""
    first_token, duration = map(percentiles, histograms)
    return Times(
        first_token_ms_p50=first_token[0],
        first_token_ms_p95=first_token[1],
        duration_ms_p50=duration[0],
        duration_ms_p95=duration[1],
    )


class _Keys:
    """The grouping of a report: columns to group by, and the key of a group.

    A team or person is not a column: the query groups by the facts that decide it, and the groups
    of one name are added up. Conditions on such words filter the groups.
    """

    def __init__(self, by: tuple[str, ...], scope: Scope, dialect: str) -> None:
        self._wanted = {word: want for word, want in scope.wanted().items() if word in WORDS}
        words = tuple(dict.fromkeys((*(word for word in by if word in WORDS), *self._wanted)))
        self._facts = NameFacts(scope.names, words, dialect)
        self._by = by
        self._dialect = dialect
        self._plain = [word for word in by if word not in WORDS]
        for word in self._plain:
            dimension(word, dialect)  # refuses unknown dimensions
        self._zone = scope.zone
        self._width = self.columns_count = 0
        self.rest = replace(
            scope, only=tuple(pair for pair in scope.only if pair[0] not in self._wanted)
        )
        """The scope without the conditions that SQL cannot check."""

    def columns(self, of: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        """The columns to group by; for rows by key also its last characters."""
        found = [dimension(word, self._dialect, of, self._zone) for word in self._plain]
        found += self._facts.columns(of)
        self._width = len(found)
        if "key" in self._by:
            found.append(of.c.key_hint)
        self.columns_count = len(found)
        return found

    def key_of(self, row: Any) -> Key | None:
        """The key of a database row's group; None: the row is filtered out."""
        if len(self._plain) == len(self._by) and not self._wanted:  # the quick way for most reports
            return tuple(row[: len(self._plain)])
        facts = tuple(row[len(self._plain) : self._width])
        for word, want in self._wanted.items():
            if not matches(self._facts.word_of(word, facts), want):
                return None
        plain = iter(row[: len(self._plain)])
        return tuple(
            self._facts.word_of(word, facts) if word in WORDS else next(plain) for word in self._by
        )


def opened(scope: Scope, dialect: str) -> sa.Subquery:
    """The requests of a scope that have no end yet; nothing is known of how they are billed."""
    names = {"id", "node", "key_hint", *COLUMN_OF.values()}
    unknown: dict[str, sa.ColumnElement[Any]] = {
        name: sa.cast(sa.null(), sa.Text) for name in names if name not in exchanges.c
    }
    unknown["model"] = sa.func.coalesce(exchanges.c.meant_model, exchanges.c.request_model)
    every = sa.select(
        exchanges.c.opened_at,
        *(exchanges.c[name] for name in names if name in exchanges.c),
        *(value.label(name) for name, value in unknown.items()),
    ).where(exchanges.c.state == "open")
    of = every.subquery("every_open")
    return sa.select(of).where(*conditions(scope, dialect, of)).subquery("opened")


def _key_name(by: tuple[str, ...], key: Key, hint: str | None, scope: Scope) -> str | None:
    fingerprint = key[by.index("key")] if "key" in by else None
    return scope.names.key_name(fingerprint, hint) if fingerprint else None
