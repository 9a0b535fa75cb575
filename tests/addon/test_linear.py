"""The judge of growth tells linear from quadratic work, also where a size is small."""

import itertools
from collections.abc import Callable

import pytest

from tests.addon import linear
from tests.addon.linear import NS_MIN, assert_linear


class Clock:
    """A thread's CPU clock that only work moves on; `spoiled` rounds cost three times as much."""

    def __init__(self, ns_of: Callable[[int], float], spoiled: set[int]) -> None:
        self._ns_of = ns_of
        self._spoiled = spoiled
        self._calls = itertools.count()
        self._now = 0.0

    def work(self, size: int) -> None:
        self._now += self._ns_of(size) * (3 if next(self._calls) in self._spoiled else 1)

    def thread_time_ns(self) -> float:
        return self._now


@pytest.fixture
def clock_of(monkeypatch: pytest.MonkeyPatch):
    def make(ns_of: Callable[[int], float], spoiled: set[int] | None = None) -> Clock:
        clock = Clock(ns_of, spoiled or set())
        monkeypatch.setattr(linear, "time", clock)
        return clock

    return make


@pytest.mark.parametrize("spoiled", [set(), {0, 1, 3, 4}, {3, 4, 5}], ids=str)
def test_linear_work_passes_on_a_busy_machine(clock_of, spoiled: set[int]) -> None:
    assert_linear(clock_of(lambda size: NS_MIN * size, spoiled).work, 1)


@pytest.mark.parametrize("ns", [NS_MIN, NS_MIN / 100])
def test_quadratic_work_fails(clock_of, ns: float) -> None:
    """Also where the first size takes next to nothing."""
    with pytest.raises(AssertionError, match="ms ->"):
        assert_linear(clock_of(lambda size: ns * size * size).work, 1)


def test_work_that_stays_small_passes(clock_of) -> None:
    assert_linear(clock_of(lambda size: 1_000).work, 1)
