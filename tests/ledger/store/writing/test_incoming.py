"""The queue to the writer: what wakes it, what waits for company, and that nothing is left."""

import threading
import time
from unittest.mock import Mock

import pytest

from ledger.model.exchange import State
from ledger.model.learned import Learned
from ledger.store.processes.supervision import SetAside
from ledger.store.writing import batch_insert, incoming
from ledger.store.writing.incoming import Incoming
from ledger.store.writing.jobs import Job
from tests.ledger.written import NOON, opened, reading, settled, writing

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


@pytest.fixture
def clock(monkeypatch):
    """The time of the queue; moved by hand."""
    time_of_queue = Mock(monotonic=Mock(return_value=1_000.0))
    monkeypatch.setattr(incoming, "time", time_of_queue)
    return time_of_queue.monotonic


@pytest.mark.parametrize(
    ("put", "others"),
    [(lambda q: q.settle(ended("c")), ["c settled"]), (lambda q: q.learn(LESSON), [])],
)
def test_an_open_row_goes_with_the_last_batch_before_it_is_due(queue, clock, put, others):
    queue.open(Job(opened("a")))
    clock.return_value += incoming.OPEN_SECONDS_MAX - incoming.GATHER_SECONDS
    queue.open(Job(opened("b")))
    assert queue.count == 3  # with the signal that wakes the writer
    put(queue)
    assert taken(queue) == (["a open", *others], False)


def test_an_open_row_that_is_left_is_taken_when_it_is_due(queue, clock):
    queue.open(Job(opened("a")))
    queue.settle(ended("b"))
    assert taken(queue) == (["b settled"], False)
    clock.return_value += incoming.OPEN_SECONDS_MAX
    assert taken(queue, 30.0) == (["a open"], False)
    assert queue.count == 0


def test_the_oldest_open_row_says_when_they_are_due(queue, clock, monkeypatch):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", 60.0)
    queue.open(Job(opened("a")))
    clock.return_value += 60.0
    queue.open(Job(opened("b")))
    began = time.monotonic()
    assert taken(queue) == (["a open"], False)
    assert time.monotonic() - began < 30, "it waited for the newest one"
    assert queue.count == 2  # b, and the signal that it is left


def test_the_refused_end_of_an_exchange_leaves_its_open_row(queue, monkeypatch):
    """And the end of the queue takes it, though it is not due."""
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", FOREVER)
    queue.open(Job(opened("a")))
    monkeypatch.setattr(incoming, "WAITING_MAX", 1)
    assert queue.settle(ended("a")) == "the ledger is overrun"
    queue.close()
    assert taken(queue) == (["a open"], True)


def test_an_open_row_that_nothing_follows_goes_alone(queue, monkeypatch):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", 0.0)
    for name in ("a", "b"):
        queue.open(Job(opened(name)))
        assert taken(queue) == ([f"{name} open"], False)


def test_a_wait_that_ends_takes_what_is_there(queue):
    assert taken(queue, 0.0) == ([], False)


@pytest.fixture
def patient(monkeypatch) -> float:
    """A queue that would wait for more rows longer than any test takes; when it began."""
    monkeypatch.setattr(incoming, "GATHER_SECONDS", 60.0)
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", FOREVER)
    return time.monotonic()


def open_some(queue: Incoming, count: int) -> list[str]:
    names = [f"{number:03}" for number in range(count)]
    for name in names:
        queue.open(Job(opened(name)))
    return names


def test_rows_that_come_soon_after_each_other_are_gathered(queue, patient):
    names = open_some(queue, incoming.GATHER_SETTLED + 4)
    first, rest = names[: incoming.GATHER_SETTLED], names[incoming.GATHER_SETTLED :]
    for name in first:
        queue.settle(ended(name))
    batches: list[list[str]] = []
    writer = threading.Thread(target=lambda: batches.append(taken(queue)[0]))
    writer.start()
    while queue._gathering is None:
        assert time.monotonic() - patient < 30, "it does not wait for more"
        time.sleep(0.001)
    for name in rest:
        queue.settle(ended(name))
    writer.join()
    assert batches == [[f"{name} settled" for name in names]]
    assert time.monotonic() - patient < 30, "it waits although no exchange is open"


def test_a_batch_that_is_large_enough_waits_for_no_more(queue, patient):
    names = open_some(queue, incoming.GATHER_ENOUGH + 8)
    for name in names[: incoming.GATHER_ENOUGH + 1]:
        queue.settle(ended(name))
    assert len(taken(queue)[0]) == incoming.GATHER_ENOUGH + 1
    assert time.monotonic() - patient < 30


def test_rows_that_come_now_and_then_wait_for_none(queue, clock, patient):
    names = open_some(queue, incoming.GATHER_SETTLED + 4)
    for name in names[:-2]:
        clock.return_value += incoming.GATHER_SECONDS * 2 / 3
        queue.settle(ended(name))
        assert f"{name} settled" in taken(queue)[0]
    assert time.monotonic() - patient < 30


def test_many_threads_lose_none(queue, monkeypatch):
    """What is opened and not settled is taken as open, what is settled as settled, each once."""
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", 0.001)
    monkeypatch.setattr(incoming, "GATHER_SECONDS", 0.0)

    def work(thread: int) -> None:
        for number in range(300):
            name = f"{thread}-{number}"
            queue.open(Job(opened(name)))
            if number % 3:
                assert queue.settle(ended(name)) is None

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    found: list[str] = []
    deadline = time.monotonic() + 60
    wanted = {
        f"{thread}-{number} {'settled' if number % 3 else 'open'}"
        for thread in range(4)
        for number in range(300)
    }
    while not wanted <= set(found):
        # A signal may be left of jobs that are taken already, but no job is left without one.
        found += taken(queue, 30.0)[0]
        assert time.monotonic() < deadline, "a row is left without a signal"
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found))
    assert queue.count <= 1  # a signal


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


def test_an_error_while_more_is_gathered_loses_nothing(queue, monkeypatch):
    monkeypatch.setattr(queue, "_gather", Mock(side_effect=RuntimeError))
    job = ended("a")
    queue.settle(job)
    jobs: list[Job] = []
    with pytest.raises(RuntimeError):
        queue.take(jobs, [], None)
    assert jobs == [job]


def test_what_settles_before_its_open_row_is_due_has_none(queue, monkeypatch):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", FOREVER)
    queue.open(Job(opened("a")))
    queue.settle(ended("a"))
    assert taken(queue) == (["a settled"], False)
    assert queue.count == 0
