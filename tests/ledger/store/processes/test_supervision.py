"""Threads that go on, and items that are set aside."""

import json
import threading

import pytest

from ledger.store.processes import supervision
from ledger.store.processes.supervision import SetAside, SupervisedThread


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(supervision, "PAUSE_SECONDS_MAX", 0.002)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, SystemExit, KeyboardInterrupt])
def test_a_thread_that_fails_is_started_again(error, capfd):
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


def test_a_thread_that_never_works_is_said_every_minute_and_ends_when_asked(monkeypatch, capfd):
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


def test_a_log_that_fails_ends_no_thread():
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
    monkeypatch.setattr(supervision, "KEPT_BYTES_MAX", 500)
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
