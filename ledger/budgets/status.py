"""Database. The spending of each budget in its current period, its state, and its forecast.

The forecast is linear: the spending divided by the part of the period that has passed. Before a
tenth of the period has passed there is no forecast, because one early request would determine it.
Estimated cost is not counted, as in every total.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy.engine import Engine

from ledger.budgets.budgets import Budget
from ledger.figures.queries import totals
from ledger.model.money import usd
from ledger.reports.layout import Amount, Table, TableColumn, amount_of
from ledger.settings.names import Names
from ledger.store.scope import Scope
from ledger.text.figures import counted, money, percent
from ledger.text.period import SPANS, TimeSpan, zone_of

FORECAST_FROM = Decimal("0.1")
"""The part of a period that must have passed."""
FORECAST_METHOD = (
    "forecast: spent so far / share of the period that has passed; none in its first tenth"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """A budget in its current period."""

    budget: Budget
    span: TimeSpan
    now: datetime
    spent_picousd: int
    estimated_picousd: int
    """Never part of `spent_picousd`."""
    requests_without_price: int
    covered_value_picousd: int = 0
    """What plans cover, at list prices: never part of `spent_picousd`."""

    @property
    def used_percent(self) -> Decimal:
        """The spending in per cent of the limit."""
        return Decimal(self.spent_picousd) * 100 / self.budget.limit_picousd

    @property
    def is_over(self) -> bool:
        """Whether more than the limit is spent."""
        return self.spent_picousd > self.budget.limit_picousd

    @property
    def forecast_picousd(self) -> int | None:
        """The spending at the end of the period at the current rate."""
        whole = (self.span.end - self.span.start).total_seconds()
        passed = Decimal((self.now - self.span.start).total_seconds()) / Decimal(whole)
        return (
            int(self.spent_picousd / min(passed, Decimal(1))) if passed >= FORECAST_FROM else None
        )

    @property
    def reached(self) -> tuple[int, ...]:
        """The thresholds that are reached, in per cent."""
        return tuple(
            each for each in sorted(set(self.budget.thresholds)) if self.used_percent >= each
        )

    @property
    def state(self) -> str:
        """`over`, `over soon` by the forecast, `near` from its lowest threshold on, or `ok`."""
        if self.is_over:
            return "over"
        forecast = self.forecast_picousd
        if forecast is not None and forecast > self.budget.limit_picousd:
            return "over soon"
        return "near" if self.reached else "ok"

    @property
    def period_text(self) -> str:
        """`2026-11`, `2026-11-20`, or `week of 2026-11-16`."""
        start = self.span.start
        if self.budget.period == "week":
            return f"week of {start:%Y-%m-%d}"
        return f"{start:%Y-%m}" if self.budget.period == "month" else f"{start:%Y-%m-%d}"


def statuses(
    engine: Engine, budgets: Iterable[Budget], names: Names, now: datetime
) -> list[BudgetStatus]:
    """The status of each budget in the period that contains `now`; one query each."""
    found = []
    for budget in budgets:
        local = now.astimezone(zone_of(budget.timezone))
        span = SPANS[budget.period](local)
        scope = Scope(since=span.start, until=span.end, only=budget.only(), names=names)
        figures = totals(engine, scope)
        found.append(
            BudgetStatus(
                budget=budget,
                span=span,
                now=local,
                spent_picousd=figures.cost_picousd or 0,
                estimated_picousd=figures.estimated_cost_picousd or 0,
                covered_value_picousd=figures.covered_value_picousd or 0,
                requests_without_price=figures.without_price,
            )
        )
    return found


def table(statuses: list[BudgetStatus]) -> Table:
    """One line per budget."""
    return Table(
        columns=(
            TableColumn(name="budget", heading="Budget", is_number=False),
            TableColumn(name="period", heading="TimeSpan", is_number=False, drop=1),
            TableColumn(name="limit", heading="Limit"),
            TableColumn(name="spent", heading="Spent"),
            TableColumn(name="used", heading="Used"),
            TableColumn(name="forecast", heading="Forecast", drop=2),
            TableColumn(name="state", heading="State", is_number=False),
        ),
        rows=tuple(
            (
                status.budget.name,
                status.period_text,
                Amount(picousd=status.budget.limit_picousd),
                Amount(
                    picousd=status.spent_picousd, mark="≥ " if status.requests_without_price else ""
                ),
                percent(status.used_percent / 100),
                amount_of(status.forecast_picousd, "~"),
                status.state,
            )
            for status in statuses
        ),
    )


def document(statuses: list[BudgetStatus]) -> dict[str, Any]:
    """All of it as a document for JSON."""
    return {
        "is_over": any(status.is_over for status in statuses),
        "budgets": [
            {
                "budget": status.budget.name,
                "only": [{"by": word, "value": value} for word, value in status.budget.only()],
                "period": status.budget.period,
                "timezone": status.budget.timezone,
                "period_start": status.span.start.isoformat(),
                "period_end": status.span.end.isoformat(),
                "limit_usd": usd(status.budget.limit_picousd),
                "spent_usd": usd(status.spent_picousd),
                "estimated_usd": usd(status.estimated_picousd),
                "covered_list_value_usd": usd(status.covered_value_picousd),
                "used_percent": status.used_percent.quantize(Decimal("0.1")),
                "forecast_usd": usd(status.forecast_picousd),
                "thresholds": list(status.budget.thresholds),
                "thresholds_reached": list(status.reached),
                "requests_without_price": status.requests_without_price,
                "state": status.state,
            }
            for status in statuses
        ],
    }


def notes(statuses: list[BudgetStatus]) -> list[str]:
    """Warnings that the reader needs to judge the figures."""
    told = (
        [FORECAST_METHOD] if any(status.forecast_picousd is not None for status in statuses) else []
    )
    told += [
        f"{status.budget.name}: {counted(status.requests_without_price, 'request')} without a "
        "price, so what is spent is a lower bound"
        for status in statuses
        if status.requests_without_price
    ]
    told += [
        f"{status.budget.name}: plans cover another {money(status.covered_value_picousd)} at "
        "list prices, which no budget counts"
        for status in statuses
        if status.covered_value_picousd
    ]
    return [*told, "budgets are advisory: they never stop traffic"] if statuses else told
