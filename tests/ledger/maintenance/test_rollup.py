"""Summing up days that are over changes how long the views take, never what they show."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from ledger.maintenance import keeper, rollup
from ledger.model.errors import LedgerError
from ledger.model.exchange import Outcome, State
from ledger.model.usage import Usage
from ledger.store import db, retention
from ledger.store.processes import supervision
from ledger.store.tables import stale_days, sums, unpriced_lines
from tests.ledger.written import (
    NOON,
    alter,
    charge,
    charge_again,
    on_postgres,
    opened,
    put,
    row,
    rows,
    settled,
    wait_until,
    whole,
    writing,
)

DAY = timedelta(days=1)
TODAY = NOON + 3 * DAY


VIEWS = (
    "SELECT * FROM usage_daily ORDER BY day, provider, model, key_fingerprint",
    "SELECT * FROM completeness ORDER BY hour",
    "SELECT * FROM unpriced ORDER BY opened_at, exchange_id, line",
)


def shown(engine):
    return [rows(engine, query) for query in VIEWS]


def summed(engine):
    """The days whose sums are used."""
    query = "SELECT starts_at FROM stale_days"
    stale = {begin for (begin,) in rows(engine, query)}
    of_days = "SELECT opened_at FROM sums WHERE summed_by = 'everything' ORDER BY opened_at"
    return [str(begin)[:10] for (begin,) in rows(engine, of_days) if begin not in stale]


def forgotten(engine):
    """What the views show when nothing was ever summed up."""
    with engine.connect() as connection:
        for table in (sums, unpriced_lines, stale_days):
            connection.execute(sa.delete(table))
        connection.exec_driver_sql("DELETE FROM meta WHERE key = 'rolled_until'")
        found = [list(connection.execute(sa.text(query))) for query in VIEWS]
        connection.rollback()
    return found


@pytest.fixture
def filled(engine):
    put(
        engine,
        whole(settled("a", key_fingerprint="k1", key_hint="abcd")),
        whole(settled("b", at=NOON + timedelta(minutes=61), outcome=Outcome.ERROR_FRAME)),
        (opened("c", at=NOON + DAY), None, ()),
        whole(settled("d", at=NOON + DAY, response_id="r", content_digest="x")),
        without_prices(settled("today", at=TODAY)),
        without_prices(settled("e", at=NOON + DAY, response_id="s", service_tier="flex")),
        whole(settled("f", at=NOON + DAY), ()),
    )
    return engine


def without_prices(exchange):
    lines = (charge("uncached_input", 60, 10), charge("output", 20, None, reason="no price"))
    return whole(exchange, lines)


def test_the_views_show_the_same(filled):
    before = shown(filled)
    assert [(line.exchange_id, line.line) for line in before[2]] == [
        ("e", "output"),
        ("f", None),
        ("today", "output"),
    ]
    assert rollup.roll(filled, now=TODAY) == 2  # 4 November has no rows
    assert summed(filled) == ["2026-11-02", "2026-11-03"]
    assert rows(filled, "SELECT * FROM stale_days") == []
    assert shown(filled) == before == forgotten(filled)
    assert rollup.roll(filled, now=TODAY) == 0


def test_an_empty_ledger_and_one_of_today_have_nothing_to_sum_up(engine):
    assert rollup.roll(engine, now=TODAY) == 0
    put(engine, whole(settled("today", at=TODAY)))
    assert rollup.roll(engine, now=TODAY) == 0
    assert rows(engine, "SELECT * FROM meta WHERE key = 'rolled_until'") == []


def test_without_its_triggers_nothing_is_summed_up(filled):
    of = " ON pricings" if filled.dialect.name == "postgresql" else ""
    alter(filled, f"DROP TRIGGER pricings_added_late{of}")
    assert rollup.roll(filled, now=TODAY) == 0
    assert shown(filled) == forgotten(filled)


DUPLICATE: dict[str, Any] = {"response_id": "r", "content_digest": "x"}
D = settled("d", at=NOON + DAY, **DUPLICATE)


def merge(engine, entry):
    """A further reading comes from elsewhere: the recorder's writer books one of each exchange."""
    from tests.ledger import bundled

    bundled.put(engine, entry)


LATE = {
    "c ends": lambda engine: put(engine, whole(settled("c", at=NOON + DAY))),
    "c is lost": lambda engine: put(
        engine,
        (settled("c", at=NOON + DAY, state=State.LOST, outcome=Outcome.LOST), None, ()),
    ),
    "an exchange": lambda engine: put(engine, whole(settled("new", at=NOON + DAY))),
    "an exchange of a day's last microsecond": lambda engine: put(
        engine, whole(settled("last", at=(NOON + DAY).replace(hour=0) - timedelta(microseconds=1)))
    ),
    "an exchange of a day before all others": lambda engine: put(
        engine, whole(settled("ancient", at=NOON - 400 * DAY))
    ),
    "an earlier duplicate": lambda engine: put(
        engine, whole(settled("dup", at=NOON + DAY - timedelta(1), **DUPLICATE))
    ),
    "a reading": lambda engine: merge(
        engine, whole(D, (), revision=2, usage=Usage(input_tokens=1))
    ),
    "a charge": lambda engine: charge_again(engine, "d", 0, 0),
    "a price for a line": lambda engine: charge_again(engine, "e", 1, 50),
    "no price for a line": lambda engine: charge_again(engine, "d", 1, None),
    "a day is dropped": lambda engine: retention.drop_before(engine, NOON + 2 * DAY),
}


@pytest.mark.parametrize("change", LATE.values(), ids=LATE)
def test_what_is_written_late_shows_at_once(filled, change):
    rollup.roll(filled, now=TODAY)
    before = shown(filled)
    change(filled)
    after = shown(filled)
    assert after != before
    assert after == forgotten(filled)
    assert rollup.roll(filled, now=TODAY) >= 1
    assert shown(filled) == after


def test_what_happens_today_makes_no_day_stale(filled):
    rollup.roll(filled, now=TODAY)
    put(filled, whole(settled("more", at=TODAY)))
    assert rows(filled, "SELECT * FROM stale_days") == []
    assert shown(filled) == forgotten(filled)


def test_a_write_while_a_day_is_summed_up_leaves_it_stale(filled, monkeypatch):
    real = db.writing
    count = 0

    def writing(engine):
        nonlocal count
        count += 1
        if count == 3:  # 1: the days are closed; 2: the first is begun; 3: its sums are kept
            monkeypatch.setattr(db, "writing", real)
            put(engine, whole(settled("late", at=NOON)))
            monkeypatch.setattr(db, "writing", writing)
        return real(engine)

    monkeypatch.setattr(db, "writing", writing)
    assert rollup.roll(filled, now=TODAY) == 1
    assert [str(day) for (day,) in rows(filled, "SELECT day FROM stale_days")] == ["2026-11-02"]
    assert shown(filled) == forgotten(filled)
    assert rollup.roll(filled, now=TODAY) == 1
    assert shown(filled) == forgotten(filled)


def test_of_two_that_sum_up_a_day_the_slower_stores_nothing_old(filled, monkeypatch):
    """As many writes as before make the count of writes what it was."""
    rollup.roll(filled, now=TODAY)
    put(filled, whole(settled("late", at=NOON)))
    real = rollup._sums_of

    def reading(connection, day):
        sums = real(connection, day)
        monkeypatch.setattr(rollup, "_sums_of", real)
        assert rollup.roll(filled, now=TODAY) == 1
        put(filled, whole(settled("later", at=NOON)))
        return sums

    monkeypatch.setattr(rollup, "_sums_of", reading)
    assert rollup.roll(filled, now=TODAY) == 0
    assert shown(filled) == forgotten(filled)
    assert rollup.roll(filled, now=TODAY) == 1
    assert shown(filled) == forgotten(filled)


def test_the_next_day_is_summed_up_the_day_after(filled):
    rollup.roll(filled, now=TODAY)
    assert rollup.roll(filled, now=TODAY + DAY) == 1
    assert summed(filled) == ["2026-11-02", "2026-11-03", "2026-11-05"]
    assert shown(filled) == forgotten(filled)


@on_postgres
def test_writers_under_way_are_waited_for(engine):
    """A writer that cannot see yet that its day is over would not say that it writes to it."""
    import threading

    put(engine, whole(settled("a")))
    from ledger.parts.sync import bundles
    from tests.ledger.bundled import bundle_of

    with db.writing(engine) as connection:
        bundles.write(connection, bundle_of(whole(settled("b", at=NOON - DAY))))
        rolling = threading.Thread(target=rollup.roll, args=(engine,), kwargs={"now": TODAY})
        rolling.start()
        while not rows(engine, "SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert rolling.is_alive()
    rolling.join(30)
    assert shown(engine) == forgotten(engine)
    assert row(engine, "SELECT SUM(requests) FROM usage_daily") == (2,)


def test_a_keeper_without_its_ledger_keeps_quiet(monkeypatch):
    monkeypatch.setattr(keeper, "FIRST_SUMS_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "SUMS_EVERY_SECONDS", 0.0)
    kept = keeper.Keeper("sqlite:////nowhere/ledger.sqlite3", log=lambda *_: None)
    tried = []

    def fail(url, **_):
        tried.append(url)
        if len(tried) == 2:
            kept._stopping.set()
        raise LedgerError("cannot be had")

    monkeypatch.setattr(db, "ensure", fail)
    kept._run()
    assert len(tried) == 3


@pytest.mark.parametrize("is_bulk", [True, False])
def test_a_process_that_only_fills_a_ledger_makes_its_sums_at_its_end_alone(is_bulk, monkeypatch):
    url = "sqlite:////nowhere/ledger.sqlite3"
    kept = keeper.Keeper(url, log=lambda *_: None, is_bulk=is_bulk)
    waits: list[float | None] = []
    sums: list[object] = []

    def stopped(seconds: float | None) -> bool:
        waits.append(seconds)
        return True

    monkeypatch.setattr(kept._stopping, "wait", stopped)
    monkeypatch.setattr(kept, "_roll", sums.append)
    kept._run()
    assert waits == [None if is_bulk else keeper.FIRST_SUMS_SECONDS]
    assert len(sums) == 1


@pytest.mark.parametrize("most", [1, 400])
def test_only_days_with_rows_are_closed_in_small_steps(engine, monkeypatch, most):
    monkeypatch.setattr(rollup, "CLOSED_DAYS_MAX", most)
    ancient = datetime(1970, 1, 1, tzinfo=UTC)
    put(engine, whole(settled("a", at=ancient)), whole(settled("b")))
    put(engine, whole(settled("c", at=NOON + timedelta(days=40))))
    assert rollup.roll(engine, now=NOON + timedelta(days=9)) == 2
    assert row(engine, "SELECT COUNT(*) FROM sums WHERE summed_by = 'day'") == (2,)
    assert row(engine, "SELECT SUM(requests) FROM usage_daily") == (3,)
    assert rollup.roll(engine, now=NOON + timedelta(days=9)) == 0
    assert rollup.roll(engine, now=NOON + timedelta(days=90)) == 1


@pytest.mark.parametrize(
    "error",
    [
        sa.exc.DataError("SELECT", {}, Exception("not a date")),
        *(kind("not a date") for kind in (OverflowError, ValueError, TypeError)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_day_that_cannot_be_summed_up_stays_stale_and_stops_no_other(engine, monkeypatch, error):
    put(engine, whole(settled("a")), whole(settled("b", at=NOON + DAY)))
    real = rollup._sum_up

    def fail(engine, day):
        if str(day) == "2026-11-02":
            raise error
        return real(engine, day)

    monkeypatch.setattr(rollup, "_sum_up", fail)
    said = []
    assert rollup.roll(engine, now=TODAY, log=lambda *line: said.append(line)) == 1
    ((_, line),) = said
    assert "2026-11-02: " in line
    assert "not a date" in line
    assert len(rows(engine, "SELECT * FROM stale_days")) == 1
    assert row(engine, "SELECT SUM(requests) FROM usage_daily") == (2,)


STEPS = {
    "_roll": keeper.Keeper,
    "roll": rollup,
    "_notes_writes": rollup,
    "_close_days": rollup,
    "_sum_up": rollup,
    "ensure": db,
}


@pytest.mark.large
@pytest.mark.parametrize("errors", [(RuntimeError, LedgerError), (ValueError, OSError)])
@pytest.mark.parametrize("step", STEPS)
def test_whatever_a_step_raises_the_keeper_goes_on(
    url, monkeypatch, failing_twice, capfd, step, errors
):
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(keeper, "FIRST_SUMS_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "SUMS_EVERY_SECONDS", 0.01)
    put(url, whole(settled("a")))
    left = failing_twice(STEPS[step], step, errors)
    kept = keeper.Keeper(url, log=lambda *_: None)
    kept.start()
    wait_until(lambda: rows(url, "SELECT * FROM sums WHERE summed_by = 'day'"))
    assert kept.health().is_working
    kept.stop(30)
    assert (left, len(rows(url, "SELECT * FROM sums WHERE summed_by = 'day'"))) == ([], 1)


def test_whoever_fills_a_ledger_leaves_it_with_its_sums(new_sqlite):
    with writing(new_sqlite()) as written:
        for number in range(3):
            at = NOON + timedelta(days=number)
            written.settle(settled(f"a{number}", at=at))
    assert len(rows(written.url, "SELECT * FROM sums WHERE summed_by = 'day'")) == 3
    assert rows(written.url, "SELECT day FROM stale_days") == []
