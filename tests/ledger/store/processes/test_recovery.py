"""Who is alive, told by locks; what dead processes left open is lost, and can be found again. Threads that
go on, and items that are set aside."""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from ledger.store import db
from ledger.store.engines import sqlite_file
from ledger.store.processes import nodes, recovery, supervision
from ledger.store.processes.supervision import SetAside, SupervisedThread
from ledger.store.tables import exchanges
from tests.ledger.written import (
    COST,
    NOON,
    file_of,
    on_postgres,
    opened,
    put,
    row,
    rows,
    settled,
    whole,
    writing,
)


def test_the_open_rows_of_a_dead_node_are_lost_at_the_next_start(url):
    put(
        url,
        (opened("a", node="host/dead/1", request_bytes=12), None, ()),
        (opened("b", node=None), None, ()),
        whole(settled("c", node="host/dead/1")),
    )
    with writing(url) as written:
        (line,) = written.lines()
        assert "2 exchanges of a process that died are recorded as lost" in line
    found = rows(
        url,
        "SELECT id, state, outcome, request_bytes, settled_at IS NOT NULL, usage_source, "
        "input_tokens, cost_state FROM requests ORDER BY id",
    )
    assert found == [
        ("a", "lost", "lost", 12, 1, "none", None, None),
        ("b", "lost", "lost", None, 1, "none", None, None),
        ("c", "settled", "complete", None, 1, "reported", 100, "priced"),
    ]
    with writing(url) as written:
        assert written.lines() == []


def test_a_living_sibling_keeps_its_rows(url):
    with writing(url, node="host/1/1") as one:
        one.open(opened("a"))
        one.settle(settled("b"))
        with writing(url, node="host/2/1") as other:
            assert other.lines() == []
        assert one.settle(settled("a")).committed
    assert row(url, "SELECT COUNT(*), SUM(input_tokens) FROM requests") == (2, 200)


def test_what_was_given_up_too_early_is_settled_after_all(new_sqlite):
    with writing(new_sqlite()) as written:
        written.open(opened("a"))
        written.settle(settled("b"))
        path = file_of(written.url)
        # As another process would, if it could not see that this one lives.
        nodes.lock_path(path, "host/1/1").unlink()
        with contextlib.closing(sqlite_file.connect(path)) as connection:
            lost = recovery.mark_lost_of_dead_nodes(
                connection, path, "host/2/1", now=datetime.now(UTC)
            )
        assert lost == 1
        assert row(written.url, "SELECT state FROM requests WHERE id = 'a'") == ("lost",)
        assert written.settle(settled("a")).committed
    found = rows(written.url, "SELECT state, input_tokens, cost_picousd FROM requests")
    assert found == [("settled", 100, COST)] * 2


def test_the_loss_is_shipped(url):
    put(url, (opened("a", node="dead"), None, ()))
    path = file_of(url)
    with contextlib.closing(sqlite_file.connect(path)) as connection:
        recovery.mark_lost_of_dead_nodes(connection, path, "n", now=NOON, spooling=True)
    assert rows(url, "SELECT exchange_id FROM outbox") == [("a",)]


@on_postgres
def test_in_a_shared_ledger_a_silent_nodes_rows_are_lost(engine):
    now = datetime.now(UTC)
    long_ago = now - timedelta(hours=recovery.SILENT_HOURS, minutes=1)
    put(
        engine,
        (opened("never heard of", at=long_ago, node="n1"), None, ()),
        (opened("silent", at=long_ago, node="n2"), None, ()),
        (opened("heard", at=long_ago, node="n3"), None, ()),
        (opened("just opened", at=now, node="n1"), None, ()),
        whole(settled("ended", at=long_ago, node="n1")),
    )
    with db.writing(engine) as connection:
        recovery.record_heartbeats(connection, ["n2", "n3"])
        connection.execute(
            sa.text("UPDATE nodes SET seen_at = :at WHERE node = 'n2'"), {"at": long_ago}
        )
        recovery.record_heartbeats(connection, ["n3"])
        assert recovery.mark_lost_of_silent_nodes(connection) == 2
        assert recovery.mark_lost_of_silent_nodes(connection) == 0
    assert rows(engine, "SELECT id FROM exchanges WHERE state = 'lost' ORDER BY id") == [
        ("never heard of",),
        ("silent",),
    ]
    put(engine, whole(settled("silent", at=long_ago)))
    assert row(engine, "SELECT input_tokens FROM requests WHERE id = 'silent'") == (100,)


def test_only_nodes_that_live_are_spoken_for(url):
    with db.disposing(db.open_engine(url)) as engine:
        path = file_of(url)
        put(engine, (opened("a", node="alive"), None, ()), (opened("b", node="dead"), None, ()))
        claim = nodes.Claim(path, "alive").take()
        with engine.connect() as connection:
            assert recovery.live_nodes(connection, path) == {"alive"}
            assert connection.scalar(sa.select(sa.func.count()).select_from(exchanges)) == 2
        claim.release()


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger.sqlite3"


def test_a_node_lives_until_it_is_released(ledger):
    claim = nodes.Claim(ledger, "host/1/1").take()
    for _ in range(3):  # looking at a node does not take its place
        assert nodes.is_alive(ledger, "host/1/1")
    assert not nodes.is_alive(ledger, "host/2/1")
    claim.release()
    assert not nodes.is_alive(ledger, "host/1/1")
    claim.release()


def test_the_folder_is_the_owners_alone(ledger):
    claim = nodes.Claim(ledger, "n").take()
    folder = ledger.with_name("ledger.sqlite3-nodes")
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    claim.release()
    assert list(folder.iterdir()) == []


def hold(ledger, said):
    nodes.Claim(ledger, "other").take()
    said.send("claimed")
    signal.pause()


@pytest.mark.process
def test_a_killed_process_is_dead(ledger):
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=hold, args=(ledger, there))
    process.start()
    assert here.recv() == "claimed"
    assert nodes.is_alive(ledger, "other")
    process.kill()
    process.join()
    assert not nodes.is_alive(ledger, "other")
    assert list(ledger.with_name("ledger.sqlite3-nodes").iterdir()) == []


def test_a_turn_is_one_holders(tmp_path):
    path = tmp_path / "turn"
    turn = nodes.take_turn(path)
    assert turn is not None
    assert nodes.take_turn(path) is None
    os.close(turn)
    again = nodes.take_turn(path)
    assert again is not None
    os.close(again)


def test_what_is_answered_can_be_read_while_the_node_lives(ledger):
    claim, other = nodes.Claim(ledger, "n").take(), nodes.Claim(ledger, "m").take()
    claim.note_answered(["a", "b"])
    other.note_answered(["c"])
    assert nodes.answered(ledger, ["n", "m", "never"]) == {"a", "b", "c"}
    assert nodes.answered(ledger, ["n"]) == {"a", "b"}
    claim.note_answered(["b"])
    assert nodes.answered(ledger, ["n"]) == {"b"}
    assert nodes.is_alive(ledger, "n")
    claim.note_answered(f"{number:064}" for number in range(2 * nodes.ANSWERED_MAX))
    assert len(nodes.answered(ledger, ["n"])) == nodes.ANSWERED_MAX
    claim.release()
    claim.note_answered(["d"])  # late, by another thread
    assert nodes.answered(ledger, ["n"]) == set()
    other.release()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(supervision, "PAUSE_SECONDS_MAX", 0.002)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, SystemExit, KeyboardInterrupt])
def test_a_thread_that_fails_is_started_again(quick, error, capfd):
    said = []
    left = [error("quotes traffic"), error("quotes traffic")]
    done = threading.Event()

    def work():
        if left:
            raise left.pop(0)
        done.set()

    thread = SupervisedThread("writer", work, log=lambda *line: said.append(line))
    thread.start()
    assert done.wait(30)
    assert thread.join(30)
    health = thread.health()
    assert (health.name, health.is_working, health.failures) == ("writer", True, 2)
    assert (health.error or "").startswith(f"{error.__name__} in {__name__}:")
    # Within a minute it is said once, to the log and on stderr.
    assert len(said) == 1
    shown = capfd.readouterr().err
    assert "the writer failed 1 times" in shown
    assert "traffic" not in shown + str(said)


def test_a_thread_that_never_works_is_said_every_minute_and_ends_when_asked(
    quick, monkeypatch, capfd
):
    monkeypatch.setattr(supervision, "LOG_SECONDS", 0.0)
    tried = threading.Semaphore(0)

    def work():
        tried.release()
        raise RuntimeError("cannot")

    thread = SupervisedThread("keeper", work, log=lambda *_: None)
    thread.start()
    for _ in range(5):
        assert tried.acquire(timeout=30)
    assert not thread.health().is_working or thread.health().failures >= 4
    assert thread.join(30)
    assert not thread.health().is_working
    assert capfd.readouterr().err.count("the keeper failed") >= 4


def test_a_log_that_fails_ends_no_thread(quick):
    done = threading.Event()
    left = [RuntimeError()]

    def work():
        if left:
            raise left.pop()
        done.set()

    def log(*_):
        raise RuntimeError("no log")

    thread = SupervisedThread("writer", work, log=log)
    thread.start()
    assert done.wait(30)
    assert thread.join(30)


def test_what_never_started_can_be_joined():
    assert SupervisedThread("writer", lambda: None, log=lambda *_: None).join(1)


class Odd:
    def __repr__(self):
        raise RuntimeError("no repr")


def test_items_are_kept_where_they_can_be_looked_at(tmp_path):
    said = []
    path = tmp_path / "set-aside.jsonl"
    aside = SetAside(path, log=lambda *line: said.append(line))
    for item in ("\ud800", Odd(), "x" * 10_000):
        aside.add(item, ValueError("odd \ud800"))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["item"][:4] for each in found] == ["'\\ud", "Odd ", "'xxx"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert aside.count == 3
    assert len(said) == 1


def test_the_file_is_bounded_and_a_file_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "SET_ASIDE_BYTES_MAX", 500)
    path = tmp_path / "set-aside.jsonl"
    aside = SetAside(path, log=lambda *_: None)
    for _ in range(100):
        aside.add("item", ValueError("odd"))
    assert path.stat().st_size < 1_000
    assert aside.count == 100
    for nowhere in (None, tmp_path / "nowhere" / "file"):
        aside = SetAside(nowhere, log=lambda *_: None)
        aside.add("item", ValueError("odd"))
        assert aside.count == 1
