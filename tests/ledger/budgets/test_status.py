"""How far a budget is used."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from ledger.budgets.budgets import Budget
from ledger.budgets.status import BudgetStatus, document, notes, period_text, table
from ledger.reports.layout import Amount
from ledger.text.period import SPANS

USD = 10**12
NOW = datetime(2026, 11, 16, tzinfo=UTC)
"""Half of November; a Monday."""


def status(spent=10 * USD, *, period="month", now=NOW, usd=100, **more):
    budget = Budget(name="search", usd=usd, period=period, thresholds=[80, 50, 100])
    return BudgetStatus(
        budget=budget,
        span=SPANS[period](now),
        now=now,
        spent_picousd=spent,
        estimated_picousd=0,
        requests_without_price=0,
        **more,
    )


@pytest.mark.parametrize(
    ("spent", "used", "forecast", "reached", "state"),
    [
        (0, 0, 0, (), "ok"),
        (40 * USD, 40, 80 * USD, (), "ok"),
        (50 * USD, 50, 100 * USD, (50,), "near"),
        (51 * USD, 51, 102 * USD, (50,), "over soon"),
        (100 * USD, 100, 200 * USD, (50, 80, 100), "over soon"),
        (101 * USD, 101, 202 * USD, (50, 80, 100), "over"),
    ],
)
def test_a_status(spent, used, forecast, reached, state):
    found = status(spent)
    assert (found.used_percent, found.forecast_picousd) == (used, forecast)
    assert (found.reached, found.state) == (reached, state)


def test_there_is_no_forecast_before_a_tenth_of_the_period():
    start = datetime(2026, 11, 1, tzinfo=UTC)
    assert status(now=start + timedelta(days=3) - timedelta(seconds=1)).forecast_picousd is None
    assert status(now=start + timedelta(days=3)).forecast_picousd == 100 * USD


def test_as_a_table():
    (row,) = table([status()]).rows
    spent, forecast = Amount(picousd=10 * USD), Amount(picousd=20 * USD, mark="~")
    assert row == ("search", "2026-11", Amount(picousd=100 * USD), spent, "10%", forecast, "ok")
    unpriced = replace(status(), requests_without_price=2)
    partly = table([unpriced]).rows[0][3]
    assert isinstance(partly, Amount)
    assert partly.mark == "≥ "


@pytest.mark.parametrize(
    ("period", "text"),
    [("day", "2026-11-16"), ("week", "week of 2026-11-16"), ("month", "2026-11")],
)
def test_the_period_in_words(period, text):
    assert period_text(status(period=period)) == text


def test_as_a_document():
    found = document([status(101 * USD)])
    assert found["is_over"] is True
    (budget,) = found["budgets"]
    assert budget["spent_usd"] == 101
    assert budget["used_percent"] == Decimal("101.0")
    assert budget["period_end"] == "2026-12-01T00:00:00+00:00"
    assert document([])["is_over"] is False


def test_what_the_reader_must_know():
    told = notes([replace(status(), requests_without_price=1)])
    assert told[0].startswith("forecast: what is spent / the part of the period")
    assert "search: 1 request without a price" in told[1]
    assert told[-1] == "budgets are advisory: they never stop traffic"
    assert notes([]) == []
