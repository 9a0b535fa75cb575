"""The queue to the writer: what wakes it, what waits for company, and that nothing is left."""

import threading
import time

import pytest

from ledger.model.exchange import State
from ledger.model.learned import Learned
from ledger.store import db
from ledger.store.processes.set_aside import SetAside
from ledger.store.writing import batch_insert, incoming
from ledger.store.writing.incoming import Incoming
from ledger.store.writing.jobs import Job
from tests.ledger.written import NOON, opened, reading, rows, settled, writing

FOREVER = 600.0
LESSON = Learned(origin="o", path="/", verdict="opt_in", learned_at=NOON, expires_at=NOON)


@pytest.fixture
def queue() -> Incoming:
    return Incoming(SetAside(None, log=lambda *_: None))


def ended(name: str) -> Job:
    return Job(settled(name), reading(settled(name)))


def taken(queue: Incoming, wait_seconds: float | None = None) -> tuple[list[str], bool]:
    """Names and states of the next batch, and whether the queue is closed."""
    jobs: list[Job] = []
    is_closed = queue.take(jobs, [], wait_seconds)
    return sorted(f"{job.exchange.id} {job.exchange.state.value}" for job in jobs), is_closed


def test_open_rows_go_with_the_next_settled_one(queue, monkeypatch):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", FOREVER)
    queue.open(Job(opened("a")))
    queue.open(Job(opened("b")))
    assert queue.count == 3  # with the signal that wakes the writer
    queue.settle(ended("a"))
    assert taken(queue) == (["a open", "a settled", "b open"], False)
    assert queue.count == 0


@pytest.mark.parametrize("put", [lambda q: q.learn(LESSON), lambda q: q.close()])
def test_lessons_and_the_end_take_open_rows_with_them(queue, monkeypatch, put):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", FOREVER)
    queue.open(Job(opened("a")))
    put(queue)
    assert taken(queue) == (["a open"], queue.is_closed)


def test_an_open_row_that_nothing_follows_goes_alone(queue, monkeypatch):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", 0.0)
    for name in ("a", "b"):
        queue.open(Job(opened(name)))
        assert taken(queue) == ([f"{name} open"], False)


def test_a_settled_row_waits_for_no_open_one(queue, monkeypatch):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", FOREVER)
    queue.settle(ended("a"))
    assert taken(queue) == (["a settled"], False)


def test_a_wait_that_ends_takes_what_is_there(queue):
    assert taken(queue, 0.0) == ([], False)


def test_opening_in_many_threads_loses_none(queue, monkeypatch):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", 0.0)
    threads = [
        threading.Thread(
            target=lambda t=number: [queue.open(Job(opened(f"{t}-{i}"))) for i in range(200)]
        )
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < 800:
        # A signal may be left of jobs that are taken already, but no job is left without one.
        found += taken(queue, 30.0)[0]
        assert time.monotonic() < deadline, "an open row is left without a signal"
    for thread in threads:
        thread.join()
    assert len(set(found)) == 800


def test_what_opens_and_ends_soon_is_inserted_once(new_sqlite, monkeypatch):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", FOREVER)
    written_states: list[object] = []
    real = batch_insert.statement

    def counted(rows):
        written_states.extend(row[batch_insert.EXCHANGE_COLUMNS.index("state")] for row in rows)
        return real(rows)

    monkeypatch.setattr(batch_insert, "statement", counted)
    url = new_sqlite()
    with writing(url) as written:
        written.ledger.open(opened("a"))
        written.settle(settled("a"))
        assert written_states == [State.SETTLED]


def test_an_open_row_is_on_disk_soon(new_sqlite):
    url = new_sqlite()
    with writing(url) as written:
        written.ledger.open(opened("a"))
        engine = db.open_engine(url)
        deadline = time.monotonic() + 60
        while not (found := rows(engine, "SELECT id, state FROM exchanges")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        engine.dispose()
    assert found == [("a", "open")]
