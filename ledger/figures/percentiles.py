"""Pure. Percentiles of times that are stored as texts: milliseconds with spaces between, where 12*3
means three times of 12.

Python counts equal texts and sorts numbers at the speed of C, and steps through pairs slowly. So a
few times are sorted as numbers, and many are counted as texts first, since most of them are equal.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import batched

SORTED_MAX = 5_000
"""Up to this many times, sorting is faster than counting (measured)."""
REPEATED = 4
"""If each time occurs at least this often, adding counts is faster than counting again."""
TEXTS_AT_ONCE = 500
"""Number of texts that are split at once, each of up to `SORTED_MAX` times: 10 MB of text at
most."""

type Percentiles = tuple[int | None, int | None]
"""p50 and p95 by nearest rank: of n values in order, those at the places ceil(n x p)."""


class Pool:
    """The times of several groups: percentiles of each, and of all together."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._texts: list[str] = []
        """Texts whose times are not in the counts yet."""

    def add(self, texts: Sequence[str]) -> Percentiles:
        """Add the times of one group; returns their percentiles."""
        text = " ".join(texts)
        values = text.split()
        is_counted = "*" in text
        if len(values) <= SORTED_MAX and not is_counted:
            self._texts += texts
            return _of_values(values)
        counts = Counter(values)
        if is_counted:
            counts = _multiplied(counts)
        if is_counted or len(counts) * REPEATED <= len(values):
            self._counts.update(counts)
        else:
            self._texts += texts
        return _of_counts(counts)

    def all(self) -> Percentiles:
        """The percentiles of everything that was added."""
        for some in batched(self._texts, TEXTS_AT_ONCE):
            self._counts.update(" ".join(some).split())
        self._texts = []
        return _of_counts(self._counts)


def percentiles(counts: Iterable[tuple[int, int]]) -> Percentiles:
    """p50 and p95 of counted values: (value, how often), in the order of values."""
    pairs = list(counts)
    n = sum(count for _, count in pairs)
    middle, high = _place(n, 50), _place(n, 95)
    found: list[int | None] = [None, None]
    passed = 0
    for value, count in pairs:
        before, passed = passed, passed + count
        if before < middle <= passed:
            found[0] = value
        if before < high <= passed:
            found[1] = value
            break
    return found[0], found[1]


def _multiplied(counts: Counter[str]) -> Counter[str]:
    """Counts of times, from counts of texts in which 12*3 means several."""
    found: Counter[str] = Counter()
    for value, count in counts.items():
        time, _, often = value.partition("*")
        found[time] += count * int(often) if often else count
    return found


def _of_values(values: Sequence[str]) -> Percentiles:
    if not values:
        return None, None
    ordered = sorted(map(int, values))
    return ordered[_place(len(ordered), 50) - 1], ordered[_place(len(ordered), 95) - 1]


def _of_counts(counts: Counter[str]) -> Percentiles:
    return percentiles(sorted((int(value), count) for value, count in counts.items()))


def _place(n: int, percent: int) -> int:
    """ceil(n x percent)."""
    return -(-n * percent // 100)
