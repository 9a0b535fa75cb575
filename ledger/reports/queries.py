"""Database. Figures by model, key, day …, out of the public view `requests`.

The database does the summing, so no row passes through Python that is not part of the result: one
pass for tokens and money, one for each kind of time. All questions of a report are asked in one
snapshot, and what its rows add up to is held against the view's own sums before it is shown.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.model.money import AMOUNT_MAX
from ledger.names.names import WORDS
from ledger.pricing.charges import PROVIDER
from ledger.reports import sums
from ledger.reports.figures import Figures, Key, Report, Row, Times, order, percentiles, top_of
from ledger.store import db
from ledger.store.current import current_charge
from ledger.store.dimensions import TIMES, NameFacts, dimension, matches
from ledger.store.engines import urls
from ledger.store.requests_view import requests
from ledger.store.scope import Scope, conditions, snapshot, within
from ledger.store.tables import charges, exchanges

SPLIT = 10**6
"""Everything is summed in two parts: SQLite's sum ends at 64 bits, which is 9.2 million USD."""

TOKENS_MAX = 10**9
"""No request has more, and no token costs a thousandth of a USD. Upstreams are not to be trusted:
figures beyond that are left out where products of two would not fit 64 bits."""

REQUESTS_MAX = 50_000
"""So many requests are asked one by one, in about a second, which also gives their times."""
COUNTS = ("requests", "errors", "without_usage", "complete_without_usage", "estimated")
CACHE_LINES = ("cache_read", "cache_write", "cache_write_5m", "cache_write_1h")


def report(
    engine: Engine,
    by: Sequence[str],
    scope: Scope,
    *,
    top: int | None = None,
    now: datetime | None = None,
    is_exact: bool = False,
) -> Report:
    """The figures of a ledger. LedgerError for a word that nothing is by.

    Many requests are not asked one by one where the sums of days can answer, unless `is_exact`.
    """
    words = tuple(by)
    with snapshot(engine) as connection:
        found = None if is_exact else _from_sums(connection, words, scope)
        answer = found or _from_requests(connection, words, scope)
        still_open = connection.execute(_still_open(scope)).scalar_one()
        first, last = _extent(connection, scope)
    total = sum(answer.groups.values(), Figures())
    rows = [
        Row(
            key=key,
            figures=figures,
            times=answer.times.get(key, Times()),
            hint=answer.hints.get(key),
            name=_key_name(words, key, answer.hints.get(key), scope),
        )
        for key, figures in answer.groups.items()
    ]
    rows.sort(key=order(words, TIMES))
    rows = top_of(rows, top)
    assert sum((row.figures for row in rows), Figures()) == total
    return Report(
        by=words,
        since=scope.since,
        until=scope.until,
        rows=tuple(rows),
        total=Row(key=(), figures=total, times=answer.times_of_all),
        open_requests=still_open,
        now=now or datetime.now(UTC),
        first=first,
        last=last,
        only=scope.only,
        is_from_sums=found is not None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a report is made of."""

    groups: Mapping[Key, Figures]
    hints: Mapping[Key, str]
    times: Mapping[Key, Times] = field(default_factory=dict)
    times_of_all: Times = field(default_factory=Times)


def _from_sums(connection: Connection, by: tuple[str, ...], scope: Scope) -> _Answer | None:
    """The answer of the sums; None if they have none, or if the requests are few."""
    if not sums.can_answer(by, scope) or not sums.are_kept(connection):
        return None
    found = sums.summed(connection, by, scope)
    if sum(figures.requests for figures in found.groups.values()) <= REQUESTS_MAX:
        return None
    return _Answer(groups=found.groups, hints=found.hints)


def _from_requests(connection: Connection, by: tuple[str, ...], scope: Scope) -> _Answer:
    ask = _Questions(connection, by, scope)
    groups = ask.figures()
    times, times_of_all = ask.times()
    ask.hold()
    return _Answer(groups=groups, hints=ask.hints, times=times, times_of_all=times_of_all)


def groups_of(engine: Engine, by: tuple[str, ...], scope: Scope) -> dict[Key, Figures]:
    """The figures of each group, without times."""
    with snapshot(engine) as connection:
        return _Questions(connection, by, scope).figures()


def totals(engine: Engine, scope: Scope) -> Figures:
    """What all requests of a scope add up to, without their times."""
    with snapshot(engine) as connection:
        if sums.can_answer((), scope) and sums.are_kept(connection):
            return sum(sums.summed(connection, (), scope).groups.values(), Figures())
        return sum(_Questions(connection, (), scope).figures().values(), Figures())


def open_ledger(url: str | None) -> Engine:
    """A ledger to ask; by default the one that is recorded into. LedgerError if there is none:
    asking must not make one."""
    url = url or urls.default_url()
    db.open_existing(url).dispose()
    return db.ensure(url)


class _Keys:
    """What the rows of a report are by: columns to group by, and the key of a group.

    A team or person is no column: the facts that decide it are grouped by, and the groups of one
    name are added up. Conditions on such words choose among the groups.
    """

    def __init__(self, by: tuple[str, ...], scope: Scope, dialect: str) -> None:
        self._wanted = {word: want for word, want in scope.wanted().items() if word in WORDS}
        words = tuple(dict.fromkeys((*(word for word in by if word in WORDS), *self._wanted)))
        self._facts = NameFacts(scope.names, words, dialect)
        self._by = by
        plain = [dimension(word, dialect) for word in by if word not in WORDS]
        self._plain = len(plain)
        self.columns = [
            column.label(f"by_{place}")
            for place, column in enumerate([*plain, *self._facts.columns])
        ]
        self.rest = replace(
            scope, only=tuple(pair for pair in scope.only if pair[0] not in self._wanted)
        )
        """The scope without the conditions that are not SQL's."""

    def key_of(self, row: Any) -> Key | None:
        """The key of the group that a row of the database belongs to; None: it is not wanted."""
        facts = tuple(row[self._plain : len(self.columns)])
        for word, want in self._wanted.items():
            if not matches(self._facts.word_of(word, facts), want):
                return None
        plain = iter(row[: self._plain])
        return tuple(
            self._facts.word_of(word, facts) if word in WORDS else next(plain) for word in self._by
        )


class _Questions:
    """The questions of one report."""

    def __init__(self, connection: Connection, by: tuple[str, ...], scope: Scope) -> None:
        self._connection = connection
        dialect = connection.dialect.name
        self._keys = _Keys(by, scope, dialect)
        self._by = self._keys.columns
        self._where = conditions(self._keys.rest, dialect)
        self._costs = _costs(scope)
        self.everything = Figures()
        """Of all groups, those that are not wanted included."""
        self.hints: dict[Key, str] = {}
        """Of the rows that are by key."""
        is_by_key = "key" in by
        hint: sa.ColumnElement[Any] = sa.func.max(requests.c.key_hint) if is_by_key else sa.null()
        self._hint = hint.label("hint")

    def figures(self) -> dict[Key, Figures]:
        """By cost state as well, which is cheaper than to count each state."""
        groups: dict[Key, Figures] = defaultdict(Figures)
        r, cost = requests.c, self._costs.c
        state = _cost_state(cost)
        query = (
            sa.select(*self._by, state.label("state"), self._hint, *_counts(), *_split(_sums(cost)))
            .select_from(
                requests.outerjoin(
                    self._costs,
                    (cost.opened_at == r.opened_at)
                    & (cost.exchange_id == r.id)
                    & (cost.reading_id == r.reading_id),
                )
            )
            .where(*self._where)
            .group_by(*self._by, state)
        )
        for row in self._connection.execute(query):
            figures = _figures(row)
            self.everything += figures
            key = self._keys.key_of(row)
            if key is not None:
                groups[key] += figures
                if row.hint is not None:
                    self.hints[key] = row.hint
        return dict(groups)

    def times(self) -> tuple[dict[Key, Times], Times]:
        """The percentiles of each group, and of all requests."""
        groups: dict[Key, dict[str, int | None]] = defaultdict(dict)
        whole: dict[str, int | None] = {}
        for name in ("first_token_ms", "duration_ms"):
            value = requests.c[name]
            counted = self._connection.execute(
                sa.select(*self._by, value, sa.func.count())
                .where(value.is_not(None), *self._where)
                .group_by(*self._by, value)
            )
            every: Counter[int] = Counter()
            by_key: dict[Key, Counter[int]] = defaultdict(Counter)
            for row in counted:
                key = self._keys.key_of(row)
                if key is not None:
                    by_key[key][row[-2]] += row[-1]
                    every[row[-2]] += row[-1]
            for key, counts in by_key.items():
                middle, high = percentiles(sorted(counts.items()))
                groups[key] |= {f"{name}_p50": middle, f"{name}_p95": high}
            middle, high = percentiles(sorted(every.items()))
            whole |= {f"{name}_p50": middle, f"{name}_p95": high}
        return {key: Times(**values) for key, values in groups.items()}, Times(**whole)

    def hold(self) -> None:
        """What the groups add up to is what the view adds up to."""
        total = self.everything
        r = requests.c
        is_reported = r.usage_source != "estimated"
        sums = {
            "input_tokens": sa.case((is_reported, r.input_tokens)),
            "output_tokens": sa.case((is_reported, r.output_tokens)),
            "cost_picousd": sa.case((is_reported, r.cost_picousd)),
        }
        row = self._connection.execute(
            sa.select(sa.func.count().label("requests"), *_split(sums)).where(*self._where)
        ).one()
        assert row.requests == total.requests
        for name in sums:
            assert _joined(row, name) == getattr(total, name), name


def _costs(scope: Scope) -> sa.Subquery:
    """The current charges of each reading, summed: one walk along the clustered table."""
    c = charges.c
    cached = c.line.in_(CACHE_LINES)
    uncached_unit = sa.func.max(
        sa.case(((c.line == "uncached_input") & (c.unit_picousd <= TOKENS_MAX), c.unit_picousd))
    )
    is_comparable = c.amount_picousd.is_not(None) & (c.quantity <= TOKENS_MAX)
    return (
        sa.select(
            c.opened_at,
            c.exchange_id,
            c.reading_id,
            sa.func.count().label("lines"),
            sa.func.count(c.amount_picousd).label("priced_lines"),
            _count(c.price_source == PROVIDER).label("provider_lines"),
            _bigint(sa.func.sum(c.amount_picousd)).label("cost_picousd"),
            _bigint(
                sa.func.sum(sa.case((cached & is_comparable, c.quantity))) * uncached_unit
                - sa.func.sum(sa.case((cached & is_comparable, c.amount_picousd)))
            ).label("saved_picousd"),
            _further(("output", "reasoning", "citation")).label("extra_output_tokens"),
            _further(("uncached_input", "cache_", "input_")).label("extra_input_tokens"),
        )
        .where(current_charge(charges), *within(scope, c.opened_at))
        .group_by(c.opened_at, c.exchange_id, c.reading_id)
        .subquery("costs")
    )


def _further(starts: tuple[str, ...]) -> sa.ColumnElement[Any]:
    """Tokens of further iterations, whose lines are named `<kind>.<line>`."""
    line = charges.c.line
    is_further = sa.or_(
        *(line.like(f"%.{start.replace('_', '^_')}%", escape="^") for start in starts)
    )
    is_further &= charges.c.quantity <= TOKENS_MAX
    return _bigint(sa.func.sum(sa.case((is_further, charges.c.quantity))))


def _cost_state(cost: Any) -> sa.ColumnElement[Any]:
    """As in the view; NULL where the usage is estimated, as its cost is in no total."""
    return sa.case(
        (requests.c.usage_source == "estimated", None),
        (
            cost.lines.is_(None),
            sa.case((sa.func.coalesce(requests.c.usage_source, "none") != "none", "unpriced")),
        ),
        (cost.priced_lines == 0, "unpriced"),
        (cost.priced_lines < cost.lines, "partial"),
        (cost.provider_lines == cost.lines, "reported"),
        else_="priced",
    )


def _counts() -> Iterator[sa.ColumnElement[Any]]:
    r = requests.c
    yield sa.func.count().label("requests")
    yield _count(r.outcome.in_(("error_frame", "http_error"))).label("errors")
    yield _count(sa.func.coalesce(r.usage_source, "none") == "none").label("without_usage")
    is_complete = (r.outcome == "complete") & (sa.func.coalesce(r.usage_source, "none") == "none")
    yield _count(is_complete).label("complete_without_usage")
    yield _count(r.usage_source == "estimated").label("estimated")


def _sums(cost: Any) -> dict[str, sa.ColumnElement[Any]]:
    """What is summed, by the name of the figure."""
    r = requests.c
    is_reported = r.usage_source != "estimated"
    is_timed = is_reported & r.output_tokens.is_not(None) & (r.duration_ms > r.first_token_ms)
    is_ours = (cost.priced_lines == cost.lines) & (cost.provider_lines == 0)
    reported_cost = _reported_cost()
    return {
        **{
            name: sa.case((is_reported, r[name]))
            for name in (
                "input_tokens",
                "uncached_input_tokens",
                "cache_read_tokens",
                "cache_write_tokens",
                "output_tokens",
                "reasoning_tokens",
            )
        },
        "extra_input_tokens": cost.extra_input_tokens,
        "extra_output_tokens": cost.extra_output_tokens,
        "estimated_input_tokens": sa.case((~is_reported, r.input_tokens)),
        "estimated_output_tokens": sa.case(
            (is_reported, r.estimated_output_tokens), else_=r.output_tokens
        ),
        "cacheable_input_tokens": sa.case(
            (is_reported & r.cache_read_tokens.is_not(None), r.input_tokens)
        ),
        "generation_ms": sa.case((is_timed, r.duration_ms - r.first_token_ms)),
        "generated_tokens": sa.case((is_timed, r.output_tokens)),
        "cost_picousd": sa.case((is_reported, cost.cost_picousd)),
        "estimated_cost_picousd": sa.case((~is_reported, cost.cost_picousd)),
        "saved_picousd": sa.case((is_reported, cost.saved_picousd)),
        "reported_cost_picousd": reported_cost,
        "difference_picousd": sa.case((is_ours, cost.cost_picousd - reported_cost)),
    }


def _reported_cost() -> sa.ColumnElement[Any]:
    """As charges.reported_picousd: upstream's only under BYOK."""
    own = requests.c.reported_cost_picousd
    upstream = requests.c.reported_upstream_cost_picousd
    is_byok = requests.c.is_byok & (upstream <= AMOUNT_MAX - sa.func.coalesce(own, 0))
    return sa.case((is_byok, sa.func.coalesce(own, 0) + upstream), else_=own)


_SUMMED = frozenset(each.name for each in fields(Figures) if each.default is None)


def _figures(row: Any) -> Figures:
    counts = {name: getattr(row, name) for name in COUNTS}
    state = {row.state: row.requests} if row.state else {}
    summed: dict[str, Any] = {name: _joined(row, name) for name in _SUMMED}
    return Figures(**counts, **state, **summed)


def _still_open(scope: Scope) -> sa.Select[Any]:
    return (
        sa.select(sa.func.count())
        .select_from(exchanges)
        .where(exchanges.c.state == "open", *within(scope, exchanges.c.opened_at))
    )


def _key_name(by: tuple[str, ...], key: Key, hint: str | None, scope: Scope) -> str | None:
    fingerprint = key[by.index("key")] if "key" in by else None
    return scope.names.key_name(fingerprint, hint) if fingerprint else None


def _extent(connection: Connection, scope: Scope) -> tuple[datetime | None, datetime | None]:
    """The first and the last exchange of the period: two looks at the ends of the primary key."""
    at = exchanges.c.opened_at
    found: list[datetime | None] = [
        connection.scalar(sa.select(at).where(*within(scope, at)).order_by(order).limit(1))
        for order in (at, at.desc())
    ]
    return found[0], found[1]


def _count(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.count(sa.case((condition, 1)))


def _split(sums: Mapping[str, sa.ColumnElement[Any]]) -> Iterator[sa.ColumnElement[Any]]:
    for name, value in sums.items():
        yield sa.func.sum(value // SPLIT).label(f"{name}_high")
        yield sa.func.sum(value % SPLIT).label(f"{name}_low")


def _joined(row: Any, name: str) -> int | None:
    high, low = row._mapping[f"{name}_high"], row._mapping[f"{name}_low"]
    return None if high is None else int(high) * SPLIT + int(low)


def _bigint(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """PostgreSQL sums to a numeric, whose division is not a whole one."""
    return sa.cast(value, sa.BigInteger)
