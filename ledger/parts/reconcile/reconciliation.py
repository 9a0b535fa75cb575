"""Database. The ledger's own figures as lines of a statement, compared with vendors' statements.

The ledger knows an API key by its fingerprint and last characters, a vendor by an id of its own:
`same` maps them, and applies to projects, too.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.figures.figures import plus
from ledger.figures.queries import report
from ledger.model.errors import LedgerError
from ledger.parts.reconcile import causes
from ledger.parts.reconcile.causes import Cells, Explanation
from ledger.parts.reconcile.comparison import Compared, Dimension, compare, cost_cells, renamed
from ledger.parts.reconcile.single_causes import Alike
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
_WORD_OF = {Dimension.MODEL: "model", Dimension.KEY: "key", Dimension.PROJECT: "tag:project"}
"""The report's dimension for each dimension of a comparison."""


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
    for provider, stated in _by_provider(statements, scope).items():
        days = [line.day for line in stated]
        booked = lines(engine, min(days), max(days), _of(provider, scope), by=by)
        entries += compare(
            [_renamed(line, same or {}, by) for line in booked],
            stated,
            by=by,
            tolerance=tolerance,
        )
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
    for provider, stated in _by_provider(statements, scope).items():
        cells, name_of = cost_cells(stated, by)
        if cells:
            booked = _groups(engine, cells, _of(provider, scope), name_of, by=by, same=same or {})
            found.append((provider or "", causes.explain(booked, cells, tolerance=tolerance)))
    if not found:
        raise LedgerError("the statements have no costs to explain; add a file with costs")
    return tuple(found)


def _by_provider(statements: Iterable[Statement], scope: Scope) -> Mapping[str | None, list[Line]]:
    """The lines of each provider on the days of a scope: whole days, a statement has no smaller."""
    by_provider: dict[str | None, list[Line]] = defaultdict(list)
    for statement in statements:
        by_provider[statement.provider] += [
            line
            for line in statement.lines
            if (scope.since is None or midnight(line.day) >= scope.since)
            and (scope.until is None or midnight(line.day) < scope.until)
        ]
    return {provider: stated for provider, stated in by_provider.items() if stated}


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
    for row in report(engine, ("day", _WORD_OF[by]), within).rows:
        day, name = date.fromisoformat(row.key[0] or ""), row.key[1]
        # As a provider counts: with further iterations, without our estimates.
        all_figures = {
            "requests": row.figures.requests,
            "input_tokens": plus(row.figures.input_tokens, row.figures.extra_input_tokens),
            "cache_read_tokens": row.figures.cache_read_tokens,
            "cache_write_tokens": row.figures.cache_write_tokens,
            "output_tokens": plus(row.figures.output_tokens, row.figures.extra_output_tokens),
            "cost_picousd": row.figures.cost_picousd,
        }
        figures = {key: value for key, value in all_figures.items() if value is not None}
        if "cost_picousd" in figures:
            figures["cost_picousd"] -= apart[day, name]
        found.append(renamed(Line(day=day, model=None, figures=figures), by, name))
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
    *,
    by: Dimension,
    same: Mapping[str, str],
) -> Iterator[Alike]:
    """The charges as causes take them, from a day before the cells to a day after them."""
    first, last = min(day for day, _ in cells), max(day for day, _ in cells)
    around = replace(
        scope, since=midnight(first - timedelta(days=1)), until=midnight(last + timedelta(days=2))
    )
    words = ("hour", "model", "origin", "tier", "key", "tag:project", "outcome")

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
        hour, model, origin, tier, key, project, outcome, line, *about_price = row
        late, source, priced, quantity, picousd = about_price
        opened = datetime.strptime(hour, "%Y-%m-%d %H").replace(tzinfo=UTC)
        named = {"model": model, "key": key, "project": project}[by]
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
            name=name_of(_renamed(renamed(about, by, named), same, by)),
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


def _renamed(line: Line, same: Mapping[str, str], by: Dimension) -> Line:
    """The ledger's line under the vendor's id for its key or project."""
    name = None if by is Dimension.MODEL else getattr(line, by)
    theirs = next((one for one, ours in same.items() if name and name.endswith(ours)), None)
    return line if theirs is None else renamed(line, by, theirs)


def _of(provider: str | None, scope: Scope) -> Scope:
    if provider is None:
        return scope
    return replace(scope, only=(*scope.only, ("provider", provider)))
