"""Database. The ledger's own figures as lines of a statement, compared with vendors' statements.

The ledger knows an API key by its fingerprint and last characters, a vendor by an id of its own:
`same` maps them, and applies to projects, too.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.figures.figures import Figures, plus
from ledger.figures.queries import report
from ledger.model.errors import LedgerError
from ledger.model.exchange import Outcome
from ledger.parts.reconcile import causes, model_names
from ledger.parts.reconcile.causes import Alike, Cells, Explanation
from ledger.parts.reconcile.comparison import Compared, Dimension, compare, cost_cells, renamed
from ledger.parts.reconcile.statement import Line, Statement
from ledger.pricing import rules
from ledger.pricing.price_lines import is_token_line
from ledger.reports.layout import FINGERPRINT_SHOWN
from ledger.store.adding_up import charged, rows_of
from ledger.store.keys import midnight
from ledger.store.schema.charged import IS_BILLED
from ledger.store.scope import Scope, conditions, dimension, requests, snapshot, time_of
from ledger.store.tables import current_charges
from ledger.text.origins import host_of

_RULES_IN = re.compile(r" x([0-9.]+) rule ([^ ]+)")
_WORD_OF = {
    Dimension.MODEL: "model",
    Dimension.KEY: "key",
    Dimension.PROJECT: "tag:project",
    Dimension.SESSION: "session",
}
"""The report's dimension for each dimension of a comparison."""
_ERRORS = (Outcome.HTTP_ERROR, Outcome.ERROR_FRAME)
_WITH_USAGE = ("priced", "partial", "unpriced", "reported", "covered", "estimated")
"""The counts of requests with usage, each in one of them."""
VENDORS_SESSION = "sesn_"
"""How the ids of Anthropic's managed sessions begin."""


def reconcile(
    engine: Engine,
    statements: Iterable[Statement],
    scope: Scope,
    *,
    by: Dimension = Dimension.MODEL,
    same: Mapping[str, str] | None = None,
    tolerance: Decimal,
) -> tuple[Compared, ...]:
    """Compare the statements of each provider with the ledger, over the days that they cover.

    `same`: a vendor's id of a key or project -> the end of the ledger's name for it.
    """
    entries: list[Compared] = []
    for provider, stated in by_provider(statements, scope).items():
        sides = _sides(engine, stated, _of(provider, scope), provider, by=by, same=same or {})
        entries += compare(sides.booked, sides.stated, by=by, tolerance=tolerance)
    return tuple(entries)


def explain(
    engine: Engine,
    statements: Iterable[Statement],
    scope: Scope,
    *,
    by: Dimension = Dimension.MODEL,
    same: Mapping[str, str] | None = None,
    tolerance: Decimal,
) -> tuple[tuple[str, Explanation], ...]:
    """What turns the ledger's costs into those of the statements, for each provider with costs.

    LedgerError if no statement has costs, or if the period is too long to explain.
    """
    found = []
    for provider, stated in by_provider(statements, scope).items():
        sides = _sides(engine, stated, _of(provider, scope), provider, by=by, same=same or {})
        cells, at_list, name_of = cost_cells(sides.stated, by)
        if cells:
            explained = causes.explain(
                list(_groups(engine, cells, _of(provider, scope), name_of, sides, by=by)),
                cells,
                at_list=at_list,
                periods=sides.periods,
                tolerance=tolerance,
            )
            found.append((provider or "", explained))
    if not found:
        raise LedgerError("the statements have no costs to explain; add a file with costs")
    return tuple(found)


def by_provider(statements: Iterable[Statement], scope: Scope) -> Mapping[str | None, list[Line]]:
    """The lines with figures of each provider on the days of a scope: whole days, a statement has
    no smaller."""
    found: dict[str | None, list[Line]] = defaultdict(list)
    for statement in statements:
        found[statement.provider] += [
            line
            for line in statement.lines
            if line.figures
            and (scope.since is None or midnight(line.day) >= scope.since)
            and (scope.until is None or midnight(line.through or line.day) < scope.until)
        ]
    return {provider: stated for provider, stated in found.items() if stated}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """Statement and ledger under the same names."""

    stated: Sequence[Line]
    booked: Sequence[Line]
    periods: Mapping[date, date]
    """A day -> the first day of the period that the statement sums."""
    name_of: Callable[[str | None], str | None]
    """The ledger's name of a model, key, project or session -> the one that both sides have."""


def _sides(
    engine: Engine,
    stated: Sequence[Line],
    scope: Scope,
    provider: str | None,
    *,
    by: Dimension,
    same: Mapping[str, str],
) -> _Sides:
    periods = _periods(stated)
    booked = lines(engine, min(periods), max(periods), scope, by=by)
    name_of = partial(_vendors_id, same)
    if by is Dimension.MODEL:
        ours = {line.model for line in booked if line.model}
        stated, names = model_names.matched(provider, stated, ours)
        name_of = partial(_matched_model, names)
    elif by is Dimension.SESSION:
        name_of = partial(_session, {line.session for line in stated})
    return _Sides(
        stated=stated,
        booked=[
            replace(renamed(line, by, name_of(getattr(line, by))), day=periods[line.day])
            for line in booked
        ],
        periods=periods,
        name_of=name_of,
    )


def _periods(stated: Iterable[Line]) -> Mapping[date, date]:
    """Each day from the first to the last -> the first of its period, itself in most statements."""
    periods: dict[date, date] = {}
    for line in stated:
        for number in range(((line.through or line.day) - line.day).days + 1):
            day = line.day + timedelta(days=number)
            if periods.setdefault(day, line.day) != line.day:
                raise LedgerError(
                    f"{day} is in more than one period of the statements; compare them one by one"
                )
    first, last = min(periods), max(periods)
    for number in range((last - first).days):
        periods.setdefault(first + timedelta(days=number), first + timedelta(days=number))
    return periods


def _matched_model(names: Mapping[str, str], name: str | None) -> str | None:
    return names.get(name, name) if name else name


def _vendors_id(same: Mapping[str, str], name: str | None) -> str | None:
    return next((theirs for theirs, ours in same.items() if name and name.endswith(ours)), name)


def _session(stated: Collection[str | None], name: str | None) -> str | None:
    """A session as the vendor has it. Other sessions than its own (`sesn_…`), those of agents, are
    where it has what is outside of sessions. A subagent's is its parent's."""
    parent = name.partition("/")[0] if name else None
    if parent is None or parent in stated or None not in stated:
        return parent
    return parent if parent.startswith(VENDORS_SESSION) else None


def lines(
    engine: Engine, first: date, last: date, scope: Scope, *, by: Dimension = Dimension.MODEL
) -> list[Line]:
    """The ledger by day and `by`, both days included. By model, each charge for anything but tokens
    is a line of its own, with the charge line's name as its item."""
    within = replace(scope, since=midnight(first), until=midnight(last + timedelta(days=1)))
    apart: dict[tuple[date, str | None], int] = defaultdict(int)
    found: list[Line] = []
    charged = _charged(engine, within, ("day", "model")) if by is Dimension.MODEL else ()
    for text, model, line, _, picousd in charged:
        if not is_token_line(line) and picousd is not None:
            day, amount = date.fromisoformat(text), int(picousd)
            apart[day, model] += amount
            found.append(Line(day=day, model=model, item=line, figures={"cost_picousd": amount}))
    sums: dict[tuple[str, str | None], Figures] = defaultdict(Figures)
    for row in report(engine, ("day", _WORD_OF[by], "outcome"), within).rows:
        figures = row.figures
        if row.key[2] in _ERRORS:
            # Refused, or failed: a vendor counts none of these, unless it states usage.
            answered = sum(getattr(figures, name) for name in _WITH_USAGE)
            figures = replace(figures, requests=answered)
        sums[row.key[0] or "", row.key[1]] += figures
    for (text, name), of_name in sums.items():
        day = date.fromisoformat(text)
        # As a provider counts: with further iterations, without our estimates.
        all_figures = {
            "requests": of_name.requests,
            "input_tokens": plus(of_name.input_tokens, of_name.extra_input_tokens),
            "cache_read_tokens": of_name.cache_read_tokens,
            "cache_write_tokens": of_name.cache_write_tokens,
            "output_tokens": plus(of_name.output_tokens, of_name.extra_output_tokens),
            "cost_picousd": of_name.cost_picousd,
        }
        known = {key: value for key, value in all_figures.items() if value is not None}
        if "cost_picousd" in known:
            known["cost_picousd"] -= apart[day, name]
        found.append(renamed(Line(day=day, model=None, figures=known), by, name))
    return found


def _charged(
    engine: Engine,
    scope: Scope,
    words: Sequence[str],
    further: Callable[[str], Sequence[sa.ColumnElement[Any]]] | None = None,
    rows_max: int | None = None,
) -> Sequence[Any]:
    """Current charges that are a cost, by dimensions, line and `further` columns; then the sums of
    quantities and amounts, beyond 64 bits as texts."""
    with snapshot(engine) as connection:
        dialect = connection.dialect.name
        names = [
            *(dimension(word, dialect) for word in words),
            current_charges.c.line,
            *(further(dialect) if further else ()),
        ]
        sums = (sa.func.sum(current_charges.c[name]) for name in ("quantity", "amount_picousd"))
        return rows_of(
            connection,
            sa.select(*names, *sums)
            .select_from(charged())
            .where(sa.text(IS_BILLED.format("requests")), *conditions(scope, dialect))
            .group_by(*names)
            .limit(rows_max),
        )


def _groups(
    engine: Engine,
    cells: Cells,
    scope: Scope,
    name_of: Callable[[Line], str | None],
    sides: _Sides,
    *,
    by: Dimension,
) -> Iterator[Alike]:
    """The charges as causes take them, from a day before the cells to a day after them."""
    firsts = {day for day, _ in cells}
    days = [day for day, first in sides.periods.items() if first in firsts]
    first, last = min(days), max(days)
    around = replace(
        scope, since=midnight(first - timedelta(days=1)), until=midnight(last + timedelta(days=2))
    )
    words = ["hour", "model", "origin", "tier", "key", "tag:project", "outcome"]
    if by is Dimension.SESSION:
        words.append("session")

    def further(dialect: str) -> Sequence[sa.ColumnElement[Any]]:
        opened, settled = (
            time_of(moment, "day", dialect)
            for moment in (requests.c.opened_at, requests.c.settled_at)
        )
        is_late = sa.func.coalesce(opened < settled, False)
        return (
            is_late,
            current_charges.c.price_source,
            current_charges.c.amount_picousd.is_not(None),
        )

    rows = _charged(engine, around, words, further, causes.GROUPS_MAX + 1)
    for row in rows:
        hour, model, origin, tier, key, project, outcome, *session, line = row[: len(words) + 1]
        late, source, priced, quantity, picousd = row[len(words) + 1 :]
        opened = datetime.strptime(hour, "%Y-%m-%d %H").replace(tzinfo=UTC)
        by_session = session[0] if session else None
        named = {"model": model, "key": key, "project": project, "session": by_session}[by]
        item = None if is_token_line(line) or by is not Dimension.MODEL else line
        about = Line(day=opened.date(), model=None, item=item, figures={})
        # The factor of regions that is in the price, by the rules that its source names.
        region = Decimal(1)
        for factor, rule in _RULES_IN.findall(source):
            if rule in region_rules():
                region *= Decimal(factor)
        yield Alike(
            opened=opened,
            is_late=bool(late),
            name=name_of(renamed(about, by, sides.name_of(named))),
            model=model or "",
            host=host_of(origin) or origin,
            tier=tier or "",
            key=(key or "")[:FINGERPRINT_SHOWN],
            project=project or "",
            outcome=outcome or "",
            line=line,
            region=region,
            quantity=int(quantity),
            picousd=int(picousd or 0),
            is_priced=bool(priced),
        )


@cache
def region_rules() -> Mapping[str, float]:
    """Published rules with a factor above one that depends on no tier -> the factor."""
    tables = [rule.table for rule in rules.published().rules]
    return {
        table.name: float(table.factor)
        for table in tables
        if table.factor and table.factor > 1 and not table.tiers and not table.lines
    }


def _of(provider: str | None, scope: Scope) -> Scope:
    if provider is None:
        return scope
    return replace(scope, only=(*scope.only, ("provider", provider)))
