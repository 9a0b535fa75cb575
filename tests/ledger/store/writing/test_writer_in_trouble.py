"""The writer in trouble: whatever the disk does, the caller neither waits nor raises, and every
receipt is resolved.
"""

import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from ledger import recording
from ledger.model import door
from ledger.model.errors import LedgerError
from ledger.model.learned import Learned
from ledger.store import db
from ledger.store.engines import sqlite_file
from ledger.store.processes import supervision
from ledger.store.writing import (
    batch_insert,
    batches,
    incoming,
    ledger_file,
    lessons,
    writer,
)
from tests.ledger.written import (
    COST,
    NOON,
    file_of,
    opened,
    priced,
    reading,
    settled,
    totals,
    writing,
)

pytestmark = pytest.mark.usefixtures("quick")


def until_committed(written) -> int:
    """Settle exchanges until one is committed, as traffic does; how many that took."""
    for number in range(1, 1000):
        if written.settle(settled(f"more-{number}")).committed:
            return number
    raise AssertionError(written.lines())


@contextmanager
def locked(url: str) -> Iterator[None]:
    """While another program holds the ledger's write lock."""
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def run_on_writer(written, change) -> None:
    """Do something to the writer's own connection, between two of its batches."""
    done = threading.Event()
    price = written.ledger._batches._price

    def interrupt(exchange, read):
        written.ledger._batches._price = price
        change(written.ledger._file.connection)
        done.set()
        return price(exchange, read)

    written.ledger._batches._price = interrupt
    written.settle(settled("interrupt"))
    assert done.is_set()


def test_a_row_that_is_refused_goes_alone(new_sqlite):
    with writing(new_sqlite()) as written:
        receipts = [
            written.hand_over(exchange)
            for exchange in (settled("a"), settled("b", outcome="fine"), settled("c"))
        ]
        written.wait(*receipts)
        assert [receipt.committed for receipt in receipts] == [True, False, True]
        assert "the ledger refuses it" in (receipts[1].error or "")
        assert written.ledger.dropped == 1
    assert totals(written.url) == (2, 200, 40, 2 * COST)
    kept, dropped = written.lines("error")
    assert "1 items were set aside" in kept
    assert "exchange b" in dropped
    aside = Path(f"{written.url.removeprefix('sqlite:///')}-set-aside.jsonl")
    (item,) = map(json.loads, aside.read_text().splitlines())
    assert "Exchange(id='b'" in item["item"]


def test_charges_that_are_refused_cost_the_exchange_only_its_price(new_sqlite):
    def wrong(exchange, read):

        return tuple(replace(line, amount_picousd=1) for line in priced(exchange, read))

    with writing(new_sqlite(), price=wrong) as written:
        assert written.settle(settled("a")).committed
    assert totals(written.url) == (1, 100, 20, None)
    assert "quantity times its unit price" in written.lines()[0]


def test_a_result_that_comes_before_settling_returns_is_kept(new_sqlite, monkeypatch):
    with writing(new_sqlite()) as written:
        incoming = written.ledger._incoming
        put = incoming.settle

        def put_and_wait(job):
            receipt = job.receipt
            refusal = put(job)
            written.wait(receipt)
            return refusal

        monkeypatch.setattr(incoming, "settle", put_and_wait)
        with locked(written.url):
            receipt = written.hand_over(settled("a"))
            assert (receipt.committed, receipt.error) == (False, "database is locked")


@pytest.mark.parametrize("before", [None, "not captured", "x" * 2000])
def test_a_row_says_that_its_end_went_on_before_its_commit(new_sqlite, before, monkeypatch):
    """Let go when the writer reported trouble, or while its statement waited for the file."""
    monkeypatch.setattr(batches, "WAITED_SECONDS", 0.0)
    with writing(new_sqlite()) as written, closing(sqlite3.connect(file_of(written.url))) as other:
        other.execute("BEGIN IMMEDIATE")
        late = written.settle(settled("late", degraded=before))
        late.is_let_go = True
        written.ledger._file.connection.execute("PRAGMA busy_timeout = 30000")
        later = written.hand_over(settled("later"))
        while written.ledger._incoming.count:
            time.sleep(0.001)
        later.is_let_go = True
        other.rollback()
        until_committed(written)
        query = "SELECT id, degraded FROM exchanges WHERE degraded IS NOT NULL ORDER BY id"
        found = dict(other.execute(query).fetchall())
    expected = f"{incoming.LATE}; {before}" if before else incoming.LATE
    assert found == {"late": expected[:1024], "later": incoming.LATE}


def test_a_locked_ledger_is_late_not_lost(new_sqlite):
    with writing(new_sqlite()) as written:
        with locked(written.url):
            receipts = [written.settle(settled(f"a{number}")) for number in range(3)]
            assert [receipt.error for receipt in receipts] == ["database is locked"] * 3
            assert written.ledger.health().queued_rows == 3
        more = until_committed(written)
    assert totals(written.url) == (3 + more, (3 + more) * 100, (3 + more) * 20, (3 + more) * COST)
    assert written.ledger.dropped == 0
    begin, end = written.lines()
    assert "database is locked; the traffic goes on" in begin
    assert "is written again" in end


@pytest.mark.parametrize(
    ("pragma", "cure", "said"),
    [
        pytest.param(
            "max_page_count = 1", "max_page_count = 1000000", "disk is full", id="full disk"
        ),
        pytest.param("query_only = ON", "query_only = OFF", "readonly", id="read-only"),
    ],
)
def test_a_disk_in_trouble_is_said_once_and_what_waits_is_written_later(
    new_sqlite, pragma, cure, said
):
    with writing(new_sqlite()) as written:
        run_on_writer(written, lambda connection: connection.execute(f"PRAGMA {pragma}"))
        large = f'"{"x" * 20_000}"'
        receipts = []
        for number in range(5):
            exchange = settled(f"a{number}")
            receipts.append(written.settle(exchange, reading(exchange, usage_json=large)))
        assert all(said in (receipt.error or "") for receipt in receipts)
        (line,) = written.lines()
        assert said in line
        # The writer's connection is idle between two tries.
        written.ledger._file.connection.execute(f"PRAGMA {cure}")
        more = until_committed(written)
    assert totals(written.url)[0] == 5 + 1 + more  # with the one that interrupted
    assert written.ledger.dropped == 0
    assert len(written.lines()) == 2


def test_what_there_is_no_room_for_is_counted_and_the_newest_is_kept(new_sqlite, monkeypatch):
    monkeypatch.setattr(incoming, "WAITING_MAX", 10)
    with writing(new_sqlite()) as written:
        with locked(written.url):
            for number in range(40):
                written.settle(settled(f"a{number:02}"))
        more = until_committed(written)
        dropped = written.ledger.dropped
    kept = totals(written.url)[0]
    assert kept + dropped == 40 + more
    assert 1 <= kept <= 16
    with closing(sqlite3.connect(file_of(written.url))) as ledger:
        names = {name for (name,) in ledger.execute("SELECT id FROM exchanges")}
    in_order = [f"a{number:02}" for number in range(40)]
    in_order += [f"more-{number}" for number in range(1, more + 1)]
    assert names == {*in_order[-kept:]}
    assert written.lines("error")


def test_a_queue_that_is_overrun_refuses_at_once(new_sqlite, monkeypatch):
    monkeypatch.setattr(incoming, "WAITING_MAX", 0)
    with writing(new_sqlite()) as written:
        receipt = written.hand_over(settled("a"))
        assert receipt.error == "too many exchanges wait for the ledger"
        assert written.ledger.dropped == 1
    assert "not in the ledger" in written.lines()[0]


def test_a_ledger_that_is_removed_is_begun_anew(url):
    with writing(url) as written:
        written.settle(settled("a"))
        secret = written.ledger.secret
        for suffix in ("", "-wal", "-shm"):
            file_of(url).with_name(file_of(url).name + suffix).unlink(missing_ok=True)
        assert written.settle(settled("b")).committed
    assert totals(url) == (1, 100, 20, COST)
    assert file_of(url).stat().st_mode & 0o777 == 0o600
    (line,) = written.lines()
    assert "was moved or removed; a new one is begun" in line
    with writing(url) as written:
        assert written.ledger.secret == secret


def test_a_ledger_whose_folder_is_gone_is_waited_for(new_sqlite, tmp_path):
    (tmp_path / "folder").mkdir()
    url = f"sqlite:///{tmp_path / 'folder' / 'ledger.sqlite3'}"
    file_of(new_sqlite()).rename(file_of(url))
    with writing(url) as written:
        written.settle(settled("a"))
        (tmp_path / "folder").rename(tmp_path / "elsewhere")
        (tmp_path / "folder").write_text("in the way")
        for number in range(3):
            assert "cannot create" in (written.settle(settled(f"b{number}")).error or "")
        (tmp_path / "folder").unlink()
        more = until_committed(written)
    assert totals(url)[0] == 3 + more
    assert written.ledger.dropped == 0
    removed, trouble, over = written.lines()
    assert "was moved or removed" in removed
    assert "cannot create" in trouble
    assert "is written again" in over


def test_a_listener_that_fails_stops_no_writing(new_sqlite):
    with writing(new_sqlite()) as written:

        def closed(_):
            raise RuntimeError("Event loop is closed")

        listener, written.ledger.on_commit = written.ledger.on_commit, closed
        written.hand_over(settled("a"))
        while not written.lines():
            written.ledger._thread.join(0.01)
        written.ledger.on_commit = listener
        assert written.settle(settled("b")).committed
    assert totals(written.url)[0] == 2
    assert "callback failed" in written.lines()[0]


def test_a_ledger_that_is_destroyed_stops_no_traffic(new_sqlite):
    with writing(new_sqlite()) as written:
        written.settle(settled("a"))
        run_on_writer(
            written,
            lambda connection: connection.executescript(
                "PRAGMA cache_size = 0; PRAGMA shrink_memory"
            ),
        )
        path = file_of(written.url)
        for file in (path, path.with_name(path.name + "-wal")):
            with file.open("r+b") as damaged:
                damaged.write(b"\0garbage" * 8_000)
        assert all(written.settle(settled(f"b{number}")).committed for number in range(20))
        (line,) = written.lines("error")
        assert "overwritten in place" in line
        assert written.ledger.health().problems()
        assert written.ledger.dropped == 0
    path.unlink()
    with writing(written.url):
        assert totals(written.url)[0] == 20


def test_a_damaged_ledger_ends_the_start_with_one_line(url):
    file_of(url).write_bytes(b"\0garbage" * 8_000)
    with pytest.raises(LedgerError, match="not a database; move the file away"):
        recording.open_ledger(url, node="n", log=lambda *_: None)


def test_a_row_that_is_refused_is_refused_once_while_its_batch_is_tried_again(new_sqlite):
    with writing(new_sqlite()) as written:
        with locked(written.url):
            receipts = [
                written.hand_over(exchange)
                for exchange in (settled("a"), settled("b", request_model=object()), settled("c"))
            ]
            written.wait(*receipts)
        more = until_committed(written)
        assert (written.ledger.dropped, written.ledger.health().set_aside) == (1, 1)
    assert totals(written.url)[0] == 2 + more


def test_what_waits_at_the_end_of_a_locked_ledger_is_booked_by_the_next_start(url):
    other = sqlite3.connect(file_of(url), isolation_level=None)
    with writing(url) as written:
        other.execute("BEGIN IMMEDIATE")
        for number in range(3):
            written.settle(settled(f"a{number}"))
        written.ledger.open(opened("b"))
    health = written.ledger.health()
    (path,) = file_of(url).parent.glob("*-unbooked-*")
    assert (
        f"3 exchanges could not be written (database is locked) and went into {path}"
        in written.lines()[-1]
    )
    assert (written.ledger.dropped, health.set_aside) == (0, 0)
    assert health.unrecorded().startswith("4 exchanges are not in the ledger: database is locked")
    other.close()
    with writing(url) as again:
        assert (
            "4 exchanges that could not be written earlier are in the ledger now" in again.lines()
        )
    with closing(sqlite3.connect(file_of(url))) as ledger:
        found = ledger.execute("SELECT id, state FROM exchanges ORDER BY id").fetchall()
    assert found == [("a0", "settled"), ("a1", "settled"), ("a2", "settled"), ("b", "open")]
    assert not path.exists()


def test_closing_in_trouble_counts_what_is_not_kept(url, monkeypatch):
    """On a full disk there is no room for the file either, and no part of it stays."""
    other = sqlite3.connect(file_of(url), isolation_level=None)
    with writing(url) as written:
        other.execute("BEGIN IMMEDIATE")
        for number in range(3):
            written.settle(settled(f"a{number}"))
        monkeypatch.setattr(os, "pwrite", lambda _, data, __: len(data) // 2)
    other.close()
    assert written.ledger.dropped == 3
    assert "3 exchanges are not in the ledger: database is locked" in written.lines()[-1]
    assert not [*file_of(url).parent.glob("*-unbooked-*")]


STEPS = [
    *("admitted", "open_row", "settled_row", "statement", "check", "resolve", "take"),
    "instant_text",
]


@pytest.mark.large
@pytest.mark.parametrize(
    "errors", [(RuntimeError, sqlite3.InterfaceError), (ValueError, MemoryError)]
)
@pytest.mark.parametrize("step", STEPS)
def test_whatever_a_step_raises_the_writer_goes_on(
    url, monkeypatch, failing_twice, capfd, step, errors
):
    """Each step of the writer raises twice, with each kind of item on its way."""
    owner = {
        "admitted": door,
        "check": ledger_file.LedgerFile,
        "resolve": incoming,
        "take": incoming.Incoming,
        "instant_text": lessons,
    }.get(step, batch_insert)
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    with writing(url) as written:
        written.settle(settled("before"))
        left = failing_twice(owner, step, errors)
        written.ledger.open(opened("a"))
        lesson = Learned(origin="o", path="/", verdict="opt_in", learned_at=NOON, expires_at=NOON)
        written.ledger.learn(lesson)
        written.hand_over(settled("a"))
        deadline = time.monotonic() + 30
        while left or not written.settle(settled(uuid.uuid4().hex)).committed:
            assert time.monotonic() < deadline, "the writer does not go on"
            written.ledger.learn(lesson)
            written.ledger.open(opened(uuid.uuid4().hex))
            written.settle(settled(uuid.uuid4().hex))
        health = written.ledger.health()
        if step not in ("statement", "resolve"):
            assert health.threads[0].failures + health.set_aside > 0
        assert health.threads[0].is_working
    assert totals(url)[0] >= 2
    assert written.ledger.dropped <= 2


def test_the_pause_between_retries_doubles_up_to_its_bound(url, monkeypatch):
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(writer, "RETRY_SECONDS_MAX", 10.0)
    clock, pauses = [100.0], []
    ledger = writer.Ledger(
        file_of(url), shown_url=url, node="n", price=None, on_commit=None, log=lambda *_: None
    )

    def take(jobs_taken, _lessons, pause):
        if not jobs_taken:
            exchange = settled("a")
            receipt = incoming.Receipt("a")
            jobs_taken.append(incoming.Job(exchange, reading(exchange), receipt))
        else:
            pauses.append(pause)
            clock[0] += pause
        return len(pauses) == 7

    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    waiting = SimpleNamespace(is_closed=False, count=0, take=take)
    monkeypatch.setattr(ledger, "_incoming", waiting)
    monkeypatch.setattr(ledger, "_file", SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(ledger, "_flush", lambda batch: batch)
    monkeypatch.setattr(ledger, "_leave_behind", lambda _: None)
    ledger._run()
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_reader_that_does_not_end_is_said_once_and_the_wal_shrinks_after_it(url, monkeypatch):
    monkeypatch.setattr(ledger_file, "CHECKPOINT_PAGES", 10)
    monkeypatch.setattr(ledger_file, "WAL_KEPT_BYTES_MAX", 100_000)
    monkeypatch.setattr(ledger_file, "WAL_WARNED_BYTES", 300_000)
    wal = Path(f"{url.removeprefix('sqlite:///')}-wal")
    engine = db.open_engine(url)
    with writing(url) as written:

        def said() -> int:
            return sum("a reader that does not end" in line for line in written.lines("warning"))

        number = 0
        for lengthy in (1, 2):
            with engine.connect() as reader:
                # Its snapshot keeps checkpoints from emptying the WAL.
                reader.exec_driver_sql("SELECT * FROM exchanges").all()
                while said() < lengthy:
                    number += 1
                    assert number < 1_000, wal.stat().st_size
                    assert written.settle(settled(f"a{number}")).committed
                for _ in range(10):
                    number += 1
                    assert written.settle(settled(f"a{number}")).committed
            assert wal.stat().st_size > 300_000
            assert said() == lengthy
            for _ in range(30):
                number += 1
                assert written.settle(settled(f"a{number}")).committed
            assert wal.stat().st_size <= 200_000
    engine.dispose()


class Failing:
    """A connection whose disk does not answer any more."""

    def __init__(self, connection):
        self.connection = connection
        self.is_failing = True

    def execute(self, *arguments):
        if self.is_failing:
            raise sqlite3.OperationalError("disk I/O error")
        return self.connection.execute(*arguments)

    def __getattr__(self, name):
        return getattr(self.connection, name)


def test_a_disk_that_does_not_answer(new_sqlite, monkeypatch):
    with writing(new_sqlite()) as written:
        written.settle(settled("a"))
        failing = Failing(written.ledger._file.connection)
        monkeypatch.setattr(written.ledger._file, "connection", failing)
        assert written.settle(settled("b")).error == "disk I/O error"
        failing.is_failing = False
        more = until_committed(written)
    assert totals(written.url)[0] == 2 + more
    assert ["disk I/O error" in line for line in written.lines()] == [True, False]


def test_a_ledger_that_is_moved_keeps_what_was_committed(url, tmp_path):
    path = Path(url.removeprefix("sqlite:///"))
    moved = tmp_path / "old.sqlite3"
    with writing(url) as written:
        for number in range(50):
            assert written.settle(settled(f"a{number}")).committed
            if number == 25:
                path.rename(moved)
    old, new = totals(f"sqlite:///{moved}"), totals(url)
    assert old[0] + new[0] == 50
    assert old[0] >= 26
    assert new[0] > 0


REFUSING = "CREATE TRIGGER theirs BEFORE INSERT ON {} BEGIN SELECT RAISE(ABORT, 'no'); END"
SPOILED = {
    "a trigger added later": (REFUSING.format("exchanges"), "DROP TRIGGER theirs"),
    "one on another table": (REFUSING.format("readings"), "DROP TRIGGER theirs"),
    "a table renamed": (
        "ALTER TABLE readings RENAME TO gone",
        "ALTER TABLE gone RENAME TO readings",
    ),
    "a column renamed": (
        "ALTER TABLE quotas RENAME COLUMN holder TO gone",
        "ALTER TABLE quotas RENAME COLUMN gone TO holder",
    ),
    "a column that must be there": (
        "ALTER TABLE exchanges ADD theirs CHECK (theirs IS NOT NULL OR id = 'before')",
        "ALTER TABLE exchanges DROP theirs",
    ),
    "a newer schema": (
        "UPDATE alembic_version SET version_num = '9999'; CREATE TABLE newer (a)",
        f"UPDATE alembic_version SET version_num = '{sqlite_file.REVISION}'; DROP TABLE newer",
    ),
    "no revision": (
        "ALTER TABLE alembic_version RENAME TO gone",
        "ALTER TABLE gone RENAME TO alembic_version",
    ),
}


def change_schema(url: str, script: str) -> None:
    with closing(sqlite3.connect(file_of(url))) as other:
        other.executescript(f"PRAGMA legacy_alter_table = ON; {script}")


@pytest.mark.parametrize("is_one_by_one", [True, False])
@pytest.mark.parametrize("name", SPOILED)
def test_rows_that_no_table_takes_wait_in_a_file_until_one_does(new_sqlite, name, is_one_by_one):
    """The writer says so at once, and goes on when the schema is as it was."""
    spoil, mend = SPOILED[name]
    with writing(new_sqlite()) as written:
        written.settle(settled("before"))
        change_schema(written.url, spoil)
        exchanges = [settled(f"meanwhile-{number}") for number in range(3)]
        if is_one_by_one:
            receipts = [written.settle(each) for each in exchanges]
        else:
            receipts = [written.hand_over(each) for each in exchanges]
            written.wait(*receipts)
        assert [receipt.committed for receipt in receipts] == [True] * 3
        (problem,) = written.ledger.health().problems()
        assert "exchanges go into" in problem
        assert any("exchanges go into" in line for line in written.lines())
        assert [*file_of(written.url).parent.glob("*-unbooked-*")]
        change_schema(written.url, mend)
        deadline = time.monotonic() + 20
        while written.ledger.health().problems():
            assert time.monotonic() < deadline, written.lines()
            written.settle(settled(uuid.uuid4().hex))
        assert written.settle(settled("after")).committed
        assert not [*file_of(written.url).parent.glob("*-unbooked-*")]
        assert (written.ledger.dropped, written.ledger.health().set_aside) == (0, 0)
    with closing(sqlite3.connect(file_of(written.url))) as ledger:
        rows = ledger.execute("SELECT id, node IS NOT NULL FROM exchanges WHERE length(id) < 32")
        assert {*rows} == {
            *((f"meanwhile-{number}", 1) for number in range(3)),
            *(("before", 1), ("after", 1)),
        }


def test_rows_that_no_table_took_are_booked_by_the_next_start(new_sqlite):
    with writing(new_sqlite()) as written:
        change_schema(written.url, REFUSING.format("exchanges"))
        assert written.settle(settled("a")).committed
    # A start that finds the schema as it was keeps them once more.
    with writing(written.url) as again:
        assert again.settle(settled("b")).committed
    change_schema(written.url, "DROP TRIGGER theirs")
    with writing(written.url) as third:
        assert not third.ledger.health().problems()
    assert totals(written.url)[0] == 2
    assert not [*file_of(written.url).parent.glob("*-unbooked-*")]
