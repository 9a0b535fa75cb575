"""The bytes that are read in several turns of the event loop."""

import tracemalloc

import pytest

from addon.dialects.routes import DIALECTS
from addon.metering.answers import backlog as module
from addon.metering.answers.backlog import REST_SECONDS, RUN_BYTES, TURN_SECONDS, Backlog
from addon.metering.answers.meter import STEP_BYTES_MAX, Meter

TEXT = b'{"choices":[],"text":"' + b"x" * 10 * STEP_BYTES_MAX
END = b'","usage":{"prompt_tokens":7}}'


class Clock:
    """Goes on by `step` with each question."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter() -> Meter:
    return Meter(DIALECTS["openai.chat"], content_type="application/json")


def test_a_turn_reads_until_its_end(meter: Meter, clock: Clock):
    backlog = Backlog(meter, clock)
    assert backlog.is_empty
    assert backlog.add(TEXT)
    assert backlog.size_bytes == len(TEXT) + RUN_BYTES
    clock.step = TURN_SECONDS
    turns = 0
    while not backlog.is_empty:
        backlog.read_turn()
        turns += 1
        assert backlog.size_bytes == 0
    assert turns > 5


def test_all_of_it_is_read_in_order(meter: Meter, clock: Clock):
    backlog = Backlog(meter, clock)
    clock.step = 1.0
    backlog.add(TEXT)
    backlog.read_turn()
    backlog.add(END)
    backlog.read_all()
    assert backlog.is_empty
    meter.end()
    assert meter.facts.usage == {"prompt_tokens": 7}


def test_beside_chunks_a_turn_is_followed_by_a_rest(meter: Meter, clock: Clock):
    backlog = Backlog(meter, clock)
    clock.step = TURN_SECONDS
    backlog.add(TEXT)
    backlog.read_beside_chunks()
    clock.step = 0.0
    backlog.add(END)
    backlog.read_beside_chunks()
    assert backlog.size_bytes == len(END) + RUN_BYTES
    clock.now += REST_SECONDS
    backlog.read_beside_chunks()
    assert backlog.is_empty


def test_a_clock_that_is_set_back_ends_the_rest(meter: Meter, clock: Clock):
    backlog = Backlog(meter, clock)
    clock.now = 1_000_000.0
    clock.step = TURN_SECONDS
    backlog.add(TEXT)
    backlog.read_beside_chunks()
    clock.step = 0.0
    clock.now = 0.0
    backlog.read_beside_chunks()
    assert backlog.is_empty


def test_it_has_a_bound(meter: Meter, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BACKLOG_BYTES_MAX", len(TEXT) + RUN_BYTES + 1)
    backlog = Backlog(meter, clock)
    assert backlog.add(TEXT)
    assert not backlog.add(END)
    backlog.drop()
    assert backlog.is_empty
    assert backlog.size_bytes == 0


@pytest.mark.parametrize("size", [1, 2, 40, 3_000])
def test_short_runs_are_joined(meter: Meter, clock: Clock, size: int):
    backlog = Backlog(meter, clock)
    tracemalloc.start()
    try:
        for at in range(0, len(TEXT) - size, size):
            backlog.add(TEXT[at : at + size])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.2 * backlog.size_bytes + 4_096
