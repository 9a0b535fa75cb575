"""The parts of a page have the figures of `report`, and lines that open to their requests. The sums of a
page are those of `report`, however a period lies to the days that have sums."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from msgspec import structs

from ledger.figures.figures import Figures
from ledger.figures.queries import report
from ledger.figures.request_list import latest
from ledger.figures.sum_query import SumSpan, spans
from ledger.parts.pages import period_sums, sections
from ledger.parts.pages.period import Period
from ledger.parts.pages.sections import Question
from ledger.settings.names import read as read_names
from ledger.store.scope import Scope
from ledger.text.period import DAY
from tests.ledger import priced
from tests.ledger.parts.pages.conftest import NOW
from tests.ledger.written import charge, put, settled, whole

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
    assert {"Search", "search"} <= {row.label for row in ranking.rows}  # "search" by the tag
    expected = {row.key[0]: row.figures for row in report(weeks, ["team"], asked.scope).rows}
    assert {row.value for row in ranking.rows} == set(expected)
    assert ranking.note == "by the names file, else by the tag team"
    for row in ranking.rows:
        same(row, expected[row.value])
    keys = next(each for each in sections.overview(weeks, asked).rankings if each.name == "key")
    assert "CI" in {row.label for row in keys.rows}


def test_sessions_are_the_reports_and_none_is_last(weeks):
    asked = question()
    ranking = sections.sessions(weeks, asked)
    expected = {row.key[0]: row.figures for row in report(weeks, ["session"], asked.scope).rows}
    named = [row for row in ranking.rows if not row.merged and row.value]
    assert len(named) + 1 >= sections.SESSION_ROWS_MAX
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


@pytest.fixture(params=priced.BOTH)
def with_a_dear_day(request, tmp_path_factory):
    """A request a day; that of yesterday cost ten times as much."""
    yield from priced.filled(
        request,
        tmp_path_factory,
        [
            (
                priced.settled(
                    priced.exchange("gpt-4.1", id=f"of-{day}", at=NOW - timedelta(days=day))
                ),
                priced.reading(output_tokens=1_000_000 if day == 1 else 100_000),
            )
            for day in range(10)
        ],
    )


def test_what_is_unusual_is_found(with_a_dear_day):
    (problem,) = sections.overview(with_a_dear_day, question()).problems
    yesterday = NOW - timedelta(days=1)
    assert (problem.kind, problem.count) == ("unusual", 1)
    assert problem.advice.startswith(f"{yesterday.day} {yesterday:%b} cost $8.")


def test_a_key_is_spelled_as_in_reports():
    hints = {"a" * 32: "1111", "b" * 32: "1111", "c" * 32: "2222", "d" * 32: None, None: None}
    assert sections.key_labels(hints) == {
        None: "(no key)",
        "a" * 32: "…1111 (aaaaaa)",
        "b" * 32: "…1111 (bbbbbb)",
        "c" * 32: "…2222 (cccccc)",
        "d" * 32: "key dddddd",
    }


@pytest.fixture(params=priced.BOTH)
def of_unknown_tiers(request, tmp_path_factory):
    """Two requests of a tier that no rule knows, one of another, before the period a third."""
    yield from priced.filled(
        request,
        tmp_path_factory,
        [
            (
                priced.settled(
                    priced.exchange("gpt-4.1", id=f"{tier}{number}", at=at, service_tier=tier)
                ),
                priced.reading(output_tokens=10),
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
    assert "unusual" not in {each.kind for each in sections.overview(weeks, alone).problems}


def test_a_line_opens_to_its_last_day_of_the_zone():
    now = datetime(2026, 11, 9, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    asked = Question(period=Period(since=None, until=None, now=now), only=(("team", "ads"),))
    scope = sections.row_scope(asked, ("model", "a"), "2026-10-25")
    assert scope.since == datetime(2026, 10, 24, 22, tzinfo=UTC)
    assert scope.until == datetime(2026, 10, 25, 23, tzinfo=UTC)  # of 25 hours
    assert scope.only == (("team", "ads"), ("model", "a"))
    assert scope.zone == now.tzinfo


PERIODS = [
    pytest.param(START, None, (), id="whole-days-and-today"),
    pytest.param(START + timedelta(hours=7), NOW - timedelta(hours=30), (), id="cut-days"),
    pytest.param(None, None, (), id="everything"),
    pytest.param(NOW - timedelta(hours=5), None, (), id="hours"),
    pytest.param(START, START, (), id="nothing"),
    pytest.param(START, None, (("model", "gpt-5"),), id="a-model"),
    pytest.param(START, None, (("tag:team", "search"), ("provider", "openai")), id="a-team"),
]


def same_as_report(engine, since, until, only):
    period = Period(since=since, until=until, now=NOW)
    with engine.connect() as connection:
        table = period_sums.read(connection, period, Scope(only=only))
    scope = Scope(since=since, until=until, only=only)
    for word in ("model", "provider", "key"):
        found = report(engine, [word], scope, is_exact=True)
        expected = {row.key[0]: row.figures for row in found.rows}
        shown = table.by_name(word)
        assert shown.keys() == expected.keys()
        for name, figures in expected.items():
            one = shown[name]
            for field in period_sums.PAGE_FIGURES:
                # A page reads no state of its own of those that are priced in part.
                is_state = field in ("unpriced", "partial")
                field = "without_price" if is_state else field  # noqa: PLW2901
                assert getattr(one, field) == getattr(figures, field), field
        assert table.total().cost_picousd == found.total.figures.cost_picousd
    return table


@pytest.mark.parametrize(("since", "until", "only"), PERIODS)
def test_every_figure_is_the_reports(either, since, until, only):
    same_as_report(either, since, until, only)


def test_a_day_that_changed_since_it_was_summed_up_is_added_up_anew(weeks):
    day = START + timedelta(days=3)
    with weeks.begin() as connection:
        changed = connection.execute(
            sa.text(
                "UPDATE exchanges SET duplicate_of = 'another' WHERE id IN (SELECT id FROM "
                "exchanges WHERE opened_at >= :a AND opened_at < :b AND duplicate_of IS NULL LIMIT 4)"
            ),
            {"a": f"{day:%Y-%m-%d}", "b": f"{day + timedelta(days=1):%Y-%m-%d}"},
        ).rowcount
    assert changed == 4
    with weeks.connect() as connection:
        found = spans(connection, START, None, step=DAY)
    assert SumSpan(since=day, until=day + DAY, has_sums=False) in found
    same_as_report(weeks, START, None, ())


def test_many_changed_days_are_added_up_in_one_stretch(weeks):
    with weeks.begin() as connection:
        connection.execute(sa.text("UPDATE exchanges SET duplicate_of = 'x' WHERE rowid % 5 = 0"))
    with weeks.connect() as connection:
        found = spans(connection, START, None, step=DAY)
    assert len(found) < 4
    same_as_report(weeks, START, None, ())


def test_by_the_hour(weeks):
    since = NOW - timedelta(hours=24)
    with weeks.connect() as connection:
        table = period_sums.read(
            connection, Period(since=since, until=None, now=NOW), Scope(), by_hour=True
        )
    found = report(weeks, ["hour", "model"], Scope(since=since))
    assert table.groups["model"].keys() == {row.key for row in found.rows}


def test_troubles_are_counted(either):
    period = Period(since=None, until=None, now=NOW)
    with either.connect() as connection:
        counts = period_sums.count_troubles(connection, period)
        known = connection.execute(
            sa.text(
                "SELECT COUNT(CASE WHEN state = 'lost' THEN 1 END), COUNT(degraded), "
                "COUNT(duplicate_of), COUNT(CASE WHEN state = 'open' THEN 1 END) FROM exchanges"
            )
        ).one()
    assert (counts.lost, counts.degraded, counts.duplicates, counts.still_open) == tuple(known)


def test_an_empty_ledger_has_no_sums(engine):
    with engine.connect() as connection:
        assert period_sums.first_request(connection) is None
        table = period_sums.read(connection, Period(since=None, until=None, now=NOW), Scope())
        counts = period_sums.count_troubles(connection, Period(since=None, until=None, now=NOW))
    assert table.total() == Figures()
    assert table.by_name("model") == {}
    assert counts == period_sums.ProblemCounts()


@pytest.mark.parametrize("word", ["session", "model", "key", "tag:team"])
@pytest.mark.parametrize("only", [(), (("model", "gpt-5"),), (("model", "none"),)])
def test_the_database_ranks_groups_as_python_does(either, word, only):
    scope = Scope(since=START, only=only)
    with either.connect() as connection:
        by_name = period_sums.read_by(connection, scope, word, time="day").by_name(word)
        count = len(by_name)
        for rows_max in {1, 2, 3, 15, *range(max(1, count - 2), count + 2)}:
            ranked = period_sums.read_costliest(connection, scope, word, rows_max)
            expected = period_sums.costliest_of(by_name, rows_max)
            assert list(ranked.shown.items()) == list(expected.shown.items())
            assert (ranked.rest, ranked.merged) == (expected.rest, expected.merged)


def test_costs_beyond_64_bits_are_ranked(engine):
    huge = 2**62
    for number in range(9):
        exchange = settled(f"a{number}", at=NOW, session_id=f"s{number % 3}")
        cost = huge if number % 3 else 1
        lines = (structs.replace(charge("output", 1, 1), unit_picousd=cost, amount_picousd=cost),)
        put(engine, whole(exchange, lines))
    with engine.connect() as connection:
        found = period_sums.read_costliest(connection, Scope(), "session", 1)
    assert {name: each.cost_picousd for name, each in found.shown.items()} == {"s1": 3 * huge}
    assert (found.rest.cost_picousd, found.merged) == (3 * huge + 3, 2)
