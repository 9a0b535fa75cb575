"""Ledgers of parts, merged into one: each exchange once, under the start that the target has."""

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from ledger.maintenance.partial import PartsMerger
from ledger.model.errors import LedgerError
from ledger.model.exchange import Exchange, Outcome, State
from ledger.model.quota import Quota, QuotaKind
from ledger.store.tables import OF_EXCHANGES, charges, exchanges, readings
from tests.ledger.written import NOON, on, opened, put, settled, whole

COMPLETE = ("openai.chat", Outcome.COMPLETE)
EARLIER = NOON - timedelta(microseconds=7)


def say_nothing(*_: object) -> None:
    """No log."""


def fill(url: str, *all_of: Exchange) -> None:
    put(url, *((one, None, ()) if one.state is State.OPEN else whole(one) for one in all_of))


def part_of(make, name: str, *all_of: Exchange) -> Path:
    url = make(name)
    fill(url, *all_of)
    return Path(url.removeprefix("sqlite:///"))


def ids(url: str) -> list[tuple[object, ...]]:
    """Each exchange: id, start, state, readings, charges."""
    counts = (
        sa.select(sa.func.count()).where(of.c.exchange_id == exchanges.c.id).scalar_subquery()
        for of in (readings, charges)
    )
    e = exchanges.c
    with on(url) as engine, engine.connect() as connection:
        query = sa.select(e.id, e.opened_at, e.state, *counts).order_by(e.id)
        return [tuple(row) for row in connection.execute(query)]


def test_parts_add_up_and_one_that_comes_twice_adds_nothing(ledger_url, new_sqlite):
    one = part_of(new_sqlite, "one", settled("a"), settled("b"))
    two = part_of(new_sqlite, "two", settled("b"), settled("c", at=NOON + timedelta(days=40)))
    merger = PartsMerger(ledger_url)
    first, second, again = merger.merge(one), merger.merge(two), merger.merge(one)
    merger.close(log=say_nothing)
    assert (first.new[COMPLETE], first.known) == (2, 0)
    assert (second.new[COMPLETE], second.known) == (1, 1)
    assert (again.new.total(), again.known, again.refused) == (0, 2, [])
    assert [row[0] for row in ids(ledger_url)] == ["a", "b", "c"]
    assert {row[3:] for row in ids(ledger_url)} == {(1, 3)}


def test_a_settled_exchange_is_known_under_another_start(ledger_url, new_sqlite):
    fill(ledger_url, settled("a", at=EARLIER))
    merger = PartsMerger(ledger_url)
    merged = merger.merge(part_of(new_sqlite, "part", settled("a"), settled("b")))
    merger.close(log=say_nothing)
    assert (merged.new[COMPLETE], merged.known) == (1, 1)
    assert [row[:2] for row in ids(ledger_url)] == [("a", EARLIER), ("b", NOON)]


def test_an_open_exchange_is_settled_under_its_own_start(ledger_url, new_sqlite):
    fill(ledger_url, opened("a", at=EARLIER))
    merger = PartsMerger(ledger_url)
    merged = merger.merge(part_of(new_sqlite, "part", settled("a"), settled("b")))
    merger.close(log=say_nothing)
    assert merged.new[COMPLETE] == 2
    assert ids(ledger_url) == [("a", EARLIER, "settled", 1, 3), ("b", NOON, "settled", 1, 3)]


def test_each_row_of_an_exchange_gets_its_start(ledger_url, new_sqlite):
    quota = Quota(window="5h", window_name="primary", kind=QuotaKind.PLAN, used_ppm=1)
    fill(ledger_url, opened("a", at=EARLIER))
    merger = PartsMerger(ledger_url)
    merger.merge(part_of(new_sqlite, "part", settled("a", segments="packed", quotas=(quota,))))
    merger.close(log=say_nothing)
    with on(ledger_url) as engine, engine.connect() as connection:
        for table in OF_EXCHANGES:
            starts = connection.scalars(sa.select(table.c.opened_at).distinct()).all()
            assert starts == [EARLIER], table.name


def test_a_part_that_is_none_is_refused(new_sqlite, tmp_path):
    merger = PartsMerger(new_sqlite())
    with pytest.raises(LedgerError, match="there is no ledger"):
        merger.merge(tmp_path / "gone.sqlite3")
    merger.close(log=say_nothing)
