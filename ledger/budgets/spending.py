"""Database. The spending of each budget in its current period."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.engine import Engine

from ledger.budgets.budgets import Budget
from ledger.budgets.status import BudgetStatus
from ledger.figures.queries import totals
from ledger.settings.names import Names
from ledger.store.scope import Scope
from ledger.text.period import SPANS, zone_of


def statuses(
    engine: Engine, budgets: Iterable[Budget], names: Names, now: datetime
) -> list[BudgetStatus]:
    """The status of each budget in the period that contains `now`; one query each."""
    return [_status(engine, budget, names, now) for budget in budgets]


def _status(engine: Engine, budget: Budget, names: Names, now: datetime) -> BudgetStatus:
    now = now.astimezone(zone_of(budget.timezone))
    span = SPANS[budget.period](now)
    scope = Scope(since=span.start, until=span.end, only=budget.only(), names=names)
    figures = totals(engine, scope)
    return BudgetStatus(
        budget=budget,
        span=span,
        now=now,
        spent_picousd=figures.cost_picousd or 0,
        estimated_picousd=figures.estimated_cost_picousd or 0,
        covered_value_picousd=figures.covered_value_picousd or 0,
        requests_without_price=figures.without_price,
    )
