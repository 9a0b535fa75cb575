"""Database. The ledger's own figures as lines of a statement, and providers' beside them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from sqlalchemy.engine import Engine

from ledger.reconcile.comparison import Entry, compare
from ledger.reconcile.statements import Line, Statement
from ledger.reports.figures import Figures, plus
from ledger.reports.queries import Scope, report


def reconcile(
    engine: Engine, statements: Iterable[Statement], scope: Scope, *, tolerance: Decimal
) -> tuple[Entry, ...]:
    """The statements of each provider together, beside the ledger over the days they speak of."""
    by_provider: dict[str | None, list[Line]] = defaultdict(list)
    for statement in statements:
        by_provider[statement.provider] += [
            line for line in statement.lines if _is_within(line.day, scope)
        ]
    entries: list[Entry] = []
    for provider, stated in by_provider.items():
        if stated:
            days = [line.day for line in stated]
            booked = lines(engine, min(days), max(days), _of(provider, scope))
            entries += compare(booked, stated, tolerance=tolerance)
    return tuple(entries)


def lines(engine: Engine, first: date, last: date, scope: Scope) -> list[Line]:
    """The ledger day by day and model by model, both days included."""
    within = replace(scope, since=_begin(first), until=_begin(last + timedelta(days=1)))
    return [
        Line(
            day=date.fromisoformat(row.key[0] or ""),
            model=row.key[1],
            figures={name: value for name, value in _figures(row.figures) if value is not None},
        )
        for row in report(engine, ("day", "model"), within).rows
    ]


def _figures(figures: Figures) -> Iterator[tuple[str, int | None]]:
    """What a provider counts: further iterations are in its sums, our estimates are not."""
    yield "requests", figures.requests
    yield "input_tokens", plus(figures.input_tokens, figures.extra_input_tokens)
    yield "cache_read_tokens", figures.cache_read_tokens
    yield "cache_write_tokens", figures.cache_write_tokens
    yield "output_tokens", plus(figures.output_tokens, figures.extra_output_tokens)
    yield "cost_picousd", figures.cost_picousd


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
