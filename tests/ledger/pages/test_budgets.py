"""Budgets on the page: the figures of `tokentee budget`, as a file and live."""

from datetime import UTC, datetime

import pytest

from ledger.budgets.budgets import read
from ledger.budgets.status import statuses
from ledger.pages import html_file, rendering
from ledger.pages.period import last_days
from ledger.pages.sections import Question, overview
from ledger.settings.names import NO_NAMES
from ledger.store.scope import Scope
from ledger.text import figures
from tests.ledger.pages.conftest import NOW

pytestmark = pytest.mark.large

TEXT = """
    [[budget]]
    name = "<b>all of it</b>"
    usd = 1_000_000
    period = "month"

    [[budget]]
    name = "tight"
    usd = 0.01
    period = "month"
"""
BUDGETS, _ = read(TEXT)


def test_each_budget_is_a_line_with_its_figures(weeks):
    text = html_file.page(weeks, Scope(), now=NOW, budgets=BUDGETS)
    assert 'data-part="budgets"' in text
    for one in statuses(weeks, BUDGETS.budgets, NO_NAMES, NOW):
        assert figures.exact_money(one.spent_picousd) in text
        assert f">{one.state}<" in text
    assert "<b>all of it" not in text
    assert "&lt;b&gt;all of it" in text
    assert "budgets are advisory: they never stop traffic" in text


def test_without_budgets_there_is_no_such_part(weeks):
    assert 'data-part="budgets"' not in html_file.page(weeks, Scope(), now=NOW)


def test_a_forecast_that_is_too_early_is_left_out(weeks):
    early = datetime(2026, 11, 1, 1, tzinfo=UTC)
    text = rendering.macro("budgets", statuses(weeks, BUDGETS.budgets, NO_NAMES, early))
    assert '<td class="n wide">–</td>' in text


def test_budgets_of_everything_are_lines_in_the_chart(weeks):
    question = Question(period=last_days(10, NOW))
    statuses_ = statuses(weeks, BUDGETS.budgets, NO_NAMES, NOW)
    found = overview(weeks, question, (), statuses_).levels
    limits = {one.name: one.microusd for one in found if one.name.startswith("budget")}
    assert limits == {"budget <b>all of it</b>": 10**12 // 30, "budget tight": 10**4 // 30}
    spent = statuses_[0].spent_picousd
    (pace, _) = [one.microusd for one in found if one.name.startswith("at this pace")]
    passed = (NOW - NOW.replace(day=1, hour=0, minute=0)).total_seconds() / 86_400
    assert pace == pytest.approx(spent / passed / 10**6, rel=0.001)
    only = Question(period=question.period, only=(("model", "gpt-5"),))
    assert overview(weeks, only, (), statuses_).levels == ()
    assert "<b>all" not in html_file.page(weeks, Scope(), now=NOW, budgets=BUDGETS)
