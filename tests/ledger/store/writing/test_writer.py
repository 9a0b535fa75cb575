"""The writer: whatever the disk does, the caller neither waits nor raises, and every receipt is
resolved."""

import json
import sqlite3
import threading
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ledger import recording
from ledger.model import door
from ledger.model.errors import LedgerError
from ledger.model.exchange import Source
from ledger.model.learned import Learned
from ledger.model.usage import Usage
from ledger.store import db, supervision
from ledger.store.writing import batch_insert, ledger_file, writer
from ledger.store.writing.writer import Ledger
from tests.ledger.written import (
    COST,
    NOON,
    opened,
    priced,
    reading,
    row,
    rows,
    settled,
    writing,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Waits that are sized for a disk in trouble, not for a test."""
    monkeypatch.setattr(db, "BUSY_MS_MAX", 50)
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(writer, "RETRY_SECONDS_MAX", 0.02)
    monkeypatch.setattr(ledger_file, "LOOK_SECONDS", 0.0)


def totals(url):
    engine = db.open_engine(url)
    found = row(engine, "SELECT COUNT(*), SUM(input_tokens), SUM(cost_picousd) FROM requests")
    engine.dispose()
    return tuple(found)


def file_of(url) -> Path:
    return db.file_of(db.parse_url(url))


def until_committed(written) -> int:
    """Settle exchanges until one is committed, as traffic does; how many that took."""
    for number in range(1, 1000):
        if written.settle(settled(f"more-{number}")).committed:
            return number
    raise AssertionError(written.lines())


def run_on_writer(written, change) -> None:
    """Do something to the writer's own connection, between two of its batches."""
    done = threading.Event()
    price = written.ledger._price

    def interrupt(exchange, read):
        written.ledger._price = price
        change(written.ledger._file.connection)
        done.set()
        return price(exchange, read)

    written.ledger._price = interrupt
    written.settle(settled("interrupt"))
    assert done.is_set()


def test_an_exchange_is_on_disk_when_its_receipt_says_so(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        written.ledger.open(opened("a"))
        receipt = written.settle(settled("a"))
        assert (receipt.exchange_id, receipt.committed, receipt.error) == ("a", True, None)
        assert totals(url) == (1, 100, COST)
        assert written.ledger.dropped == 0
    assert written.lines() == []


def test_settling_again_changes_nothing(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        written.settle(settled("a"))
        again = settled("a", provider="other")
        receipt = written.settle(again, reading(again, usage=Usage(input_tokens=5)))
        assert receipt.committed
    with writing(url) as written:
        assert written.settle(settled("a")).committed
    assert totals(url) == (1, 100, COST)


def test_what_gathers_while_a_batch_is_written_is_one_batch(new_sqlite):
    url = new_sqlite()
    gate = threading.Event()

    def hold(exchange, read):
        gate.wait(30)
        return priced(exchange, read)

    with writing(url, price=hold) as written:
        first = written.ledger.settle(settled("a"), reading(settled("a")))
        later = []
        for number in range(20):
            written.ledger.open(opened(f"b{number}"))
            exchange = settled(f"b{number}")
            later.append(written.ledger.settle(exchange, reading(exchange)))
        gate.set()
        written.wait(first, *later)
        sizes = [len(batch) for batch in written.batches]
        assert sum(sizes) == 21
        assert sizes[-1] >= 20
    assert totals(url) == (21, 2100, 21 * COST)


def test_an_open_row_does_not_wait_for_its_end(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        written.ledger.open(opened("a"))
        written.settle(settled("b"))
        engine = db.open_engine(url)
        assert rows(engine, "SELECT id, state, node FROM exchanges ORDER BY id") == [
            ("a", "open", "host/1/1"),
            ("b", "settled", "host/1/1"),
        ]
        engine.dispose()


def test_a_replayed_exchange_stands_where_it_stood(new_sqlite):
    """A recording that rounds times makes no second row."""
    url = new_sqlite()
    with writing(url) as written:
        exchange = settled("a", at=NOON + timedelta(microseconds=7))
        written.settle(exchange)
        again = settled("a", at=NOON, source=Source.REPLAY)
        assert written.settle(again).committed
    assert totals(url) == (1, 100, COST)


def test_an_exchange_that_cannot_be_priced_is_recorded_unpriced(new_sqlite):
    def fail(_exchange, _read):
        raise KeyError("no such model")

    url = new_sqlite()
    with writing(url, price=fail) as written:
        assert written.settle(settled("a")).committed
    assert totals(url) == (1, 100, None)
    (line,) = written.lines()
    assert "exchange a is not priced" in line


def test_a_row_that_is_refused_goes_alone(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        receipts = [
            written.ledger.settle(exchange, reading(exchange))
            for exchange in (settled("a"), settled("b", outcome="fine"), settled("c"))
        ]
        written.wait(*receipts)
        assert [receipt.committed for receipt in receipts] == [True, False, True]
        assert "the ledger refuses it" in receipts[1].error
        assert written.ledger.dropped == 1
    assert totals(url) == (2, 200, 2 * COST)
    kept, dropped = written.lines("error")
    assert "1 items were set aside" in kept
    assert "exchange b" in dropped
    aside = Path(f"{url.removeprefix('sqlite:///')}-set-aside.jsonl")
    (item,) = map(json.loads, aside.read_text().splitlines())
    assert "Exchange(id='b'" in item["item"]


@pytest.mark.parametrize(
    ("exchange", "usage"),
    [
        pytest.param(settled("a", user_agent="\ud800"), None, id="lone surrogate"),
        pytest.param(settled("a", user_agent="a\0b"), None, id="NUL"),
        pytest.param(settled("a", tags={"k": "\udfff"}), None, id="lone surrogate in a tag"),
        pytest.param(settled("a"), "{", id="usage that is no JSON"),
    ],
)
def test_odd_text_costs_no_row(new_sqlite, exchange, usage):
    url = new_sqlite()
    with writing(url) as written:
        read = reading(exchange, usage_json=usage or "{}")
        assert written.settle(exchange, read).committed, written.lines()
        assert written.settle(settled("b")).committed
    assert totals(url)[0] == 2


def test_charges_that_are_refused_cost_the_exchange_only_its_price(new_sqlite):
    def wrong(exchange, read):
        from dataclasses import replace

        return tuple(replace(line, amount_picousd=1) for line in priced(exchange, read))

    url = new_sqlite()
    with writing(url, price=wrong) as written:
        assert written.settle(settled("a")).committed
    assert totals(url) == (1, 100, None)
    assert "amount_is_exact" in written.lines()[0]


def test_a_locked_ledger_is_late_not_lost(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        other = sqlite3.connect(file_of(url), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        receipts = [
            written.settle(settled(f"a{number}"), reading(settled(f"a{number}")))
            for number in range(3)
        ]
        assert [receipt.error for receipt in receipts] == ["database is locked"] * 3
        other.execute("ROLLBACK")
        other.close()
        more = until_committed(written)
    assert totals(url) == (3 + more, (3 + more) * 100, (3 + more) * COST)
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
    url = new_sqlite()
    with writing(url) as written:
        run_on_writer(written, lambda connection: connection.execute(f"PRAGMA {pragma}"))
        large = f'"{"x" * 20_000}"'
        receipts = []
        for number in range(5):
            exchange = settled(f"a{number}")
            receipts.append(written.settle(exchange, reading(exchange, usage_json=large)))
        assert all(said in receipt.error for receipt in receipts)
        (line,) = written.lines()
        assert said in line
        # The writer's connection is idle between two tries.
        written.ledger._file.connection.execute(f"PRAGMA {cure}")
        more = until_committed(written)
    assert totals(url)[0] == 5 + 1 + more  # with the one that interrupted
    assert written.ledger.dropped == 0
    assert len(written.lines()) == 2


class Failing:
    """A connection whose disk does not answer any more."""

    def __init__(self, connection):
        self.connection = connection
        self.is_failing = True

    def execute(self, *arguments):
        if self.is_failing:
            raise sqlite3.OperationalError("disk I/O error")
        return self.connection.execute(*arguments)

    def close(self):
        self.connection.close()


def test_a_disk_that_does_not_answer(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        written.settle(settled("a"))
        failing = written.ledger._file.connection = Failing(written.ledger._file.connection)
        assert written.settle(settled("b")).error == "disk I/O error"
        failing.is_failing = False
        more = until_committed(written)
    assert totals(url)[0] == 2 + more
    assert ["disk I/O error" in line for line in written.lines()] == [True, False]


def test_what_there_is_no_room_for_is_counted(new_sqlite, monkeypatch):
    monkeypatch.setattr(writer, "WAITING_MAX", 10)
    url = new_sqlite()
    with writing(url) as written:
        other = sqlite3.connect(file_of(url), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        receipts = []
        for number in range(40):
            exchange = settled(f"a{number:02}")
            receipts.append(written.ledger.settle(exchange, reading(exchange)))
            written.wait(receipts[-1])
        other.execute("ROLLBACK")
        other.close()
        more = until_committed(written)
        dropped = written.ledger.dropped
    kept = totals(url)[0]
    assert kept + dropped == 40 + more
    assert 1 <= kept <= 16
    assert written.lines("error")


def test_a_queue_that_is_overrun_refuses_at_once(new_sqlite, monkeypatch):
    monkeypatch.setattr(writer, "WAITING_MAX", 0)
    with writing(new_sqlite()) as written:
        receipt = written.ledger.settle(settled("a"), reading(settled("a")))
        assert receipt.error == "the ledger is overrun"
        assert written.ledger.dropped == 1
    assert "not in the ledger" in written.lines()[0]


def test_a_ledger_that_is_removed_is_begun_anew(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        written.settle(settled("a"))
        secret = written.ledger.secret
        for suffix in ("", "-wal", "-shm"):
            file_of(url).with_name(file_of(url).name + suffix).unlink(missing_ok=True)
        assert written.settle(settled("b")).committed
    assert totals(url) == (1, 100, COST)
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
            assert "cannot create" in written.settle(settled(f"b{number}")).error
        (tmp_path / "folder").unlink()
        more = until_committed(written)
    assert totals(url)[0] == 3 + more
    assert written.ledger.dropped == 0
    removed, trouble, over = written.lines()
    assert "was moved or removed" in removed
    assert "cannot create" in trouble
    assert "is written again" in over


def test_a_listener_that_fails_stops_no_writing(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:

        def closed(_):
            raise RuntimeError("Event loop is closed")

        listener, written.ledger.on_commit = written.ledger.on_commit, closed
        written.ledger.settle(settled("a"), reading(settled("a")))
        while not written.lines():
            written.ledger._thread.join(0.01)
        written.ledger.on_commit = listener
        assert written.settle(settled("b")).committed
    assert totals(url)[0] == 2
    assert "nobody hears" in written.lines()[0]


def test_a_ledger_that_is_destroyed_stops_no_traffic(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        written.settle(settled("a"))
        run_on_writer(
            written,
            lambda connection: connection.executescript(
                "PRAGMA cache_size = 0; PRAGMA shrink_memory"
            ),
        )
        path = file_of(url)
        for file in (path, path.with_name(path.name + "-wal")):
            with file.open("r+b") as damaged:
                damaged.write(b"\0garbage" * 8_000)
        receipts = [written.settle(settled(f"b{number}")) for number in range(20)]
        assert receipts[-1].error
        assert written.lines("error")
    assert written.ledger.dropped == sum(1 for receipt in receipts if receipt.error)


def test_a_damaged_ledger_ends_the_start_with_one_line(new_sqlite):
    url = new_sqlite()
    file_of(url).write_bytes(b"\0garbage" * 8_000)
    with pytest.raises(LedgerError, match="not a database; move the file away"):
        recording.open_ledger(url, node="n", log=lambda *_: None)


def test_a_bug_in_a_row_costs_that_row_alone(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        exchange = settled("a", request_model=object())
        receipt = written.settle(exchange)
        assert "the ledger refuses it" in receipt.error
        assert written.settle(settled("b")).committed
    assert totals(url)[0] == 1


def test_closing_writes_what_waits_and_then_refuses(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        receipts = []
        for number in range(600):
            exchange = settled(f"a{number}")
            receipts.append(written.ledger.settle(exchange, reading(exchange)))
        written.ledger.close(30)
        assert all(receipt.committed for receipt in receipts)
        late = written.ledger.settle(settled("b"), reading(settled("b")))
        assert late.error == "the ledger is closed"
        written.ledger.open(opened("c"))
        written.ledger.close(30)
    assert totals(url) == (600, 60_000, 600 * COST)


def test_closing_in_trouble_counts_what_is_not_kept(new_sqlite):
    url = new_sqlite()
    other = sqlite3.connect(file_of(url), isolation_level=None)
    with writing(url) as written:
        other.execute("BEGIN IMMEDIATE")
        for number in range(3):
            written.settle(settled(f"a{number}"))
        written.ledger.open(opened("b"))
    other.close()
    assert written.ledger.dropped == 3
    assert "3 exchanges are not in the ledger: database is locked" in written.lines()[-1]


def test_lessons_are_kept_and_forgotten_in_time(new_sqlite):
    url = new_sqlite()

    def lesson(path, verdict, days):
        learned_at = NOON.replace(year=2100)
        return Learned(
            origin="o",
            path=path,
            verdict=verdict,
            learned_at=learned_at,
            expires_at=learned_at + timedelta(days=days),
        )

    with writing(url) as written:
        assert written.ledger.learned == {}
        written.ledger.learn(lesson("/a", "opt_in", 1))
        written.ledger.learn(lesson("/a", "refuses", 2))
        written.ledger.learn(lesson("/b", "automatic", -40_000))
        assert set(written.ledger.learned) == {("o", "/a"), ("o", "/b")}
    with writing(url) as written:
        assert written.ledger.learned == {("o", "/a"): lesson("/a", "refuses", 2)}


def test_two_ledgers_on_one_file(new_sqlite):
    url = new_sqlite()
    with writing(url, node="host/1/1") as one, writing(url, node="host/2/1") as other:
        receipts = []
        for number in range(100):
            for written, name in ((one, "a"), (other, "b")):
                exchange = settled(f"{name}{number}")
                receipts.append(written.ledger.settle(exchange, reading(exchange)))
        one.wait(*receipts[::2])
        other.wait(*receipts[1::2])
        assert one.ledger.secret == other.ledger.secret
    assert totals(url) == (200, 20_000, 200 * COST)
    engine = db.open_engine(url)
    assert rows(engine, "SELECT node, COUNT(*) FROM exchanges GROUP BY node ORDER BY node") == [
        ("host/1/1", 100),
        ("host/2/1", 100),
    ]
    engine.dispose()


def test_moments_of_another_zone_and_wrong_states_are_our_own_mistakes(new_sqlite):
    from datetime import timezone

    east = timezone(timedelta(hours=1))
    with writing(new_sqlite()) as written:
        with pytest.raises(AssertionError):
            written.ledger.open(opened("a", at=NOON.astimezone(east)))
        with pytest.raises(AssertionError):
            written.ledger.open(settled("a"))
        with pytest.raises(AssertionError):
            written.ledger.settle(settled("a"), reading(settled("b")))


STEPS = ["admitted", "open_row", "settled_row", "statement", "look", "_resolve", "_take", "_keep"]


@pytest.mark.parametrize("error", [RuntimeError, ValueError, sqlite3.InterfaceError, MemoryError])
@pytest.mark.parametrize("step", STEPS)
def test_whatever_a_step_raises_the_writer_goes_on(new_sqlite, monkeypatch, capfd, step, error):
    """Each step of the writer raises twice, with each kind of item on its way."""
    url = new_sqlite()
    owner = {
        "admitted": door,
        "look": ledger_file.LedgerFile,
        "_resolve": Ledger,
        "_take": Ledger,
        "_keep": Ledger,
    }.get(step, batch_insert)
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    with writing(url) as written:
        written.settle(settled("before"))
        real = getattr(owner, step)
        left = [error("step failed"), error("step failed")]

        def fail(*arguments, **options):
            if left:
                raise left.pop()
            return real(*arguments, **options)

        monkeypatch.setattr(owner, step, fail)
        written.ledger.open(opened("a"))
        lesson = Learned(origin="o", path="/", verdict="opt_in", learned_at=NOON, expires_at=NOON)
        written.ledger.learn(lesson)
        written.ledger.settle(settled("a"), reading(settled("a")))
        deadline = time.monotonic() + 30
        while left or not written.settle(settled(uuid.uuid4().hex)).committed:
            assert time.monotonic() < deadline, "the writer does not go on"
            written.ledger.learn(lesson)
            written.ledger.open(opened(uuid.uuid4().hex))
            written.settle(settled(uuid.uuid4().hex))
        health = written.ledger.health()
        if not issubclass(error, sqlite3.Error) and step not in ("statement", "_resolve"):
            assert health.threads[0].failures + health.set_aside > 0
        assert health.threads[0].is_working
    assert totals(url)[0] >= 2
    assert written.ledger.dropped <= 2


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"id": "\ud800"}, id="id"),
        pytest.param({"origin": "http://\udfff"}, id="origin"),
        pytest.param({"path": "/\udcff/v1"}, id="path"),
        pytest.param({"request_model": "m" * 5_000_000}, id="model"),
        pytest.param({"opened_at": datetime(1, 1, 1, tzinfo=UTC)}, id="year 1"),
        pytest.param({"source": Source.REPLAY, "id": "x\udcffy"}, id="a recording's id"),
        pytest.param({"tags": {"\ud800": "\x1b[31m"}}, id="tags"),
        pytest.param({"request_bytes": -1}, id="negative"),
        pytest.param({"events": 10**30}, id="beyond 64 bits"),
    ],
)
def test_odd_values_are_recorded_as_what_can_be(new_sqlite, changes):
    url = new_sqlite()
    exchange = settled("a", **changes)
    with writing(url) as written:
        written.ledger.open(replace(opened("a"), **changes))
        assert written.settle(exchange).committed, written.lines()
        written.ledger.learn(
            Learned(
                origin=exchange.origin,
                path=exchange.path,
                verdict="opt_in",
                learned_at=NOON,
                expires_at=NOON + timedelta(1),
            )
        )
        assert written.settle(settled("b")).committed
        assert written.ledger.health().problems() == ()
    assert totals(url)[0] == 2


def test_a_ledger_that_is_moved_keeps_what_was_committed(new_sqlite, tmp_path):
    url = new_sqlite()
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


def test_two_processes_with_one_name_get_two(new_sqlite):
    url = new_sqlite()
    with writing(url, node="host/1/1") as one, writing(url, node="host/1/1") as two:
        one.ledger.open(opened("a"))
        two.ledger.open(opened("b"))
        one.settle(settled("c"))
        two.settle(settled("d"))
        engine = db.open_engine(url)
        names = {node for (node,) in rows(engine, "SELECT node FROM exchanges")}
        engine.dispose()
    assert len(names) == 2
    assert all(name.startswith("host/1/1") for name in names)
