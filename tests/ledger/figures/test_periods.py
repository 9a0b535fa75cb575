"""A report of a period is the same before and after its days are summed up: each period of whole
days and hours, each table of sums, whichever days were written to since."""

import itertools
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from addon.cli import application
from ledger.figures import sums
from ledger.figures.queries import report
from ledger.maintenance.rollup import roll
from ledger.store import db
from ledger.store.scope import Scope
from ledger.text.period import DAY, HOUR
from tests.ledger.written import put, settled, whole

BEGIN = datetime(2026, 8, 30, tzinfo=UTC)
DAYS = 3
NOW = BEGIN + DAYS * DAY + 13 * HOUR
WORDS = [
    pytest.param(("model",), id="sums by one dimension"),
    pytest.param((), id="sums of everything"),
    pytest.param(("provider", "model", "day"), id="sums of days"),
    pytest.param(("session", "hour"), id="sums of hours"),
]
ENDS = [None, *(BEGIN + number * DAY for number in range(DAYS + 2))]
CUT = [BEGIN + DAY + HOUR, BEGIN + 2 * DAY + 5 * HOUR / 2]


def written(number, *, hours, name="e"):
    at = BEGIN + number * DAY + hours * HOUR
    about = settled(f"{name}{number}-{hours}", at=at, session_id=f"s{number}")
    return whole(about)


@pytest.fixture
def engine(new_sqlite):
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


@pytest.mark.parametrize("words", WORDS)
def test_what_is_summed_up_is_what_was_there(engine, words):
    before = answers(engine, words, is_exact=False)
    assert roll(engine, now=NOW) == DAYS
    assert differing(answers(engine, words, is_exact=False), before) == {}
    for late in ((0,), (1, 2)):
        for number in late:
            put(engine, written(number, hours=23, name=f"late{late}"))
        with engine.connect() as connection:
            assert sums.stale_count(connection) == len(late)
        quick, exact = (answers(engine, words, is_exact=exact) for exact in (False, True))
        assert differing(quick, exact) == {}
        roll(engine, now=NOW)


def test_calendar_days_of_the_command(engine):
    asked = ["report", "--since", "2026-08-31", "--until", "2026-09-02", "--format", "csv"]
    asked += ["--ledger", str(engine.url)]
    before = CliRunner().invoke(application(), asked).output
    assert "model-1" in before
    roll(engine, now=NOW)
    after = CliRunner().invoke(application(), asked).output
    assert after == before
