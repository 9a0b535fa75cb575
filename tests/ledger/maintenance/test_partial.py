"""Ledgers of parts, merged into one: each exchange once, under the start that the target has; and which
exchanges a ledger has settled, on either database."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.maintenance import known
from ledger.maintenance.known import KnownExchanges
from ledger.maintenance.partial import PartMerged, PartsMerger
from ledger.model.errors import LedgerError
from ledger.model.exchange import Exchange, Outcome, State
from ledger.model.quota import Quota, QuotaKind
from ledger.store import db
from ledger.store.engines import urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.tables import OF_EXCHANGES, charges, exchanges, readings
from ledger.sync import spool
from tests.ledger.written import NOON, alter, on, opened, put, settled, whole

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


ODD = "an 'odd' \"id\" \\ [1], 语"


def test_settled_exchanges_are_found_by_their_ids(engine: Engine) -> None:
    lost = settled("lost", state=State.LOST, outcome=Outcome.LOST)
    put(engine, whole(settled(ODD, path="/a")), whole(settled("b")), whole(lost))
    put(engine, (opened("open"), None, ()))
    many = [f"unknown {number}" for number in range(2_000)]
    found = known._settled(engine, [ODD, *many, "b", "open", "lost"])
    assert found == {ODD: "/a", "b": "/v1/chat/completions"}
    assert known._settled(engine, []) == {}


@pytest.fixture
def path(new_sqlite):
    """A SQLite ledger with one exchange."""
    engine = db.ensure(new_sqlite())
    put(engine, whole(settled(ODD, path="/a")))
    engine.dispose()
    return engine.url.database


def test_a_sqlite_file_is_read_with_the_driver_alone(path, monkeypatch) -> None:
    monkeypatch.setattr(db, "open_existing", None)
    one = KnownExchanges(f"sqlite:///{path}")
    assert one.settled([ODD, "b"]) == {ODD: "/a"}
    one.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        one.settled([ODD])


def test_engines_are_opened_when_they_are_asked_for(path) -> None:
    one = KnownExchanges(f"sqlite:///{path}")
    assert [known._settled(engine, [ODD]) for engine in one.engines] == [{ODD: "/a"}]
    one.close()


def test_what_is_no_ledger_is_refused_as_by_every_command(tmp_path, path) -> None:
    missing, empty, text = (tmp_path / name for name in ("missing.db", "empty.db", "text.db"))
    sqlite3.connect(empty).close()
    text.write_text("not a database, but long enough to be looked at" * 100)
    alter(f"sqlite:///{path}", "UPDATE alembic_version SET version_num = '9999'")
    for one in (missing, empty, text, path):
        found = []
        for open_one in (KnownExchanges, db.open_existing):
            with pytest.raises(LedgerError) as caught:
                open_one(f"sqlite:///{one}")
            found.append(str(caught.value))
        assert found[0] == found[1]
    assert not missing.exists()
    assert REVISION < "9999"


@pytest.mark.postgres
@pytest.mark.usefixtures("own_data_directory")
def test_a_shared_ledger_is_asked_after_its_spool(new_postgres) -> None:
    url = new_postgres()
    file = spool.path_for(urls.parse_url(url))
    file.parent.mkdir(parents=True, exist_ok=True)
    for place, name in ((url, "merged"), (f"sqlite:///{file}", "waiting")):
        engine = db.ensure(place)
        put(engine, whole(settled(name, path=f"/{name}")))
        engine.dispose()
    one = KnownExchanges(url)
    assert one.settled(["merged", "waiting", "b"]) == {"merged": "/merged", "waiting": "/waiting"}
    one.close()
