"""Pure. Percentiles of times that are stored as texts: milliseconds with spaces between, where 12*3
means three times of 12.

Python counts equal texts and sorts numbers at the speed of C, and steps through pairs slowly. So a
few times are sorted as numbers, and many are counted as texts first, since most of them are equal.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, batched

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
        text = texts[0] if len(texts) == 1 else " ".join(texts)
        values = text.split()
        is_counted = "*" in text
        if len(values) <= SORTED_MAX and not is_counted:
            self._texts += texts
            ordered, n = sorted(map(int, values)), len(values)
            return (ordered[_place(n, 50) - 1], ordered[_place(n, 95) - 1]) if n else (None, None)
        counts = _counted(values) if is_counted else Counter(values)
        if is_counted or len(counts) * REPEATED <= len(values):
            self._counts.update(counts)
        else:
            self._texts += texts
        return percentiles(counts)

    def all(self) -> Percentiles:
        """The percentiles of everything that was added."""
        for some in batched(self._texts, TEXTS_AT_ONCE):
            self._counts.update(" ".join(some).split())
        self._texts = []
        return percentiles(self._counts)


def percentiles(counts: Mapping[str, int]) -> Percentiles:
    """p50 and p95 of counted values: value as text -> how often it occurs."""
    if not counts:
        return None, None
    values = sorted(counts, key=int)
    passed = list(accumulate(map(counts.__getitem__, values)))
    n = passed[-1]
    middle, high = (int(values[bisect_left(passed, _place(n, each))]) for each in (50, 95))
    return middle, high


def _counted(values: Sequence[str]) -> Counter[str]:
    """Counts of times, of which 12*3 stands for several."""
    counts = Counter([value for value in values if "*" not in value])
    several = " ".join([value for value in values if "*" in value]).replace("*", " ").split()
    for time, often in zip(several[::2], map(int, several[1::2]), strict=True):
        counts[time] += often
    return counts


def _place(n: int, percent: int) -> int:
    """ceil(n x percent)."""
    return -(-n * percent // 100)
