"""The bytes that are read in several turns of the event loop."""

import tracemalloc
from collections.abc import Iterator

import pytest

from addon.metering import backlog as module
from addon.metering.backlog import REST_SECONDS, RUN_BYTES, TURN_SECONDS, Backlog

TEXT = b"x" * 80_000
END = b"end"


class Clock:
    """Goes on by `step` with each question."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Reader:
    """Reads a run in steps of 8 000 bytes."""

    def __init__(self) -> None:
        self.read = b""

    def __call__(self, run: bytes) -> Iterator[None]:
        for at in range(0, len(run), 8_000):
            self.read += run[at : at + 8_000]
            yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_a_turn_reads_until_its_end(reader: Reader, clock: Clock):
    backlog = Backlog(reader, clock)
    assert backlog.add(TEXT)
    assert backlog.size_bytes == len(TEXT) + RUN_BYTES
    clock.step = TURN_SECONDS
    turns = 1
    while backlog.read_turn():
        turns += 1
        assert backlog.size_bytes == 0
    assert turns > 5
    assert reader.read == TEXT


def test_all_of_it_is_read_in_order(reader: Reader, clock: Clock):
    backlog = Backlog(reader, clock)
    clock.step = 1.0
    backlog.add(TEXT)
    assert backlog.read_turn()
    backlog.add(END)
    backlog.read_all()
    assert reader.read == TEXT + END


def test_beside_chunks_a_turn_is_followed_by_a_rest(reader: Reader, clock: Clock):
    backlog = Backlog(reader, clock)
    clock.step = TURN_SECONDS
    backlog.add(TEXT)
    backlog.read_beside_chunks()
    assert not backlog.is_empty
    clock.step = 0.0
    backlog.add(END)
    backlog.read_beside_chunks()
    assert not backlog.is_empty
    assert backlog.size_bytes == len(END) + RUN_BYTES
    clock.now += REST_SECONDS
    backlog.read_beside_chunks()
    assert backlog.is_empty
    assert reader.read == TEXT + END


def test_a_clock_that_is_set_back_ends_the_rest(reader: Reader, clock: Clock):
    backlog = Backlog(reader, clock)
    clock.now = 1_000_000.0
    clock.step = TURN_SECONDS
    backlog.add(TEXT)
    backlog.read_beside_chunks()
    assert not backlog.is_empty
    clock.step = 0.0
    clock.now = 0.0
    backlog.read_beside_chunks()
    assert backlog.is_empty


def test_it_has_a_bound(reader: Reader, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BACKLOG_BYTES_MAX", len(TEXT) + RUN_BYTES + 1)
    backlog = Backlog(reader, clock)
    assert backlog.add(TEXT)
    assert not backlog.add(END)


@pytest.mark.parametrize("size", [1, 2, 40, 3_000])
def test_short_runs_are_joined(reader: Reader, clock: Clock, size: int):
    backlog = Backlog(reader, clock)
    tracemalloc.start()
    try:
        for at in range(0, len(TEXT) - size, size):
            backlog.add(TEXT[at : at + size])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.2 * backlog.size_bytes + 4_096
