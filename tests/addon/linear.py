"""Whether work grows in proportion to what it is given."""

import time
from collections.abc import Callable

FACTOR = 6
"""How much more the second measurement is given."""
GROWTH_MAX = 17.0
"""Quadratic work grows 36-fold. Linear work grew up to 15-fold on a busy machine: what is larger
misses the processor's caches more often."""
NS_MIN = 2_000_000
"""Work below this is measured too coarsely: it is given more."""
ENLARGED_MAX = 4
"""Times; what is still below `NS_MIN` then is cheap, whatever its growth."""
ROUNDS_MAX = 12
"""The least of several is near what the work needs. A busy machine may spoil some rounds, not
all of them; quadratic work does not get cheaper by trying again."""


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """`work(FACTOR * size)` takes at most `GROWTH_MAX` times the CPU time of `work(size)`."""
    small = min(_cpu_ns(work, size) for _ in range(3))
    for _ in range(ENLARGED_MAX):
        if small >= NS_MIN:
            break
        size *= FACTOR
        small = min(_cpu_ns(work, size) for _ in range(3))
    large = _cpu_ns(work, FACTOR * size)
    for _ in range(ROUNDS_MAX):
        if large <= GROWTH_MAX * max(small, NS_MIN):
            return
        small = min(small, _cpu_ns(work, size))
        large = min(large, _cpu_ns(work, FACTOR * size))
    raise AssertionError(f"size {size}: {small / 1e6:.1f} ms -> {large / 1e6:.1f} ms")


def _cpu_ns(work: Callable[[int], object], size: int) -> int:
    before = time.thread_time_ns()
    work(size)
    return time.thread_time_ns() - before
