"""Database. The parts of a page. Each is queried separately, so that a live page shows the quick
ones at once and the slow ones when they are ready.

    overview   total, warnings, spend over time, top models, keys, providers       from the sums
    speed      time to first token, duration, cache                                from the sums
    teams      spend by team: of the names file, else the tag                      from the sums
    sessions   the costliest sessions                                              from the sums
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from sqlalchemy.engine import Connection, Engine

from ledger.attach import attached
from ledger.figures import queries
from ledger.figures.figures import Figures, Percentiles, percentiles, total_of
from ledger.figures.request_list import ListedRequest, error_kinds, latest
from ledger.parts.pages import charts, period_sums
from ledger.parts.pages.period import Period
from ledger.parts.pages.problems import problems
from ledger.parts.pages.unusual import HISTORY, UnusualDay, unusual_days
from ledger.reports.layout import Amount, amount_places, amount_text, key_text
from ledger.reports.page_parts import Problem
from ledger.settings.names import NO_NAMES, Names
from ledger.store.scope import NO_VALUE, Scope, snapshot
from ledger.text import figures
from ledger.text.period import day_of
from ledger.text.printable import short_text

TABLE_ROWS_MAX = 25
"""Lines of a table; the rest is one line."""
SESSION_ROWS_MAX = 15
TITLES = {"model": "Models", "key": "Keys", "provider": "Providers", "team": "Teams"}
OTHER_MODELS = timedelta(days=31)
"""Substitutions of models are looked for in so many days; all dimensions together are many sums."""
REQUESTS_IN_ROW = 5
"""The latest requests shown below a line of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The requests that a page shows."""

    period: Period
    only: tuple[tuple[str, str], ...] = ()
    names: Names = NO_NAMES

    @property
    def scope(self) -> Scope:
        """The same as a scope of reports."""
        period = self.period
        return Scope(
            since=period.since,
            until=period.until,
            only=self.only,
            names=self.names,
            zone=period.zone,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRow:
    """One line of a table: a model, a key, a session."""

    word: str
    """The dimension: model, key, session, tag:team."""
    value: str | None
    label: str
    sums: Figures
    share: Decimal
    """Share of the table's cost, 0 to 1."""
    change: str = ""
    """The change of cost since the period before."""
    last_time: str | None = None
    merged: int = 0
    """Number of groups in this line: the rest."""
    requests: tuple[ListedRequest, ...] = ()

    @property
    def only(self) -> tuple[tuple[str, str], ...]:
        """The condition that selects this line's requests; empty for the rest."""
        return () if self.merged else ((self.word, NO_VALUE if self.value is None else self.value),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A table of rows by cost."""

    name: str
    title: str
    rows: tuple[PageRow, ...]
    note: str = ""

    def cost(self, row: PageRow) -> str:
        """The cost of a row, aligned with those of the others."""
        known = [each.sums.cost_picousd for each in self.rows]
        places = amount_places([Amount(picousd=each) for each in known if each is not None])
        picousd, is_part = row.sums.cost_picousd, row.sums.without_price > 0
        if picousd is None:
            return figures.money(None, is_lower_bound=is_part)
        return amount_text(Amount(picousd=picousd, mark="≥ " if is_part else ""), places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Spending, its breakdown, and problems."""

    period: Period
    total: Figures
    before: Figures | None
    """None: the time before was not recorded as a whole."""
    before_period: Period | None
    problems: tuple[Problem, ...]
    stacks: tuple[charts.Stack, ...]
    levels: tuple[charts.Level, ...]
    """Budgets in the chart; none under a condition, which budgets of everything do not have."""
    rankings: tuple[Ranking, ...]
    hints: Mapping[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Times and cache use of the period, in total and by day."""

    first_token: Percentiles
    duration: Percentiles
    hit_rate: Decimal | None
    saved_picousd: int | None
    """None: for no request both the cached tokens and their price are known."""
    estimated: int
    estimated_picousd: int | None
    charts: tuple[charts.Lines, ...]


def overview(
    engine: Engine, question: Question, more: Sequence[Problem] = (), ledger: str = ""
) -> Overview:
    """The parts of the first screen. `more`: the problems that parts know; `ledger`: the option
    that names it in commands."""
    with snapshot(engine) as connection:
        unusual = _unusual(connection, question)
        period = _begun(connection, question.period)
        table = period_sums.read(connection, period, question.scope, by_hour=period.bar == "hour")
        earlier, first = question.period.before, period_sums.first_request(connection)
        if earlier and (earlier.since is None or first is None or first > earlier.since):
            earlier = None  # it was not recorded, or not all of it
        past = period_sums.read(connection, earlier, question.scope) if earlier else None
        counts = period_sums.count_troubles(connection, period)
        unknown = (
            period_sums.unknown_fields(connection, period) if table.total().without_price else []
        )
        begin = period.now - OTHER_MODELS
        since = max(period.since, begin) if period.since else begin
        recent = replace(question.scope, since=since, until=period.until)
        others = queries.other_models(connection, recent)
        total = table.total()
        kinds = error_kinds(connection, question.scope) if total.errors else []
    labels = {"key": key_labels(table.hints, question.names)}
    return Overview(
        period=period,
        total=total,
        before=past.total() if past else None,
        before_period=earlier,
        problems=tuple(
            problems(
                total,
                table.by_name("model"),
                counts,
                more,
                period=period,
                only=question.only,
                unknown_fields=unknown,
                other_models=others,
                unusual=unusual,
                error_kinds=kinds,
                ledger=ledger,
            )
        ),
        stacks=tuple(
            charts.stack(word, TITLES[word], table.groups[word], period, labels.get(word, {}))
            for word in ("model", "provider", "key")
        ),
        levels=() if question.only else charts.levels(_rates(engine, question), period.bar),
        rankings=tuple(
            Ranking(
                name=word,
                title=TITLES[word],
                rows=_listed(
                    word,
                    period_sums.costliest_of(table.by_name(word), TABLE_ROWS_MAX),
                    labels.get(word, {}),
                    before=past.by_name(word) if past else None,
                    last_times=table.last_time(word),
                ),
            )
            for word in ("model", "key", "provider")
        ),
        hints=table.hints,
    )


def _unusual(connection: Connection, question: Question) -> list[UnusualDay]:
    """Days of the period that cost far more than the days before. A session has none before."""
    if any(word == "session" for word, _ in question.only):
        return []
    now = question.period.now
    period = _begun(connection, question.period)
    begin = day_of(period.local(period.since or now)).start
    history = Period(since=(begin - HISTORY).astimezone(UTC), until=question.period.until, now=now)
    cost_picousd: dict[date, int] = Counter()
    by_day = period_sums.read(connection, history, question.scope).groups["model"]
    for (time, _), sums in by_day.items():
        with suppress(ValueError):  # of a row whose time is none
            cost_picousd[date.fromisoformat(time[:10])] += sums.cost_picousd or 0
    return unusual_days(
        cost_picousd,
        first_day=period.local(period_sums.first_request(connection) or now).date(),
        judged_from=begin.date(),
        today=period.local(now).date(),
    )


def speed(engine: Engine, question: Question) -> Speed:
    """Times of requests, and the cache."""
    with snapshot(engine) as connection:
        period = _begun(connection, question.period)
        word = "hour" if period.bar == "hour" else "day"
        groups = queries.groups(connection, (word,), question.scope, with_times=True)
    by_time = {key[0] or "": group for key, group in groups.items()}
    bars = sorted(by_time)
    total = total_of(group.figures for group in groups.values())
    spreads, spread_charts = [], []
    for place, title in enumerate(("Time to first token", "Duration")):
        histograms = {bar: by_time[bar].histograms[place] for bar in bars}
        of_bars = {bar: percentiles(counts) for bar, counts in histograms.items() if counts}
        spreads.append(percentiles(sum(histograms.values(), Counter())))
        spread_charts.append(
            charts.Lines(
                title=title,
                unit="ms",
                bars=tuple(of_bars),
                names=("median", "95 of 100"),
                values=(
                    tuple(middle for middle, _ in of_bars.values()),
                    tuple(high for _, high in of_bars.values()),
                ),
            )
        )
    rates = [
        figures.ratio(found.cache_read_tokens, found.cacheable_input_tokens)
        for found in (by_time[bar].figures for bar in bars)
    ]
    cache = charts.Lines(
        title="Cache hit rate",
        unit="percent",
        bars=tuple(bars),
        names=("input from the cache",),
        values=(tuple(None if rate is None else int(rate * 10_000) for rate in rates),),
    )
    return Speed(
        first_token=spreads[0],
        duration=spreads[1],
        hit_rate=figures.ratio(total.cache_read_tokens, total.cacheable_input_tokens),
        saved_picousd=total.saved_picousd,
        estimated=total.estimated,
        estimated_picousd=total.estimated_cost_picousd,
        charts=(*spread_charts, cache),
    )


def teams(engine: Engine, question: Question) -> tuple[charts.Stack, Ranking]:
    """Spend by team: by the names file, else by the tag `team`."""
    with snapshot(engine) as connection:
        period = _begun(connection, question.period)
        word = "hour" if period.bar == "hour" else "day"
        table = period_sums.read_by(connection, question.scope, "team", time=word)
    stack = charts.stack("team", TITLES["team"], table.groups["team"], period, {})
    costliest = period_sums.costliest_of(table.by_name("team"), TABLE_ROWS_MAX)
    rows = _listed("team", costliest, {None: "(no team)"}, last_times=table.last_time("team"))
    return stack, Ranking(
        name="team",
        title="Teams",
        rows=rows,
        note="by the names file, else by the tag team",
    )


def sessions(engine: Engine, question: Question) -> Ranking:
    """The costliest sessions."""
    with snapshot(engine) as connection:
        costliest = period_sums.read_costliest(
            connection, question.scope, "session", SESSION_ROWS_MAX
        )
    rows = _listed("session", costliest, {None: "(no session)"})
    # Requests without a session do not form a row.
    rows = tuple(sorted(rows, key=lambda row: row.value is None))
    return Ranking(name="session", title="Sessions", rows=rows)


def few(connection: Connection, question: Question, total: Figures) -> tuple[ListedRequest, ...]:
    """The requests themselves, if they are so few that charts and tables say less than they do."""
    is_few = 0 < total.requests <= REQUESTS_IN_ROW
    return latest(connection, question.scope, limit=REQUESTS_IN_ROW).requests if is_few else ()


def with_requests(connection: Connection, ranking: Ranking, question: Question) -> Ranking:
    """A copy of the table, each line with its latest requests."""
    rows = []
    for row in ranking.rows:
        if row.only:
            (only,) = row.only
            scope = row_scope(question, only, row.last_time)
            found = latest(connection, scope, limit=REQUESTS_IN_ROW).requests
            row = replace(row, requests=found)  # noqa: PLW2901
        rows.append(row)
    return replace(ranking, rows=tuple(rows))


def row_scope(question: Question, only: tuple[str, str], last_time: str | None) -> Scope:
    """The scope of one line's requests. It ends at the line's last day, where the backward scan
    starts."""
    period = question.period
    since, until = period.since, period.until
    with suppress(OverflowError, ValueError):  # of a row whose time is none, too
        at = datetime.fromisoformat((last_time or "")[:10]).replace(tzinfo=period.zone or UTC)
        day = day_of(at)
        since = day.start if since is None else max(since, day.start)
        until = day.end if until is None else min(until, day.end)
    others = (pair for pair in question.only if pair[0] != only[0])
    return replace(question.scope, since=since, until=until, only=(*others, only))


def _begun(connection: Connection, period: Period) -> Period:
    """The period with a beginning: its own, or the ledger's first request."""
    first = period_sums.first_request(connection) if period.since is None else period.since
    return replace(period, since=first)


def key_labels(
    hints: Mapping[str | None, str | None], names: Names = NO_NAMES
) -> dict[str | None, str]:
    """Fingerprint -> the label of a key: its name, or `key_text`, as in reports."""
    found: dict[str | None, str] = {None: "(no key)"}
    for fingerprint, hint in hints.items():
        if fingerprint is not None:
            found[fingerprint] = names.key_name(fingerprint, hint) or key_text(fingerprint, hint)
    return found


def problems_of_parts(engine: Engine, question: Question, ledger: str) -> list[Problem]:
    """What parts know to be wrong now, whatever the page selects. `ledger`: as in `overview`."""
    now = question.period.now
    return [
        problem
        for problems_now in attached("problems of a page")
        for problem in problems_now(engine, question.names, now, ledger)
    ]


def _rates(engine: Engine, question: Question) -> list[tuple[str, Fraction]]:
    now = question.period.now
    return [
        rate
        for levels in attached("levels of spending")
        for rate in levels(engine, question.names, now)
    ]


def _listed(
    word: str,
    costliest: period_sums.Costliest,
    labels: Mapping[str | None, str],
    *,
    before: Mapping[str | None, Figures] | None = None,
    last_times: Mapping[str | None, str] = MappingProxyType({}),
) -> tuple[PageRow, ...]:
    """The costliest rows, and the rest as one line."""
    whole = sum(each.cost_picousd or 0 for each in (*costliest.shown.values(), costliest.rest))
    rows = []
    for name, each in costliest.shown.items():
        past = before.get(name) if before else None
        rows.append(
            PageRow(
                word=word,
                value=name,
                label=short_text(labels.get(name, name or f"(no {word})") or ""),
                sums=each,
                share=figures.ratio(each.cost_picousd or 0, whole) or Decimal(0),
                change=figures.change(each.cost_picousd, past.cost_picousd) if past else "",
                last_time=last_times.get(name),
            )
        )
    if costliest.merged:
        rows.append(
            PageRow(
                word=word,
                value=None,
                label=f"{costliest.merged:,} more",
                sums=costliest.rest,
                share=figures.ratio(costliest.rest.cost_picousd or 0, whole) or Decimal(0),
                merged=costliest.merged,
            )
        )
    return tuple(rows)
