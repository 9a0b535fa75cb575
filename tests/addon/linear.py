"""Whether work grows in proportion to what it is given."""

import time
from collections.abc import Callable

FACTOR = 16
"""How much more the second measurement is given."""
GROWTH_MAX = 64.0
"""Quadratic work grows 256-fold. On a busy machine linear work grew up to 40-fold: what is larger
misses the processor's caches more often. A factor of four on both sides needs no second try."""
NS_MIN = 250_000
"""Work below this is measured too coarsely, and counts as this."""
ENLARGED_MAX = 2
"""Times; what is still below `NS_MIN` then is cheap, whatever its growth."""
ROUNDS = 3
"""The least of them is what the work needs: other processes can only add to it."""


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """`work(FACTOR * size)` takes at most `GROWTH_MAX` times the CPU time of `work(size)`."""
    small = _cpu_ns(work, size)
    for _ in range(ENLARGED_MAX):
        if small >= NS_MIN:
            break
        size *= FACTOR // 4
        small = _cpu_ns(work, size)
    large = _cpu_ns(work, FACTOR * size)
    small = max(small, NS_MIN)
    assert large <= GROWTH_MAX * small, f"size {size}: {small / 1e6:.1f} ms -> {large / 1e6:.1f} ms"


def _cpu_ns(work: Callable[[int], object], size: int) -> int:
    measured = []
    for _ in range(ROUNDS):
        before = time.thread_time_ns()
        work(size)
        measured.append(time.thread_time_ns() - before)
    return min(measured)
