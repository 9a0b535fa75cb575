"""The digest: the report's figures over whole days, in three formats, harmless whatever names say."""

import json
import shlex
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner

from ledger.budgets.budgets import read
from ledger.figures.queries import report
from ledger.model.exchange import Outcome, State
from ledger.pages import digest
from ledger.pages.period import Period
from ledger.pages.sections import Question, overview
from ledger.store.engines import urls
from ledger.store.scope import Scope
from ledger.text import figures
from ledger.text.period import DAY, WEEK
from tests.app import APP
from tests.ledger.pages.conftest import NOW
from tests.ledger.pages.test_html_file import BUDGETS, Elements, hostile_ledger
from tests.ledger.written import put, settled, whole
from tests.named import for_each


@for_each(
    "now, length, since, until",
    [
        (datetime(2026, 11, 23, tzinfo=UTC), WEEK, "2026-11-16", "2026-11-23"),  # a Monday
        (datetime(2026, 11, 22, 23, 59, tzinfo=UTC), WEEK, "2026-11-09", "2026-11-16"),
        (datetime(2026, 3, 1, 0, 0, 1, tzinfo=UTC), DAY, "2026-02-28", "2026-03-01"),
        (datetime.fromisoformat("2026-11-23T00:30:00+01:00"), DAY, "2026-11-21", "2026-11-22"),
    ],
)
def test_only_whole_days_and_weeks(now, length, since, until):
    period = digest.last_whole(now, length)
    assert (f"{period.since:%Y-%m-%d}", f"{period.until:%Y-%m-%d}") == (since, until)


def test_a_digest_is_of_the_days_of_its_zone():
    now = datetime(2026, 10, 26, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    day, week = (digest.last_whole(now, length) for length in (DAY, WEEK))
    assert (str(day), str(week)) == (
        "25 Oct 2026 Europe/Berlin",
        "19 Oct to 25 Oct 2026 Europe/Berlin",
    )
    assert day.until is not None
    assert day.since is not None
    assert day.until - day.since == timedelta(hours=25)
    assert week.until == day.until


def is_narrow(text):
    lines = [line for line in text.splitlines() if not line.startswith("    tokentee ")]
    return max(map(cell_len, lines)) <= digest.TEXT_WIDTH


@pytest.mark.large
def test_every_format_has_the_figures_of_the_report(weeks):
    period = digest.last_whole(NOW, WEEK)
    found = digest.digest(weeks, period, budgets=BUDGETS)
    total = report(weeks, ["model"], Scope(since=period.since, until=period.until)).total.figures
    text, html, slack = digest.as_text(found), digest.as_html(found), digest.as_slack(found)
    said = "\n".join(block["text"]["text"] for block in slack["blocks"])
    for shown in (text, Elements(html).text, said):
        assert figures.money(total.cost_picousd, is_lower_bound=total.without_price > 0) in shown
        assert figures.requests(total.requests) in shown.replace("\n", " ")
        assert "Budget tight is over" in shown.replace("\n", " ")
    assert is_narrow(text)
    assert "<script" not in html
    assert {tag for tag, _ in Elements(html).tags} & {"link", "img", "script", "iframe"} == set()


@pytest.mark.large
def test_hostile_names_are_harmless(sqlite_engine):
    hostile_ledger(sqlite_engine)
    budgets, _ = read(
        '[[budget]]\nname = "<!channel> \u202e<b>&'
        + "x" * 300
        + '"\nusd = 0.000001\nperiod = "month"'
    )
    for length in (DAY, WEEK):
        end = NOW + timedelta(days=1)
        period = Period(since=end - 60 * length, until=end, now=end)
        found = digest.digest(sqlite_engine, period, budgets=budgets)
        text, html, slack = digest.as_text(found), digest.as_html(found), digest.as_slack(found)
        assert is_narrow(text)
        for shown in (text, html, json.dumps(slack, ensure_ascii=False)):
            assert "\u202e" not in shown
        assert "<b>&" not in html
        assert "<!channel>" not in json.dumps(slack)


@given(st.text(max_size=2_000).map(lambda text: text * 3))
def test_a_block_is_no_longer_than_slack_takes(text):
    written = digest._of_slack(text)
    assert len(written) <= digest.BLOCK_LENGTH_MAX
    assert not {"<", ">"} & set(written)
    for piece in written.split("&")[1:]:
        assert piece.startswith(("amp;", "lt;", "gt;"))


@pytest.mark.large
def test_the_command(weeks_url):
    runner = CliRunner(env={"TOKENTEE_LEDGER": weeks_url})
    for words, begins in (
        ([], "Tokentee: "),
        (["--weekly"], "Tokentee: "),
        (["--format", "html"], "<!doctype html>"),
        (["--daily", "-f", "slack"], '{"text": "Tokentee: '),
    ):
        done = runner.invoke(APP, ["digest", *words])
        assert done.exit_code == 0, done.exception
        assert done.stdout.startswith(begins)
    refused = runner.invoke(APP, ["digest", "--daily", "--weekly"])
    assert "not both" in str(refused.exception)


@pytest.mark.large
def test_its_warnings_are_the_pages(weeks):
    period = digest.last_whole(NOW, WEEK)
    found = digest.digest(weeks, period)
    question = Question(period=period)
    ledger = urls.option(weeks.url)
    assert found.problems == overview(weeks, question, ledger=ledger).problems
    assert all(ledger in one.command for one in found.problems if one.command)


@pytest.mark.large
@pytest.mark.parametrize("only", [(), (("model", "gpt-5"),)])
def test_commands_list_what_a_line_counts(weeks, only, monkeypatch):
    """In a period that is over, from a shell that names no ledger."""
    monkeypatch.delenv("TOKENTEE_LEDGER", raising=False)
    period = Period(since=NOW - timedelta(days=9, hours=3), until=NOW - DAY / 3, now=NOW)
    for at in (NOW, NOW - DAY, NOW - 20 * DAY):
        for name, about in (
            ("degraded", {"degraded": "KeyError"}),
            ("lost", {"state": State.LOST, "outcome": Outcome.LOST}),
        ):
            put(weeks, whole(settled(f"{name}{at}", at=at, response_model="gpt-5", **about)))
    question = Question(period=period, only=only)
    found = overview(weeks, question, ledger=urls.option(weeks.url)).problems
    counted = {}
    for one in found:
        if one.command.startswith("tokentee requests "):
            words = [*shlex.split(one.command)[1:], "-f", "json", "--limit", "200"]
            done = CliRunner().invoke(APP, words)
            counted[one.kind] = (len(json.loads(done.stdout)), one.count)
    assert {"lost", "degraded"} <= counted.keys()
    assert len(counted) == 2 + 2 * (not only)
    assert all(listed == count > 0 for listed, count in counted.values()), counted
