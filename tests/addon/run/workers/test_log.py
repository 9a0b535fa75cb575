"""The lines of all workers on one stderr."""

import io
import json

import pytest

from addon.run.workers import worker_process as module
from addon.run.workers.worker_process import LineSplitter, Log


def written(log: Log, out: io.StringIO) -> list[str]:
    return out.getvalue().splitlines()


def test_lines_are_whole_however_they_are_cut():
    out = io.StringIO()
    log = Log(out)
    one, two = LineSplitter(log, 1), LineSplitter(log, 2)
    one.feed(b"first ha")
    two.feed(b"of two\nand m")
    one.feed(b"lf\n\n")
    two.end()
    one.end()
    assert written(log, out) == ["worker 2: of two", "worker 1: first half", "worker 2: and m"]


def test_json_lines_stay_json():
    out = io.StringIO()
    log = Log(out)
    log.as_json = True
    log.line_of_worker(3, b'{"time": "t", "message": "m"}')
    log.warning("it ended")
    of_worker, own = (json.loads(line) for line in written(log, out))
    assert of_worker == {"worker": 3, "time": "t", "message": "m"}
    assert (own["level"], own["message"]) == ("warning", "it ended")


def test_a_line_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LINE_BYTES_MAX", 4)
    out = io.StringIO()
    lines = LineSplitter(log := Log(out), 1)
    lines.feed(b"abcdefghij")
    assert written(log, out) == ["worker 1: abcd", "worker 1: efgh"]


def test_quiet_keeps_warnings_and_a_closed_stderr_hurts_nobody():
    out = io.StringIO()
    log = Log(out)
    log.quiet = True
    log.info("started")
    log.warning("ended")
    assert written(log, out) == ["tokentee: ended"]

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError("gone")

    Log(Gone()).warning("x")
