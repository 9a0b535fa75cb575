"""Database. The ledger's own figures as lines of a statement, compared with vendors' statements.

The ledger knows an API key by its fingerprint and last characters, a vendor by an id of its own:
`same` maps them, and applies to projects, too.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.figures.figures import Figures, plus
from ledger.figures.queries import report
from ledger.reconcile.comparison import Dimension, Entry, compare
from ledger.reconcile.statement import Line, Statement
from ledger.reports.explain import is_token_line
from ledger.store.adding_up import SPLIT
from ledger.store.current import current_charge
from ledger.store.dimensions import dimension
from ledger.store.requests_view import is_billed, requests
from ledger.store.scope import Scope, conditions, snapshot
from ledger.store.tables import charges

_WORDS = {Dimension.MODEL: "model", Dimension.KEY: "key", Dimension.PROJECT: "tag:project"}
"""The report's dimension for each dimension of a comparison."""


def reconcile(
    engine: Engine,
    statements: Iterable[Statement],
    scope: Scope,
    *,
    by: Dimension = Dimension.MODEL,
    same: Mapping[str, str] | None = None,
    tolerance: Decimal,
) -> tuple[Entry, ...]:
    """Compare the statements of each provider with the ledger, over the days that they cover.

    `same`: a vendor's id of a key or project -> the end of the ledger's name for it.
    """
    by_provider: dict[str | None, list[Line]] = defaultdict(list)
    for statement in statements:
        by_provider[statement.provider] += [
            line for line in statement.lines if _is_within(line.day, scope)
        ]
    entries: list[Entry] = []
    for provider, stated in by_provider.items():
        if stated:
            days = [line.day for line in stated]
            within = _of(provider, scope)
            booked = lines(engine, min(days), max(days), within, by=by)
            entries += compare(
                [_renamed(line, same or {}, by) for line in booked],
                stated,
                by=by,
                tolerance=tolerance,
            )
    return tuple(entries)


def lines(
    engine: Engine, first: date, last: date, scope: Scope, *, by: Dimension = Dimension.MODEL
) -> list[Line]:
    """The ledger by day and `by`, both days included. By model, each charge for anything but tokens
    is a line of its own, with the charge line's name as its item."""
    within = replace(scope, since=_begin(first), until=_begin(last + timedelta(days=1)))
    items = _items(engine, within) if by is Dimension.MODEL else []
    apart: dict[tuple[date, str | None], int] = defaultdict(int)
    for item in items:
        apart[item.day, item.model] += item.figures["cost_picousd"]
    found = list(items)
    for row in report(engine, ("day", _WORDS[by]), within).rows:
        day, name = date.fromisoformat(row.key[0] or ""), row.key[1]
        figures = {key: value for key, value in _figures(row.figures) if value is not None}
        if "cost_picousd" in figures:
            figures["cost_picousd"] -= apart[day, name]
        found.append(
            Line(
                day=day,
                model=name if by is Dimension.MODEL else None,
                key=name if by is Dimension.KEY else None,
                project=name if by is Dimension.PROJECT else None,
                figures=figures,
            )
        )
    return found


def _items(engine: Engine, scope: Scope) -> list[Line]:
    """Current charges for anything but tokens, by day, model and line."""
    with snapshot(engine) as connection:
        dialect = connection.dialect.name
        names = (dimension("day", dialect), requests.c.model, charges.c.line)
        rows = connection.execute(
            sa.select(
                *names,
                sa.func.sum(charges.c.amount_picousd // SPLIT),
                sa.func.sum(charges.c.amount_picousd % SPLIT),
            )
            .select_from(
                requests.join(
                    charges,
                    (charges.c.opened_at == requests.c.opened_at)
                    & (charges.c.exchange_id == requests.c.id)
                    & (charges.c.reading_id == requests.c.reading_id)
                    & current_charge(charges),
                )
            )
            .where(charges.c.amount_picousd.is_not(None), is_billed(), *conditions(scope, dialect))
            .group_by(*names)
        ).all()
    return [
        Line(
            day=date.fromisoformat(day),
            model=model,
            item=line,
            figures={"cost_picousd": int(high) * SPLIT + int(low)},
        )
        for day, model, line, high, low in rows
        if not is_token_line(line)
    ]


def _figures(figures: Figures) -> Iterator[tuple[str, int | None]]:
    """The figures as a provider counts: with further iterations, without our estimates."""
    yield "requests", figures.requests
    yield "input_tokens", plus(figures.input_tokens, figures.extra_input_tokens)
    yield "cache_read_tokens", figures.cache_read_tokens
    yield "cache_write_tokens", figures.cache_write_tokens
    yield "output_tokens", plus(figures.output_tokens, figures.extra_output_tokens)
    yield "cost_picousd", figures.cost_picousd


def _renamed(line: Line, same: Mapping[str, str], by: Dimension) -> Line:
    """The ledger's line under the vendor's id for its key or project."""
    name = {Dimension.KEY: line.key, Dimension.PROJECT: line.project}.get(by)
    theirs = next((one for one, ours in same.items() if name and name.endswith(ours)), None)
    if theirs is None:
        return line
    return replace(line, key=theirs) if by is Dimension.KEY else replace(line, project=theirs)


def _of(provider: str | None, scope: Scope) -> Scope:
    if provider is None:
        return scope
    return replace(scope, only=(*scope.only, ("provider", provider)))


def _is_within(day: date, scope: Scope) -> bool:
    """Whole days: a statement has no smaller ones."""
    after = scope.since is None or _begin(day) >= scope.since
    return after and (scope.until is None or _begin(day) < scope.until)


def _begin(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
