"""The sums of a page are those of `report`, however a period lies to the days that have sums."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from ledger.figures.figures import Figures
from ledger.figures.queries import report
from ledger.figures.sums import Span, spans
from ledger.pages import period_sums
from ledger.pages.period import Period
from ledger.store.scope import Scope
from ledger.text.period import DAY
from tests.ledger.pages.conftest import NOW
from tests.ledger.written import charge, put, reading, settled

pytestmark = pytest.mark.large

START = datetime(2026, 11, 12, tzinfo=UTC)

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
            for field in period_sums.FIGURES:
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
    assert Span(since=day, until=day + DAY, has_sums=False) in found
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
        lines = (replace(charge("output", 1, 1), unit_picousd=cost, amount_picousd=cost),)
        put(engine, (exchange, reading(exchange), lines))
    with engine.connect() as connection:
        found = period_sums.read_costliest(connection, Scope(), "session", 1)
    assert {name: each.cost_picousd for name, each in found.shown.items()} == {"s1": 3 * huge}
    assert (found.rest.cost_picousd, found.merged) == (3 * huge + 3, 2)
