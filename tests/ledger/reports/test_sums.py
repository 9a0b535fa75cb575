"""A report out of the sums of days is the report out of all requests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from ledger.maintenance.rollup import roll
from ledger.names.names import read
from ledger.reports import queries, sums
from ledger.reports.figures import Figures
from ledger.reports.queries import report, totals
from ledger.store import db
from ledger.store.scope import Scope
from ledger.store.tables import meta
from tests.ledger.priced import BOTH, NOVEMBER, exchange, filled, reading, settled
from tests.ledger.reports.test_queries import entries
from tests.ledger.written import put, whole
from tests.ledger.written import settled as settled_at

NAMES, _ = read(
    """
    [[name]]
    key = "aaaaaa"
    name = "CI"
    team = "search"
    until = 2026-11-03
    [[name]]
    key_hint = "1111"
    team = "writers"
    """
)


def more_entries():
    """Those of the other reports, with keys that names can tell apart, and a later week."""
    for number, (about, read_) in enumerate(entries()):
        key = ("aaaaaa" if about.key_fingerprint == "k1" else "bbbbbb") + "0" * 26
        hint = None if about.key_fingerprint == "k1" else "1111"
        for late in (timedelta(0), timedelta(days=9)):
            yield (
                replace(
                    about,
                    id=f"{about.id}-{number}-{late.days}",
                    opened_at=about.opened_at + late,
                    settled_at=about.settled_at + late,
                    first_token_at=about.first_token_at and about.first_token_at + late,
                    key_fingerprint=key,
                    key_hint=hint,
                ),
                read_,
            )
    yield (
        settled(exchange("gpt-4.1", id="today", at=NOVEMBER + timedelta(days=12))),
        reading(output_tokens=3),
    )


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    for engine in filled(request, tmp_path_factory, more_entries()):
        roll(engine, now=datetime(2026, 11, 14, 12, tzinfo=UTC))
        # A day that is over is written again: its sums are stale, and added up anew.
        put(engine, whole(settled_at("late", at=NOVEMBER)))
        yield engine


DAY_3 = datetime(2026, 11, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    "by",
    [
        ("model",),
        ("provider", "model"),
        ("key",),
        ("day",),
        ("week", "model"),
        ("month",),
        ("team",),
        ("team", "day"),
        (),
    ],
)
@pytest.mark.parametrize(
    "scope",
    [
        Scope(),
        Scope(since=DAY_3),
        Scope(since=DAY_3, until=DAY_3 + timedelta(days=8)),
        Scope(only=(("model", "gpt*"), ("model", "claude-9"), ("provider", "openai"))),
        Scope(only=(("key", "…1111"),)),
        Scope(only=(("key", "aaaaaa"), ("week", "2026-11-02"))),
        Scope(only=(("key", "CI"),)),
        Scope(only=(("team", "search"),)),
        Scope(only=(("team", "(none)"),)),
        Scope(only=(("model", "none-such"),)),
    ],
    ids=lambda scope: repr(scope.only or scope.since),
)
def test_both_ways_give_equal_figures(engine, by, scope, monkeypatch):
    scope = replace(scope, names=NAMES)
    exact = report(engine, by, scope, is_exact=True)
    monkeypatch.setattr(queries, "REQUESTS_MAX", -1)
    quick = report(engine, by, scope)
    assert (exact.is_from_sums, quick.is_from_sums) == (False, True)

    def comparable(found):
        return {
            row.key: (replace(row.figures, **dict.fromkeys(sums.NOT_SUMMED)), row.hint, row.name)
            for row in found.rows
        }

    assert comparable(quick) == comparable(exact)
    assert totals(engine, scope) == sum((row.figures for row in quick.rows), Figures())


@pytest.mark.parametrize(
    ("by", "scope"),
    [
        (("session",), Scope()),
        (("model",), Scope(only=(("tag:team", "x"),))),
        (("hour",), Scope()),
        (("model",), Scope(since=NOVEMBER)),
        (("model",), Scope(until=NOVEMBER)),
    ],
)
def test_what_sums_cannot_answer(engine, by, scope, monkeypatch):
    monkeypatch.setattr(queries, "REQUESTS_MAX", -1)
    assert not report(engine, by, scope).is_from_sums


def test_a_team_that_a_tag_decides_is_not_in_the_sums():
    names, _ = read('[[name]]\ntag = "a=b"\nteam = "x"\n')
    assert not sums.can_answer(("team",), Scope(names=names))
    assert sums.can_answer(("person",), Scope(names=names))


def test_few_requests_are_asked_one_by_one(engine):
    assert not report(engine, ("model",), Scope()).is_from_sums


def test_a_ledger_without_sums_is_asked_itself(tmp_path_factory, request, monkeypatch):
    monkeypatch.setattr(queries, "REQUESTS_MAX", -1)
    request.param = "sqlite"
    for engine in filled(request, tmp_path_factory, entries()):
        with db.writing(engine) as connection:  # as before a proxy has summed anything up
            connection.execute(sa.delete(meta).where(meta.c.key == "rolled_until"))
        assert not report(engine, ("model",), Scope()).is_from_sums
