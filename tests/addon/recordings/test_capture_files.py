"""Captures are written by a thread: private files, whole gzip members, failures said and survived."""

import gzip
import json
import logging
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from addon.metering.memory_budget import MemoryBudget
from addon.recordings import capture
from addon.recordings.capture import CaptureFiles, append, file_for, make_folder
from ledger.store.processes import supervision
from tests.addon.recordings.test_capture import captured

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def files(folder: Path) -> CaptureFiles:
    return CaptureFiles(folder, node="host/12/34", budget=MemoryBudget(), now=lambda: NOW)


def test_files_are_private_and_every_line_is_a_member(tmp_path: Path):
    writing = files(tmp_path / "new" / "deeper")
    paths = set()
    for number in range(3):
        begun = writing.begin(request_bytes=15)
        begun.add(b"data: %d\n\n" % number)
        paths.add(writing.write(captured(begun, id=f"flow-{number}")))
    writing.close(10)
    (path,) = paths
    assert path.name == "20261120T12-host-12-34.jsonl.gz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["flow-0", "flow-1", "flow-2"]
    assert writing.budget.taken_bytes == 0
    assert (writing.dropped, writing.failure) == (0, None)


def test_a_failure_is_said_once_and_the_next_exchange_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    writing = files(tmp_path / "file" / "in-the-way")
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            writing.write(captured(writing.begin()))
        writing.close(10)
    assert writing.dropped == 2
    assert (writing.failure or "").startswith("captures cannot be written: ")
    assert len(caplog.records) == 1
    (tmp_path / "file").unlink()
    path = writing.write(captured(writing.begin()))
    writing.close(10)
    assert path.exists()
    assert (writing.failure, writing.budget.taken_bytes) == (None, 0)


STEPS = ["line_of", "append", "warning"]


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("step", STEPS)
def test_whatever_a_step_raises_the_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd, step: str, error: type[BaseException]
):
    """Each step raises twice: with a whole exchange, with a WebSocket, with nothing that a capture
    is; what comes afterwards is written."""
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    writing = files(tmp_path)
    monkeypatch.setattr(capture, "LOG_SECONDS", 0.0)
    owner = capture.logger if step == "warning" else capture
    real, left = getattr(owner, step), [error("step failed"), error("step failed")]

    def fail(*arguments):
        if left:
            raise left.pop()
        return real(*arguments)

    monkeypatch.setattr(owner, step, fail)
    session = writing.begin()
    session.add_message(b"hello", from_client=True, is_text=True, at=NOW)
    for item in (writing.begin(), session, writing.begin()):
        writing.write(captured(item))
    writing.write("no capture")  # type: ignore[arg-type]  # what it must survive
    writing.write(captured(writing.begin(), started_at="no time"))
    path = writing.write(captured(writing.begin(), id="after"))
    writing.close(30)
    assert not left
    last = gzip.decompress(path.read_bytes()).splitlines()[-1]
    assert json.loads(last)["id"] == "after"
    health = writing.health()
    assert health is not None
    assert health.is_working
    assert health.set_aside == writing.dropped
    assert health.failures + writing.dropped >= 2
    assert writing.problems()
    assert writing.budget.taken_bytes == 0


def test_a_thread_that_cannot_go_on_is_a_problem(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)
    writing = files(tmp_path)
    assert writing.problems() == ()
    monkeypatch.setattr(CaptureFiles, "_write", lambda *_: 1 / 0)
    for _ in range(supervision.FAILURES_AT_END_MAX + 2):
        writing.write(captured(writing.begin()))
    writing.close(30)
    (problem,) = writing.problems()
    assert problem.startswith("the capture writer does not work: ZeroDivisionError")
    assert "the capture writer failed" in capfd.readouterr().err


def test_what_waits_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(capture, "WAITING_MAX", 0)
    writing = files(tmp_path)
    with pytest.raises(OSError, match="0 captures wait"):
        writing.write(captured(writing.begin(request_bytes=5)))
    assert (writing.dropped, writing.budget.taken_bytes) == (1, 0)
    writing.close(1)


def test_an_existing_folder_is_left_as_it_is(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o750)
    make_folder(folder)
    append(file_for(folder, node="n", now=NOW), b"{}\n")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
