"""Budgets on the page: the figures of `tokentee budget`, lines in the chart, and what is wrong."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from ledger.parts.budgets import on_page
from ledger.parts.budgets.budgets_file import read
from ledger.parts.budgets.caps import NOTHING
from ledger.parts.budgets.status import Status, notes, statuses
from ledger.parts.pages import html_file, rendering
from ledger.parts.pages.period import last_days
from ledger.parts.pages.sections import Question, overview
from ledger.settings.names import NO_NAMES
from ledger.store.scope import Scope
from ledger.text import figures
from ledger.text.period import TimeSpan
from tests.ledger.parts.pages.conftest import NOW

USD = 10**12


def spent(budget, usd, start, days):
    return Status(
        cap=budget,
        span=TimeSpan(start=start, end=start + timedelta(days=days)),
        since=start,
        now=NOW,
        spent=NOTHING._replace(usd=int(usd * USD)),
    )


TEXT = """
    [[budget]]
    name = "<b>all of it</b>"
    usd = 1_000_000
    period = "month"

    [[budget]]
    name = "tight"
    usd = 0.01
    period = "month"

    [[cap]]
    name = "nightly"
    usd = 20_000
    period = "month"
"""
BUDGETS, _ = read(TEXT)


@pytest.fixture
def in_force(tmp_path, monkeypatch):
    """The budgets file that the page reads."""
    path = tmp_path / "budgets.toml"
    path.write_text(TEXT)
    monkeypatch.setenv("TOKENTEE_BUDGETS", str(path))


@pytest.mark.usefixtures("in_force")
def test_each_budget_is_a_line_with_its_figures(weeks):
    text = html_file.page(weeks, Scope(), now=NOW)
    assert 'data-part="budgets"' in text
    for one in statuses(weeks, BUDGETS.budgets, NO_NAMES, NOW):
        assert figures.exact_money(one.spent_picousd) in text
        assert f">{one.state}<" in text
    assert "<b>all of it" not in text
    assert "&lt;b&gt;all of it" in text
    assert "budgets are advisory: they never stop traffic" in text
    assert '<td class="name">nightly</td>' in text
    assert '<td class="n">$20,000.00</td>' in text


def test_without_budgets_there_is_no_such_part(weeks):
    text = html_file.page(weeks, Scope(), now=NOW)
    assert 'data-part="budgets"' not in text
    assert 'data-part="caps"' not in text


def test_a_forecast_that_is_too_early_is_left_out(weeks):
    early = datetime(2026, 11, 1, 1, tzinfo=UTC)
    found = statuses(weeks, BUDGETS.budgets, NO_NAMES, early)
    text = rendering.section(on_page.BUDGETS, {"statuses": found, "notes": notes(found)})
    assert '<td class="n wide">–</td>' in text


@pytest.mark.usefixtures("in_force")
def test_budgets_of_everything_are_lines_in_the_chart(weeks):
    question = Question(period=last_days(10, NOW))
    found = overview(weeks, question).levels
    limits = {one.name: one.microusd for one in found if one.name.startswith("budget")}
    assert limits == {"budget <b>all of it</b>": 10**12 // 30, "budget tight": 10**4 // 30}
    spent = statuses(weeks, BUDGETS.budgets, NO_NAMES, NOW)[0].spent_picousd
    (pace, _) = [one.microusd for one in found if one.name.startswith("at this pace")]
    passed = (NOW - NOW.replace(day=1, hour=0, minute=0)).total_seconds() / 86_400
    assert pace == pytest.approx(spent / passed / 10**6, rel=0.001)
    only = Question(period=question.period, only=(("model", "gpt-5"),))
    assert overview(weeks, only).levels == ()
    assert "<b>all" not in html_file.page(weeks, Scope(), now=NOW)


def test_a_card_with_nothing_in_it_is_not_shown():
    text = rendering.section(on_page.BUDGETS, {"statuses": [], "notes": []})
    assert " hidden>" in text.splitlines()[0]


ONE_OVER = """
[[budget]]
name = "over"
model = "a b; rm -rf ~"
usd = 1
period = "month"

[[budget]]
name = "fine"
usd = 1_000
period = "month"
"""


def test_a_budget_that_x():
    budgets, _ = read(ONE_OVER)
    start = NOW.replace(day=1, hour=0, minute=0)
    found = [spent(budget, 1.21, start, 30) for budget in budgets.budgets]
    (first,) = on_page.problems_of(found, NOW, "")
    assert (first.kind, first.level) == ("budget", "bad")
    assert first.headline == "Budget over is over: $1.21 of $1.00"
    assert "121%" in first.advice
    assert first.command.endswith("--only 'model=a b; rm -rf ~'")


def test_the_command_names_the_zone_whose_days_it_means():
    text = '[[budget]]\nname = "a"\nusd = 1\nperiod = "day"\ntimezone = "Asia/Tokyo"\n'
    (budget,) = read(text)[0].budgets
    now = NOW.astimezone(ZoneInfo("Pacific/Kiritimati"))
    (over,) = on_page.problems_of([spent(budget, 2, NOW, 1)], now, "")
    assert over.command.endswith("--since 2026-11-21 --timezone Asia/Tokyo")
