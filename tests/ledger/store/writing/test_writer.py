"""The writer: rows, batches, receipts, lessons, and what odd values cost."""

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace as replace_lesson
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ledger.model.exchange import (
    FETCHED,
    Exchange,
    Outcome,
    Reading,
    Source,
    State,
    UsageSource,
)
from ledger.model.learned import Learned
from ledger.model.usage import Usage
from ledger.store.processes import nodes
from ledger.store.processes.supervision import Companion
from ledger.store.writing import lessons as lessons_module
from ledger.store.writing.writer import Ledger
from tests.ledger.written import (
    COST,
    NOON,
    by_id,
    file_of,
    opened,
    priced,
    reading,
    row,
    rows,
    settled,
    totals,
    wait_until,
    writing,
)
from tests.named import for_each

pytestmark = pytest.mark.usefixtures("quick")


def test_an_exchange_is_on_disk_when_its_receipt_says_so(new_sqlite):
    with writing(new_sqlite()) as written:
        written.ledger.open(opened("a"))
        receipt = written.settle(settled("a"))
        assert (receipt.exchange_id, receipt.committed, receipt.error) == ("a", True, None)
        assert totals(written.url) == (1, 100, 20, COST)
        assert written.ledger.dropped == 0
    assert written.lines() == []


def test_no_exchange_was_opened_before_the_first_moment_of_the_writer(new_sqlite):
    """Flows of a file, and a clock that was set back, have earlier moments than its start."""
    before = datetime.now(UTC)
    with writing(new_sqlite()) as written:
        ledger = written.ledger
        assert before <= ledger.first_opened_at <= datetime.now(UTC)
        written.settle(settled("later", at=before + timedelta(hours=1)))
        assert ledger.first_opened_at >= before
        written.settle(settled("saved", at=NOON))
        assert ledger.first_opened_at == NOON
        ledger.open(opened("set back", at=NOON - timedelta(hours=1)))
        written.settle(settled("again", at=NOON))
        assert ledger.first_opened_at == NOON - timedelta(hours=1)


@pytest.fixture
def gate():
    """Opens the way to the writer, which `held` keeps at its first exchange."""
    return threading.Event()


@pytest.fixture
def begun():
    """Set when the writer is at its first exchange: what comes then is not of its batch."""
    return threading.Event()


@pytest.fixture
def held(gate, begun):
    def price(exchange, read):
        begun.set()
        gate.wait(30)
        return priced(exchange, read)

    return price


def lesson(path: str, verdict: str = "opt_in", *, at: datetime = NOON, days: int = 1) -> Learned:
    expires_at = at + timedelta(days=days)
    return Learned(origin="o", path=path, verdict=verdict, learned_at=at, expires_at=expires_at)


def test_what_gathers_while_a_batch_is_written_is_one_batch(new_sqlite, gate, begun, held):
    with writing(new_sqlite(), price=held) as written:
        first = written.hand_over(settled("a"))
        assert begun.wait(30)
        later = []
        for number in range(20):
            written.ledger.open(opened(f"b{number}"))
            later.append(written.hand_over(settled(f"b{number}")))
        gate.set()
        written.wait(first, *later)
        wait_until(lambda: sum(map(len, written.batches)) == 21)  # the last is told of after it
        assert [len(batch) for batch in written.batches] == [1, 20]
    assert totals(written.url) == (21, 2100, 420, 21 * COST)


def test_the_threads_beside_the_writer_are_woken_after_each_batch(url):
    woken = threading.Event()

    class Beside(Companion):
        def wake(self) -> None:
            woken.set()

        def _run(self) -> None:
            self._stopping.wait()

    ledger = Ledger(
        file_of(url),
        shown_url=url,
        node="host/1/1",
        price=None,
        on_commit=None,
        log=lambda *_: None,
        companions=[Beside("beside", log=lambda *_: None)],
    )
    ledger.start()
    try:
        assert not woken.is_set()
        ledger.settle(settled("a"), reading(settled("a")))
        assert woken.wait(30)
    finally:
        ledger.close(30)


def test_a_ledger_that_is_closed_leaves_no_sign_of_its_process(url):
    file = Path(url.removeprefix("sqlite:///"))
    with writing(url):
        assert nodes.is_alive(file, "host/1/1")
        (lock,) = file.with_name(f"{file.name}-nodes").iterdir()
    assert not lock.exists()


def test_a_replayed_exchange_stands_where_it_stood(new_sqlite):
    """A recording that rounds times makes no second row."""
    with writing(new_sqlite()) as written:
        exchange = settled("a", at=NOON + timedelta(microseconds=7))
        written.settle(exchange)
        again = settled("a", at=NOON, source=Source.REPLAY)
        assert written.settle(again).committed
    assert totals(written.url) == (1, 100, 20, COST)


def test_recordings_of_one_exchange_in_one_batch_are_one_row(new_sqlite, gate, held):
    """A bulk of them is looked up by one statement, and none is inserted beside another."""
    with writing(new_sqlite(), price=held) as written:
        written.hand_over(settled("known", at=NOON + timedelta(microseconds=7)))
        receipts = [
            written.hand_over(settled(name, at=at, source=Source.REPLAY))
            for at in (NOON, NOON + timedelta(microseconds=9))
            for name in ("known", *(f"e{number}" for number in range(100)))
        ]
        gate.set()
        written.wait(*receipts)
        assert all(receipt.committed for receipt in receipts)
    assert totals(written.url) == (101, 101 * 100, 2020, 101 * COST)


def test_an_exchange_that_cannot_be_priced_is_recorded_unpriced(new_sqlite):
    def fail(_exchange, _read):
        raise KeyError("no such model")

    with writing(new_sqlite(), price=fail) as written:
        assert written.settle(settled("a")).committed
    assert totals(written.url) == (1, 100, 20, None)
    (line,) = written.lines()
    assert "exchange a is not priced" in line


def test_closing_writes_what_waits_and_then_refuses(new_sqlite):
    with writing(new_sqlite()) as written:
        receipts = [written.hand_over(settled(f"a{number}")) for number in range(600)]
        written.ledger.close(30)
        assert all(receipt.committed for receipt in receipts)
        late = written.hand_over(settled("b"))
        assert late.error == "the ledger is closed"
        written.ledger.open(opened("c"))
        written.ledger.close(30)
    assert totals(written.url) == (600, 60_000, 12000, 600 * COST)


def test_lessons_are_kept_and_forgotten_in_time(new_sqlite):
    url, late = new_sqlite(), NOON.replace(year=2100)
    with writing(url) as written:
        assert written.ledger.learned == {}
        written.ledger.learn(lesson("/a", at=late))
        written.ledger.learn(lesson("/a", "refuses", at=late, days=2))
        written.ledger.learn(lesson("/b", "automatic", at=late, days=-40_000))
        assert set(written.ledger.learned) == {("o", "/a"), ("o", "/b")}
    with writing(url) as written:
        assert written.ledger.learned == {("o", "/a"): lesson("/a", "refuses", at=late, days=2)}


def test_two_ledgers_on_one_file(url):
    with writing(url, node="host/1/1") as one, writing(url, node="host/2/1") as other:
        receipts = [
            written.hand_over(settled(f"{name}{number}"))
            for number in range(100)
            for written, name in ((one, "a"), (other, "b"))
        ]
        one.wait(*receipts[::2])
        other.wait(*receipts[1::2])
        assert one.ledger.secret == other.ledger.secret
    assert totals(url) == (200, 20_000, 4000, 200 * COST)
    assert rows(url, "SELECT node, COUNT(*) FROM exchanges GROUP BY node ORDER BY node") == [
        ("host/1/1", 100),
        ("host/2/1", 100),
    ]


def test_moments_of_another_zone_and_wrong_states_are_our_own_mistakes(new_sqlite):
    east = timezone(timedelta(hours=1))
    with writing(new_sqlite()) as written:
        with pytest.raises(AssertionError):
            written.ledger.open(opened("a", at=NOON.astimezone(east)))
        with pytest.raises(AssertionError):
            written.ledger.open(settled("a"))
        with pytest.raises(AssertionError):
            written.ledger.settle(settled("a"), reading(settled("b")))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"id": "\ud800"}, id="id"),
        pytest.param({"origin": "http://\udfff"}, id="origin"),
        pytest.param({"path": "/\udcff/v1"}, id="path"),
        pytest.param({"request_model": "m" * 5_000_000}, id="model"),
        pytest.param({"opened_at": datetime(1, 1, 1, tzinfo=UTC)}, id="year 1"),
        pytest.param({"source": Source.REPLAY, "id": "x\udcffy"}, id="a recording's id"),
        pytest.param({"tags": {"\ud800": "\x1b[31m\udfff"}}, id="tags"),
        pytest.param({"user_agent": "a\0\ud800"}, id="user agent"),
        pytest.param({"request_bytes": -1}, id="negative"),
        pytest.param({"events": 10**30}, id="beyond 64 bits"),
    ],
)
def test_odd_values_are_recorded_as_what_can_be(url, changes):
    exchange = settled("a", **changes)
    with writing(url) as written:
        written.ledger.open(replace(opened("a"), **changes))
        no_json = reading(exchange, usage_json="{")
        assert written.settle(exchange, no_json).committed, written.lines()
        written.ledger.learn(replace_lesson(lesson(exchange.path), origin=exchange.origin))
        assert written.settle(settled("b")).committed
        assert written.ledger.health().problems() == ()
    assert totals(url)[0] == 2


def test_two_processes_with_one_name_get_two(url):
    with writing(url, node="host/1/1") as one, writing(url, node="host/1/1") as two:
        one.ledger.open(opened("a"))
        two.ledger.open(opened("b"))
        one.settle(settled("c"))
        two.settle(settled("d"))
        names = {node for (node,) in rows(url, "SELECT node FROM exchanges")}
    assert len(names) == 2
    assert all(name.startswith("host/1/1") for name in names)


def test_what_another_process_learns_is_taken_over(url):
    now, soon, later = (datetime.now(UTC) + timedelta(minutes=each) for each in (0, 1, 2))
    with writing(url) as other, writing(url) as written:
        other.ledger.learn(lesson("/a", at=soon))
        other.ledger.learn(lesson("/b", at=soon))
        other.ledger.learn(lesson("/c", at=soon))
        written.ledger.learned["o", "/b"] = lesson("/b", "refuses", at=later)
        written.ledger.learned["o", "/c"] = lesson("/c", "refuses", at=now)
        other.settle(settled("a"))  # behind the lessons
        other.settle(settled("b"))
        written.ledger.refresh_lessons()
        assert written.ledger.learned["o", "/a"] == lesson("/a", at=soon)
        assert written.ledger.learned["o", "/b"].verdict == "refuses", "newer, and not on disk yet"
        assert written.ledger.learned["o", "/c"] == lesson("/c", at=soon), "older"


def test_a_ledger_that_cannot_be_read_teaches_nothing(new_sqlite, tmp_path):
    with writing(new_sqlite()) as written:
        written.ledger._lessons.refresh(tmp_path / "none" / "there.sqlite3")
        assert written.ledger.learned == {}


def test_lessons_are_bounded_and_written_together(new_sqlite, monkeypatch):
    monkeypatch.setattr(lessons_module, "KEPT_LESSONS_MAX", 5)
    with writing(new_sqlite()) as written:
        for number in range(20):
            at = NOON + timedelta(seconds=number)
            written.ledger.learn(lesson(f"/{number}", at=at, days=9_000))
        assert [path for _, path in written.ledger.learned] == [f"/{n}" for n in range(15, 20)]
    assert rows(written.url, "SELECT path FROM learned ORDER BY learned_at") == [
        (f"/{n}",) for n in range(15, 20)
    ]


COUNT = 512
COUNTING = """
CREATE TABLE links_written (one INTEGER);
CREATE TRIGGER count_links AFTER UPDATE OF duplicate_of ON exchanges
BEGIN INSERT INTO links_written VALUES (1); END;
"""


@pytest.mark.parametrize("order", ["as opened", "reverse"])
def test_equal_exchanges_are_linked_in_linear_work(url, order: str):
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(COUNTING)
    numbers = range(COUNT) if order == "as opened" else reversed(range(COUNT))
    with writing(url) as written, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # so that they wait, and come in whole batches
        for number in numbers:
            exchange = settled(
                f"e{number:04}",
                at=NOON + timedelta(seconds=number),
                response_id="r",
                upstream_digest="d",
                request_digest="q",
                content_digest="c",
            )
            written.hand_over(exchange)
        other.execute("COMMIT")
    (links,) = row(url, "SELECT COUNT(*) FROM links_written")
    counting = rows(url, "SELECT id FROM exchanges WHERE duplicate_of IS NULL")
    pointing = rows(url, "SELECT DISTINCT duplicate_of FROM exchanges")
    assert counting == [("e0000",)]
    assert sorted(pointing, key=str) == [("e0000",), (None,)]
    assert links <= 10 * COUNT


def test_an_open_row_does_not_wait_for_its_end(new_sqlite):
    with writing(new_sqlite()) as written:
        written.open(opened("a"))
        written.settle(settled("b"))
        found = by_id(written.url, "state, node")
        assert found == [("a", "open", "host/1/1"), ("b", "settled", "host/1/1")]


@pytest.mark.parametrize(
    ("exchange", "usage"),
    [
        pytest.param(settled("a", user_agent="\ud800"), "{}", id="lone surrogate"),
        pytest.param(settled("a", user_agent="a\0b"), "{}", id="NUL"),
        pytest.param(settled("a", tags={"k": "\udfff"}), "{}", id="lone surrogate in a tag"),
        pytest.param(settled("a"), "{", id="usage that is no JSON"),
    ],
)
def test_odd_text_costs_no_row(new_sqlite, exchange, usage):
    with writing(new_sqlite()) as written:
        read = reading(exchange, usage_json=usage)
        assert written.settle(exchange, read).committed, written.lines()
        assert written.settle(settled("b")).committed
    assert totals(written.url)[0] == 2


def test_an_open_row_that_waits_is_not_written_beside_its_settled_one(url):
    """Rows that a locked file kept waiting: each exchange is inserted once, and changed never."""
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
        other.executescript(
            "CREATE TABLE written (id TEXT);"
            "CREATE TRIGGER count_new AFTER INSERT ON exchanges "
            "BEGIN INSERT INTO written VALUES (new.id); END;"
            "CREATE TRIGGER count_changed AFTER UPDATE ON exchanges "
            "BEGIN INSERT INTO written VALUES (new.id); END;"
        )
        with writing(url) as written:
            other.execute("BEGIN IMMEDIATE")
            for name in ("a", "b"):
                written.ledger.open(opened(name))
            wait_until(lambda: written.ledger.health().trouble)
            written.hand_over(settled("a"))
            other.execute("ROLLBACK")
            wait_until(lambda: by_id(url, "state") == [("a", "settled"), ("b", "open")])
    assert rows(url, "SELECT id FROM written ORDER BY id") == [("a",), ("b",)]


def first_part(source: UsageSource, **more: Any) -> tuple[Exchange, Reading]:
    """An answer that broke off, of which output was estimated."""
    facts = {"response_id": "r", "content_digest": None, "upstream_digest": "bytes"}
    exchange = settled("first", **{"request_digest": "asked", **facts, **more})
    usage = Usage(output_tokens=7) if source is not UsageSource.NONE else Usage()
    return exchange, reading(exchange, usage_source=source, usage=usage, usage_json=None)


def fetched(name: str, **more: Any) -> tuple[Exchange, Reading]:
    """Its result, fetched a minute later."""
    exchange = settled(
        name, at=NOON + timedelta(minutes=1), response_id="r", content_digest="c", **more
    )
    exchange = replace(exchange, source=Source.REPLAY)
    return exchange, reading(exchange)


@pytest.mark.parametrize("source", [UsageSource.NONE, UsageSource.ESTIMATED, UsageSource.PARTIAL])
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_result_fetched_later_is_a_reading_of_the_row_that_it_completes(
    new_sqlite, gate, held, source, is_one_batch
):
    with writing(new_sqlite(), price=held) as written:
        if not is_one_batch:
            gate.set()
        receipts = [written.hand_over(settled("other"))]
        for exchange, read in (first_part(source), fetched("a"), fetched("b")):
            receipts.append(written.ledger.settle(exchange, read))
            if not is_one_batch:
                written.wait(receipts[-1])
        gate.set()
        written.wait(*receipts)
        assert [receipt.error for receipt in receipts] == [None] * 4
        assert totals(written.url) == (2, 200, 40, 2 * COST)
        first = row(written.url, "SELECT request_digest, source FROM exchanges WHERE id = 'first'")
        assert tuple(first) == ("asked", "live")
        found = rows(
            written.url,
            "SELECT revision, usage_source, output_tokens, reason FROM readings "
            "WHERE exchange_id = 'first' ORDER BY revision",
        )
        assert [tuple(each) for each in found][1:] == [(2, "reported", 20, FETCHED)]
        assert found[0].usage_source == source


@for_each(
    "more",
    [
        {"key_fingerprint": "another"},
        {"origin": "https://other.example:443"},
        {"response_model": "model-2"},
        {"response_id": "s"},
    ],
)
def test_a_result_of_another_response_has_a_row_of_its_own(new_sqlite, more):
    with writing(new_sqlite()) as written:
        exchange, read = fetched("a")
        for each in (first_part(UsageSource.ESTIMATED), (replace(exchange, **more), read)):
            written.wait(written.ledger.settle(*each))
        assert totals(written.url) == (2, 100, 20, COST)


def test_figures_that_were_reported_do_not_give_way(new_sqlite):
    """A gateway may restart its numbers at 1."""
    with writing(new_sqlite()) as written:
        exchange, _ = first_part(UsageSource.ESTIMATED)
        for each in ((exchange, reading(exchange)), fetched("a")):
            written.wait(written.ledger.settle(*each))
        assert totals(written.url) == (2, 200, 40, 2 * COST)


def test_a_stopped_exchange_stays_lost_when_its_result_is_fetched(new_sqlite):
    with writing(new_sqlite()) as written:
        lost, read = first_part(
            UsageSource.ESTIMATED, state=State.LOST, outcome=Outcome.LOST, tags={"a": "b"}
        )
        written.wait(written.ledger.settle(lost, replace(read, revision=0)))
        written.wait(written.ledger.settle(*fetched("a")))
        assert totals(written.url) == (1, 100, 20, COST)
        first = row(written.url, "SELECT state, tags FROM exchanges")
        assert tuple(first) == ("lost", '{"a":"b"}')
