"""The parts of a page have the figures of `report`, and lines that open to their requests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from ledger.figures.queries import report
from ledger.figures.request_list import latest
from ledger.pages import sections
from ledger.pages.period import Period
from ledger.pages.sections import Question
from ledger.settings.names import read as read_names
from tests.ledger.pages.conftest import NOW
from tests.ledger.priced import BOTH, exchange, filled, reading, settled

pytestmark = pytest.mark.large

START = datetime(2026, 11, 12, tzinfo=UTC)


def question(since=START, **more):
    return Question(period=Period(since=since, until=None, now=NOW), **more)


def same(row, figures):
    assert row.sums.requests == figures.requests
    assert row.sums.cost_picousd == figures.cost_picousd
    assert row.sums.unpriced == figures.unpriced + figures.partial
    assert row.sums.output_tokens == figures.output_tokens


@pytest.mark.parametrize("since", [START, None, NOW - timedelta(hours=30)])
def test_teams_are_the_reports(either, since):
    asked = question(since)
    stack, ranking = sections.teams(either, asked)
    expected = {row.key[0]: row.figures for row in report(either, ["tag:team"], asked.scope).rows}
    assert {row.value for row in ranking.rows} == set(expected)
    for row in ranking.rows:
        same(row, expected[row.value])
    assert sum(map(sum, stack.requests)) == sum(each.requests for each in expected.values())


def test_teams_by_the_names_file(weeks):
    names, problems = read_names('[[name]]\nkey_hint = "k3f1"\nname = "CI"\nteam = "Search"\n')
    assert not problems
    asked = question(names=names)
    _, ranking = sections.teams(weeks, asked)
    assert [row.label for row in ranking.rows if row.value] == ["Search"]
    assert "names file" in ranking.note
    expected = {row.key[0]: row.figures for row in report(weeks, ["team"], asked.scope).rows}
    for row in ranking.rows:
        same(row, expected[row.value])
    keys = next(each for each in sections.overview(weeks, asked).rankings if each.name == "key")
    assert "CI" in {row.label for row in keys.rows}


def test_sessions_are_the_reports_and_none_is_last(weeks):
    asked = question()
    ranking = sections.sessions(weeks, asked)
    expected = {row.key[0]: row.figures for row in report(weeks, ["session"], asked.scope).rows}
    named = [row for row in ranking.rows if not row.merged and row.value]
    assert len(named) + 1 >= sections.SESSIONS_MAX
    for row in named:
        same(row, expected[row.value])
    assert ranking.rows[-1].value is None
    total = sum(row.sums.cost_picousd or 0 for row in ranking.rows)
    assert total == sum(each.cost_picousd or 0 for each in expected.values())
    assert sum(row.share for row in ranking.rows) == pytest.approx(1)


def test_times_and_cache_are_the_reports(weeks):
    asked = question()
    found = sections.speed(weeks, asked)
    total = report(weeks, ["day"], asked.scope, is_exact=True).total
    assert found.first_token[0] == total.times.first_token_ms_p50
    assert found.first_token[1] == total.times.first_token_ms_p95
    assert found.duration[1] == total.times.duration_ms_p95
    assert found.saved_picousd == total.figures.saved_picousd
    assert found.estimated == total.figures.estimated
    figures = total.figures
    assert found.hit_rate is not None
    assert figures.cacheable_input_tokens is not None
    assert found.hit_rate * figures.cacheable_input_tokens == pytest.approx(
        figures.cache_read_tokens
    )


def test_a_short_period_is_shown_by_the_hour(weeks):
    asked = question(NOW - timedelta(hours=20))
    assert sections.overview(weeks, asked).stacks[0].bar == "hour"
    assert sections.speed(weeks, asked).charts[0].bars[0].count(" ") == 1


def test_a_line_opens_to_its_latest_requests(weeks):
    asked = question()
    overview = sections.overview(weeks, asked)
    with weeks.connect() as connection:
        for ranking in overview.rankings:
            opened = sections.with_requests(connection, ranking, asked)
            for row in opened.rows:
                assert 0 < len(row.requests) <= sections.REQUESTS_IN_ROW
                moments = [each.opened_at for each in row.requests]
                assert moments == sorted(moments, reverse=True)
                for one in row.requests:
                    assert one.opened_at >= START
                    if ranking.name == "model":
                        assert one.model == row.value
                    amounts = [line.amount_picousd for line in one.charges]
                    known = [amount for amount in amounts if amount is not None]
                    assert one.cost_picousd == (sum(known) if known else None)


def test_what_is_unusual_is_found(weeks):
    found = sections.odd(weeks, question())
    assert found.is_judged
    assert "median absolute deviation" in found.method
    assert any(one.day == datetime(2026, 11, 17, tzinfo=UTC).date() for one in found.days)


def test_keys_that_end_alike_are_told_apart():
    hints = {"a" * 32: "1111", "b" * 32: "1111", "c" * 32: "2222", "d" * 32: None, None: None}
    assert sections.key_labels(hints) == {
        None: "(no key)",
        "a" * 32: "aaaaaaaa …1111",
        "b" * 32: "bbbbbbbb …1111",
        "c" * 32: "…2222",
        "d" * 32: "dddddddd",
    }


@pytest.fixture(params=BOTH)
def of_unknown_tiers(request, tmp_path_factory):
    """Two requests of a tier that no rule knows, one of another, before the period a third."""
    yield from filled(
        request,
        tmp_path_factory,
        [
            (
                settled(exchange("gpt-4.1", id=f"{tier}{number}", at=at, service_tier=tier)),
                reading(output_tokens=10),
            )
            for number, (tier, at) in enumerate(
                [("hyper", NOW - timedelta(hours=1))] * 2
                + [("warp", NOW - timedelta(hours=2)), ("old", START - timedelta(days=1))]
            )
        ],
    )


def test_billing_fields_that_no_rule_knows_are_named(of_unknown_tiers):
    (problem,) = sections.overview(of_unknown_tiers, question()).problems
    assert problem.kind == "unpriced"
    assert (
        "gpt-4.1 (3); service_tier 'hyper': no price for it is known; "
        "service_tier 'warp': no price for it is known;" in problem.advice
    )
    assert "'old'" not in problem.advice


def test_a_few_requests_stand_for_themselves(weeks):
    asked = question(NOW - timedelta(days=10))
    with weeks.connect() as connection:
        every = latest(connection, asked.scope, limit=50).requests
        (session,) = [each.session_id for each in every if each.session_id][:1]
        alone = replace(asked, only=(("session", session),))
        for one, is_few in ((asked, False), (alone, True)):
            total = report(weeks, [], one.scope).total.figures
            found = sections.few(connection, one, total)
            assert len(found) == (total.requests if is_few else 0)
    assert sections.odd(weeks, alone).method == ""
    assert "unusual" not in {each.kind for each in sections.overview(weeks, alone).problems}


def test_a_line_opens_to_its_last_day_of_the_zone():
    now = datetime(2026, 11, 9, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    asked = Question(period=Period(since=None, until=None, now=now), only=(("team", "ads"),))
    scope = sections.row_scope(asked, ("model", "a"), "2026-10-25")
    assert scope.since == datetime(2026, 10, 24, 22, tzinfo=UTC)
    assert scope.until == datetime(2026, 10, 25, 23, tzinfo=UTC)  # of 25 hours
    assert scope.only == (("team", "ads"), ("model", "a"))
    assert scope.zone == now.tzinfo
