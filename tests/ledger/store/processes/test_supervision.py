"""What may happen thousands of times is logged once in a while, and retried less and less often."""

import itertools
import logging
import random
import time

import pytest

from ledger.store.processes import supervision
from ledger.store.processes.supervision import ThrottledLog, log_into, pause_after


def test_lines_that_come_at_once_are_one_and_a_log_that_raises_stops_no_other(monkeypatch):
    clock = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    lines = []

    def fail(*_):
        raise RuntimeError("closed")

    log = ThrottledLog(fail, lambda level, line: lines.append((clock[0], level, line)))
    for second in range(200):
        clock[0] = 1_000.0 + second
        log("warning", f"line {second}")
    seconds = supervision.LOG_SECONDS
    moments = [1_000.0 + number * seconds for number in range(4)]
    assert [at for at, *_ in lines] == moments
    assert lines[1][1:] == ("warning", f"line {int(seconds)}")


def test_pauses_double_up_to_their_bound():
    chance = random.Random(1)
    for _ in range(50):
        first, most = chance.uniform(0.001, 2), chance.uniform(2, 60)
        pauses = [
            pause_after(failures, first_seconds=first, seconds_max=most)
            for failures in range(1, 2_000)
        ]
        assert pauses[0] == first
        assert pauses[-1] == most
        assert all(b == min(2 * a, most) for a, b in itertools.pairwise(pauses))


def test_lines_reach_a_logger_with_their_level(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG):
        log_into(logging.getLogger("some.module"))("error", "50% of it")
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("ERROR", "tokentee: 50% of it")
