"""The budgets file, and how far a budget is used."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from ledger.budgets.budgets import Budget, read
from ledger.budgets.status import BudgetStatus, document, notes, table
from ledger.reports.layout import Amount
from ledger.text.period import SPANS

FILE = """
[[budget]]
name = "search"
team = ["search", "ads*"]
tag = "env=prod"
usd = 0.5
period = "month"
thresholds = [50, 100]

[[budget]]
name = "all"
usd = 1_000
period = "day"

[[alert]]
webhook = "https://hooks.example.com/T0/secret"

[[alert]]
log = true
"""


DAILY = '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\n'
NO_ZONE = "not a time zone: 'Europe/Berlni'; did you mean 'Europe/Berlin'"


def test_a_file():
    found, problems = read(FILE)
    assert problems == []
    search, everything = found.budgets
    assert search.only() == (("team", "search"), ("team", "ads*"), ("tag:env", "prod"))
    assert search.limit_picousd == 5 * 10**11
    assert (everything.only(), everything.thresholds) == ((), [80, 100])
    assert [each.log for each in found.destinations] == [None, True]


def test_a_webhook_is_never_shown():
    found, _ = read(FILE)
    assert "secret" not in repr(found)
    assert repr(found.destinations[0]) == "Destination(webhook)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[budget]]\nname = "x"\nperiod = "day"', "line 1: budget 1: usd: missing"),
        ('[[budget]]\nname = " "\nusd = 1\nperiod = "day"', "line 2: budget 1: name: empty"),
        ('[[budget]]\nname = "x"\nusd = 0\nperiod = "day"', "line 3: budget 1: usd: 0 is not an"),
        ('[[budget]]\nname = "x"\nusd = 1e400\nperiod = "day"', "line 3: budget 1: usd: 1E+400"),
        ('[[budget]]\nname = "x"\nusd = nan\nperiod = "day"', "line 3: budget 1: usd: NaN is not"),
        ('[[budget]]\nname = "x"\nusd = 1\nperiod = "year"', "line 4: budget 1: period: invalid"),
        (DAILY + "thresholds = [0]", "line 5: budget 1: thr"),
        (DAILY + "thresholds = []", "line 5: budget 1: thr"),
        (DAILY + "model = []", "line 5: budget 1: model: e"),
        (DAILY + 'tag = "x"', "line 5: budget 1: tag: 'x' is"),
        (DAILY + 'taem = "x"', "line 5: budget 1: taem: unkno"),
        (DAILY * 2, "line 2: budget 1: name: 'x' is the name of several budgets"),
        (DAILY + 'timezone = "Europe/Berlni"', f"line 5: budget 1: timezone: {NO_ZONE}"),
        ("[[alert]]", "line 1: alert 1: log: give one of webhook, webhook_env"),
        ('[[alert]]\nlog = true\ncommand = ["x"]', "line 2: alert 1: log: give one of"),
        ('[[alert]]\nwebhook = "ftp://secret"', "line 2: alert 1: webhook: not a URL"),
        ('[[alert]]\nwebhook = "https://[secret"', "line 2: alert 1: webhook: not a URL"),
        ("budgets = 1", "line 1: budgets: unknown; did you mean 'budget'?"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, problem):
    _, problems = read(text)
    assert str(problems[0]).startswith(problem)
    assert "secret" not in str(problems[0])


def test_there_are_bounds():
    budget = '[[budget]]\nname = "{0}"\nusd = 1\nperiod = "day"\n'
    found, problems = read("".join(budget.format(n) for n in range(1001)))
    assert (len(found.budgets), str(problems[0])) == (1000, "more than 1000 budgets")


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
    assert status(period=period).period_text == text


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
