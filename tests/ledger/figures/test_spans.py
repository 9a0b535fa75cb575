"""Spans lie side by side, cover a period once, and use the sums of all days that have some.

A report of a period is the same before and after its days are summed up: each period of whole days
and hours, each table of sums, whichever days were written to since."""

import itertools
from datetime import UTC, datetime
from itertools import pairwise

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from ledger.figures import sum_query
from ledger.figures.queries import report
from ledger.maintenance.rollup import roll
from ledger.store import db
from ledger.store.scope import Scope
from ledger.store.tables import meta, stale_days
from ledger.text.period import DAY, HOUR
from tests.app import APP
from tests.ledger.written import put, settled, whole

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
ROLLED = BEGIN + 100 * DAY


def asked(engine, since, until, stale, *, step=DAY):
    with db.writing(engine) as connection:
        connection.execute(sa.delete(stale_days))
        for day in stale:
            begin = BEGIN + day * DAY
            connection.execute(
                sa.insert(stale_days).values(
                    day=begin.date(), starts_at=begin, ends_at=begin + DAY, writes=1
                )
            )
        connection.execute(sa.delete(meta).where(meta.c.key == "rolled_until"))
        connection.execute(sa.insert(meta).values(key="rolled_until", value=str(ROLLED)))
        found = sum_query.spans(connection, since, until, step=step)
    assert (found[0].since, found[-1].until) == (since, until)
    for left, right in pairwise(found):
        assert left.until == right.since
        assert left.has_sums != right.has_sums
    return found


def days_of(found):
    """Beginning and end of what has sums, in days."""
    return [
        tuple(None if at is None else (at - BEGIN) / DAY for at in (span.since, span.until))
        for span in found
        if span.has_sums
    ]


@pytest.mark.parametrize(
    ("since", "until", "stale", "expected"),
    [
        pytest.param(None, None, [], [(None, 100)], id="everything"),
        pytest.param(None, None, [3, 4, 9], [(None, 3), (5, 9), (10, 100)], id="stale"),
        pytest.param(5, 8, [3, 4, 9], [(5, 8)], id="stale-outside"),
        pytest.param(4.5, 9.5, [3, 4, 9], [(5, 9)], id="cut-days"),
        pytest.param(4, 10, [4, 9], [(5, 9)], id="stale-ends"),
        pytest.param(4, 6, [4, 5], [], id="all-stale"),
        pytest.param(6.2, 6.9, [], [], id="part-of-a-day"),
        pytest.param(120, None, [], [], id="not-over"),
        pytest.param(99, 140, [], [(99, 100)], id="the-end-of-what-is-over"),
    ],
)
def test_days(engine, since, until, stale, expected):
    begin, end = (None if at is None else BEGIN + at * DAY for at in (since, until))
    found = asked(engine, begin, end, stale)
    assert days_of(found) == expected


def test_hours(engine):
    found = asked(engine, BEGIN + 6.9 * HOUR, BEGIN + 30.5 * HOUR, [0], step=HOUR)
    assert days_of(found) == [(1, 1.25)]
    found = asked(engine, BEGIN + 6.5 * HOUR, BEGIN + 9.5 * HOUR, [], step=HOUR)
    assert [span.since for span in found] == [BEGIN + at * HOUR for at in (6.5, 7, 9)]


def test_many_stale_days_are_added_up_with_what_lies_between_the_closest(engine, monkeypatch):
    monkeypatch.setattr(sum_query, "STALE_SPANS_MAX", 2)
    found = asked(engine, None, None, [2, 4, 20, 30, 33])
    assert days_of(found) == [(None, 2), (5, 20), (34, 100)]


FIRST = datetime(2026, 8, 30, tzinfo=UTC)
DAYS = 3
NOW = FIRST + DAYS * DAY + 13 * HOUR
WORDS = [
    pytest.param(("model",), id="sums by one dimension"),
    pytest.param((), id="sums of everything"),
    pytest.param(("provider", "model", "day"), id="sums of days"),
    pytest.param(("session", "hour"), id="sums of hours"),
]
ENDS = [None, *(FIRST + number * DAY for number in range(DAYS + 2))]
CUT = [FIRST + DAY + HOUR, FIRST + 2 * DAY + 5 * HOUR / 2]


def written(number, *, hours, name="e"):
    at = FIRST + number * DAY + hours * HOUR
    about = settled(f"{name}{number}-{hours}", at=at, session_id=f"s{number}")
    return whole(about)


@pytest.fixture
def three_days(new_sqlite):
    """Some requests on each of three days that are over, another number each day, and on the day
    that is not over: no day's figures can stand for another's."""
    with db.disposing(db.ensure(new_sqlite())) as engine:
        for number in range(DAYS + 1):
            put(engine, *(written(number, hours=2 * each) for each in range(number + 1)))
        yield engine


def answers(engine, words, *, is_exact):
    """Of each period that begins before it ends."""
    found = {}
    for since, until in itertools.product([*ENDS, *CUT], repeat=2):
        if since is None or until is None or since < until:
            scope = Scope(since=since, until=until)
            one = report(engine, words, scope, is_exact=is_exact)
            rows = {row.key: row.figures for row in one.rows}
            found[since, until] = (rows, one.total.figures)
    return found


def differing(found, expected):
    return {period: found[period] for period in expected if found[period] != expected[period]}


@pytest.mark.large
@pytest.mark.parametrize("words", WORDS)
def test_what_is_summed_up_is_what_was_there(three_days, words):
    engine = three_days
    before = answers(engine, words, is_exact=False)
    assert roll(engine, now=NOW) == DAYS
    assert differing(answers(engine, words, is_exact=False), before) == {}
    for late in ((0,), (1, 2)):
        for number in late:
            put(engine, written(number, hours=23, name=f"late{late}"))
        with engine.connect() as connection:
            assert sum_query.stale_count(connection) == len(late)
        quick, exact = (answers(engine, words, is_exact=exact) for exact in (False, True))
        assert differing(quick, exact) == {}
        roll(engine, now=NOW)


def test_calendar_days_of_the_command(three_days):
    asked = ["report", "--since", "2026-08-31", "--until", "2026-09-02", "--format", "csv"]
    asked += ["--ledger", str(three_days.url)]
    before = CliRunner().invoke(APP, asked).output
    assert "model-1" in before
    roll(three_days, now=NOW)
    after = CliRunner().invoke(APP, asked).output
    assert after == before
