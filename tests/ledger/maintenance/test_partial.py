"""Ledgers of parts, merged into one: each exchange once, under the start that the target has."""

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from ledger.maintenance.partial import PartMerged, PartsMerger
from ledger.model.errors import LedgerError
from ledger.model.exchange import Exchange, Outcome, State
from ledger.model.quota import Quota, QuotaKind
from ledger.store.tables import OF_EXCHANGES, charges, exchanges, readings
from tests.ledger.written import NOON, on, opened, put, settled, whole

COMPLETE = ("openai.chat", Outcome.COMPLETE)
EARLIER = NOON - timedelta(microseconds=7)


@pytest.fixture
def merge(ledger_url):
    """Merges parts into the ledger: what each added."""

    def merge_all(*parts: Path) -> list[PartMerged]:
        merger = PartsMerger(ledger_url)
        try:
            return [merger.merge(part) for part in parts]
        finally:
            merger.close(log=lambda *_: None)

    return merge_all


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


def test_parts_add_up_and_one_that_comes_twice_adds_nothing(ledger_url, new_sqlite, merge):
    one = part_of(new_sqlite, "one", settled("a"), settled("b"))
    two = part_of(new_sqlite, "two", settled("b"), settled("c", at=NOON + timedelta(days=40)))
    first, second, again = merge(one, two, one)
    assert (first.new[COMPLETE], first.known) == (2, 0)
    assert (second.new[COMPLETE], second.known) == (1, 1)
    assert (again.new.total(), again.known, again.refused) == (0, 2, [])
    assert [row[0] for row in ids(ledger_url)] == ["a", "b", "c"]
    assert {row[3:] for row in ids(ledger_url)} == {(1, 3)}


def test_a_settled_exchange_is_known_under_another_start(ledger_url, new_sqlite, merge):
    fill(ledger_url, settled("a", at=EARLIER))
    (merged,) = merge(part_of(new_sqlite, "part", settled("a"), settled("b")))
    assert (merged.new[COMPLETE], merged.known) == (1, 1)
    assert [row[:2] for row in ids(ledger_url)] == [("a", EARLIER), ("b", NOON)]


def test_an_open_exchange_is_settled_under_its_own_start(ledger_url, new_sqlite, merge):
    fill(ledger_url, opened("a", at=EARLIER))
    (merged,) = merge(part_of(new_sqlite, "part", settled("a"), settled("b")))
    assert merged.new[COMPLETE] == 2
    assert ids(ledger_url) == [("a", EARLIER, "settled", 1, 3), ("b", NOON, "settled", 1, 3)]


def test_each_row_of_an_exchange_gets_its_start(ledger_url, new_sqlite, merge):
    quota = Quota(window="5h", window_name="primary", kind=QuotaKind.PLAN, used_ppm=1)
    fill(ledger_url, opened("a", at=EARLIER))
    merge(part_of(new_sqlite, "part", settled("a", segments="packed", quotas=(quota,))))
    with on(ledger_url) as engine, engine.connect() as connection:
        for table in OF_EXCHANGES:
            starts = connection.scalars(sa.select(table.c.opened_at).distinct()).all()
            assert starts == [EARLIER], table.name


def test_a_part_that_is_none_is_refused(merge, tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        merge(tmp_path / "gone.sqlite3")
