"""Whether work grows in proportion to what it is given."""

import time
from collections.abc import Callable

FACTOR = 4
"""How much more the second measurement is given."""
GROWTH_MAX = 9.0
"""Quadratic work grows 16-fold. The CPU time of linear work on a busy machine varies by half."""
NS_MIN = 2_000_000
"""Work below this is measured too coarsely; then only an absolute bound is checked."""


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """`work(FACTOR * size)` takes at most `GROWTH_MAX` times the CPU time of `work(size)`."""
    small = min(_cpu_ns(work, size) for _ in range(3))
    large = min(_cpu_ns(work, FACTOR * size) for _ in range(2))
    assert large <= GROWTH_MAX * max(small, NS_MIN), f"{small / 1e6:.1f} ms -> {large / 1e6:.1f} ms"


def _cpu_ns(work: Callable[[int], object], size: int) -> int:
    before = time.thread_time_ns()
    work(size)
    return time.thread_time_ns() - before
