"""Batches as one statement: what it writes, and twice. The queue to the writer: what wakes it, what waits
for company, and that nothing is left."""

import sqlite3
import threading
import time
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from ledger.model.exchange import Outcome, State
from ledger.model.learned import Learned
from ledger.model.usage import FurtherUsage, Usage
from ledger.store.processes.supervision import SetAside
from ledger.store.tables import charges, exchanges
from ledger.store.writing import batch_insert, incoming
from ledger.store.writing.incoming import Incoming, Job
from tests.ledger.written import COST, NOON, intake_on, opened, priced, reading, settled, writing


def test_a_row_has_the_columns_of_the_tables():
    columns = {*batch_insert.EXCHANGE_COLUMNS, "duplicate_of", "id_collision"}
    assert columns == set(exchanges.c.keys())
    assert {*batch_insert.CHARGE_COLUMNS} < set(charges.c.keys())


@pytest.fixture
def connection(sqlite_engine):
    return intake_on(sqlite_engine, spooling=True)


def settled_row(exchange, read=None, *, node=None):
    read = read or reading(exchange)
    return batch_insert.settled_row(exchange, read, priced(exchange, read), node)


def take(connection, *rows):
    connection.execute(*batch_insert.statement(rows))


def figures(connection):
    return connection.execute(
        "SELECT COUNT(*), SUM(input_tokens), SUM(cost_picousd) FROM requests"
    ).fetchone()


def test_every_column_arrives(connection):
    moments = {
        name: NOON + timedelta(microseconds=number)
        for number, name in enumerate(("first_byte_at", "first_token_at", "settled_at"))
    }
    words = {
        name: f"the {name}"
        for name in batch_insert.EXCHANGE_COLUMNS
        if exchanges.c[name].type.python_type is str
        and name not in ("state", "outcome", "source", "tags", "id")
    }
    counts = {
        name: number
        for number, name in enumerate(
            name for name in batch_insert.EXCHANGE_COLUMNS if name.endswith("_bytes")
        )
    }
    facts = ("streamed", "usage_asked", "usage_injected", "usage_stripped", "resent", "id_unstable")
    each: dict[str, Any] = {**moments, **words, **counts, **dict.fromkeys(facts, True)}
    exchange = settled("a", tags={"k": "ü"}, events=7, http_status=200, **each)
    usage = Usage(
        input_tokens=1000,
        cache_read_tokens=200,
        cache_write_tokens=30,
        cache_write_5m_tokens=10,
        cache_write_1h_tokens=20,
        output_tokens=60,
        reasoning_tokens=6,
        input_audio_tokens=7,
        output_audio_tokens=8,
        tool_units={"web_searches": 2},
        further=(FurtherUsage(kind="compaction", model=None, usage=Usage(input_tokens=5)),),
        remarks=("no count: -1",),
        reported_cost_picousd=11,
        reported_upstream_cost_picousd=12,
        is_byok=True,
    )
    read = reading(exchange, usage=usage, estimated_output_tokens=13, reason="why")
    take(connection, batch_insert.settled_row(exchange, read, priced(exchange, read), None))

    connection.row_factory = sqlite3.Row
    kept = dict(connection.execute("SELECT * FROM exchanges").fetchone())
    for name, value in (words | counts).items():
        assert kept[name] == value, name
    assert all(kept[name] == 1 for name in facts)
    assert kept["first_token_at"] == "2026-11-02 12:00:00.000001Z"
    assert kept["tags"] == '{"k":"ü"}'
    assert (kept["events"], kept["http_status"], kept["state"]) == (7, 200, "settled")
    kept = dict(connection.execute("SELECT * FROM readings").fetchone())
    for name in Usage.__struct_fields__:
        if name.endswith(("_tokens", "_picousd")):
            assert kept[name] == getattr(usage, name), name
    assert kept["tool_units"] == '{"web_searches":2}'
    assert '"kind":"compaction"' in kept["further"]
    assert kept["remarks"] == '["no count: -1"]'
    assert kept["usage_json"] == '{"in": 100,  "out": 20}'
    assert (kept["is_byok"], kept["estimated_output_tokens"], kept["reason"]) == (1, 13, "why")
    assert [
        tuple(line)
        for line in connection.execute(
            "SELECT line, quantity, unit_picousd, amount_picousd, price_source, ordinal, revision "
            "FROM charges ORDER BY ordinal"
        )
    ] == [
        ("uncached_input", 800, 10, 8000, "list 1", 0, 1),
        ("cache_read", 200, 1, 200, "list 1", 1, 1),
        ("output", 60, 50, 3000, "list 1", 2, 1),
    ]


def test_nothing_stays_null_and_zero_stays_zero(connection):
    exchange = settled("a", tags={})
    read = reading(exchange, usage=Usage(input_tokens=0), usage_json=None)
    take(connection, batch_insert.settled_row(exchange, read, (), None))
    assert connection.execute(
        "SELECT input_tokens, output_tokens, usage_json, tool_units, further, remarks FROM readings"
    ).fetchone() == (0, None, None, "{}", "[]", "[]")
    assert connection.execute("SELECT tags, events FROM exchanges").fetchone() == ("{}", None)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"a": NaN}', '"{\\"a\\": NaN}"'),
        ("", '""'),
        ("{'a'}", "\"{'a'}\""),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_usage_that_is_no_json_is_kept_as_a_text(connection, text, kept):
    exchange = settled("a")
    take(connection, settled_row(exchange, reading(exchange, usage_json=text)))
    assert connection.execute("SELECT usage_json FROM readings").fetchone() == (kept,)


def test_opened_and_then_settled(connection):
    take(connection, batch_insert.open_row(opened("a"), "host/9/9"))
    assert connection.execute("SELECT state, node FROM exchanges").fetchone() == (
        "open",
        "host/9/9",
    )
    take(connection, settled_row(settled("a")))
    assert figures(connection) == (1, 100, COST)
    take(connection, batch_insert.open_row(opened("a"), "host/9/9"))
    assert figures(connection) == (1, 100, COST)


def test_settled_twice_is_settled_once(connection):
    take(connection, settled_row(settled("a")))
    other = settled("a", provider="other", outcome=Outcome.CLIENT_LEFT)
    read = reading(other, usage=Usage(input_tokens=7, output_tokens=7))
    take(connection, settled_row(other, read), settled_row(other, read))
    assert figures(connection) == (1, 100, COST)
    assert connection.execute("SELECT provider, outcome FROM exchanges").fetchone() == (
        "example",
        "complete",
    )
    assert connection.execute("SELECT COUNT(*) FROM readings").fetchone() == (1,)
    assert connection.execute("SELECT COUNT(*) FROM charges").fetchone() == (3,)


def test_a_lost_exchange_is_settled_with_what_is_read_then(connection):
    lost = settled("a", state=State.LOST, outcome=Outcome.LOST)
    partial = reading(lost, revision=0, usage=Usage(input_tokens=7, output_tokens=1))
    for _ in range(2):
        take(connection, settled_row(lost, partial))
    assert figures(connection)[:2] == (1, 7)
    for _ in range(2):
        take(connection, settled_row(settled("a")))
    take(connection, settled_row(lost, partial))
    assert figures(connection) == (1, 100, COST)
    assert connection.execute("SELECT COUNT(*) FROM readings").fetchone() == (2,)


def test_settling_again_as_something_else_links_nothing(connection):
    take(connection, settled_row(settled("a", response_id="r", content_digest="x")))
    take(connection, settled_row(settled("b", response_id="s", content_digest="y")))
    take(connection, settled_row(settled("b", response_id="r", content_digest="x")))
    take(connection, settled_row(settled("b", response_id="r", content_digest="z")))
    assert connection.execute(
        "SELECT id, response_id, duplicate_of, id_collision FROM exchanges ORDER BY id"
    ).fetchall() == [("a", "r", None, 0), ("b", "s", None, 0)]


def test_a_batch_is_all_or_nothing(connection):
    bad = settled_row(settled("b", events=-1))
    with pytest.raises(sqlite3.IntegrityError, match="events_not_negative"):
        take(connection, settled_row(settled("a")), bad, settled_row(settled("c")))
    assert figures(connection)[0] == 0


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, batch_insert.ROWS_MAX])
def test_batches_of_any_size(connection, count):
    take(connection, *(settled_row(settled(f"a{number}")) for number in range(count)))
    assert figures(connection) == (count, 100 * count, COST * count)
    assert connection.execute("SELECT COUNT(DISTINCT exchange_id) FROM outbox").fetchone() == (
        count,
    )


def test_what_can_be_cleaned_is_cleaned(connection):
    row = settled_row(settled("a", user_agent="\ud800", path="ok"))
    with pytest.raises(UnicodeEncodeError):
        take(connection, row)
    take(connection, batch_insert.cleaned(row))
    assert connection.execute("SELECT user_agent, path FROM exchanges").fetchone() == ("?", "ok")


def test_a_reading_has_one_id_wherever_it_is_written():
    exchange = settled("a")
    read = reading(exchange)
    lines = priced(exchange, read)
    others = [
        (reading(exchange, revision=2), lines),
        (reading(exchange, read_at=NOON + timedelta(1)), lines),
        (reading(exchange, usage=Usage(input_tokens=0)), lines),
        (reading(settled("b")), lines),
        (read, lines[:2]),
        (read, ()),
    ]
    both = [(read, lines), (read, lines), *others]
    assert len({batch_insert.reading_row(*other)["id"] for other in both}) == 7


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


def test_an_open_row_that_holds_something_of_a_cap_goes_at_once(queue, clock):
    """If its process is killed, others count its hold."""
    queue.open(Job(opened("a", hold_tokens=1)))
    assert taken(queue) == (["a open"], False)
    queue.settle(ended("a"))
    assert taken(queue) == (["a settled"], False)


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
    assert queue.settle(ended("a")) == "too many exchanges wait for the ledger"
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


def test_what_opens_and_ends_soon_is_inserted_once(new_sqlite, monkeypatch, noted):
    monkeypatch.setattr(incoming, "OPEN_SECONDS_MAX", FOREVER)
    place = batch_insert.EXCHANGE_COLUMNS.index("state")
    statements = noted(batch_insert, "statement")
    with writing(new_sqlite()) as written:
        written.ledger.open(opened("a"))
        written.settle(settled("a"))
        assert [row[place] for (rows,) in statements for row in rows] == [State.SETTLED]


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
