"""What `/readyz` knows of the threads of a process."""

import threading
import time

from addon.metering.memory_budget import MemoryBudget
from addon.proxy.display.watching import Telemetry, Watching
from addon.recordings.capture import CaptureFiles
from addon.telemetry.health import problems
from addon.telemetry.observer import Observer
from ledger.store.processes import supervision
from tests.addon.recordings.test_capture import captured
from tests.ledger.written import writing


def test_a_capture_writer_that_does_not_work_is_a_problem(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    captures = CaptureFiles(tmp_path / "captures", node="n", budget=MemoryBudget())
    watching = Watching(Telemetry())
    with writing(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as written:
        watching.start(written.ledger, open_exchanges=lambda: 3, captures=lambda: captures)
        try:
            assert problems(watching.health()) == []
            captures.write(captured(captures.begin()))
            assert problems(watching.health()) == []
            monkeypatch.setattr(CaptureFiles, "_write", lambda *_: 1 / 0)
            for _ in range(supervision.FAILURES_AT_END_MAX + 2):
                captures.write(captured(captures.begin()))
            captures.close(30)
            (problem,) = problems(watching.health())
        finally:
            watching.stop(10)
    assert problem.startswith("a thread does not work: capture writer: ZeroDivisionError")
    assert "the capture writer failed" in capfd.readouterr().err


def test_a_telemetry_thread_that_does_not_work_is_a_problem(tmp_path, monkeypatch, capfd):
    failed = threading.Event()

    def fail(_: Observer) -> None:
        failed.set()
        raise ZeroDivisionError

    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 30)
    monkeypatch.setattr(Observer, "_run", fail)
    watching = Watching(Telemetry())
    with writing(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as written:
        watching.start(written.ledger, open_exchanges=lambda: 0)
        try:
            assert failed.wait(10)
            for _ in range(1_000):
                if watching.observer.health().error is not None:
                    break
                time.sleep(0.01)
            (problem,) = problems(watching.health())
        finally:
            watching.stop(10)
    assert problem.startswith("a thread does not work: telemetry: ZeroDivisionError in ")
    assert "the telemetry failed" in capfd.readouterr().err
