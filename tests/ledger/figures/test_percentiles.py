"""Percentiles of times, however many there are and however often they repeat."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.figures import percentiles as module
from ledger.figures.percentiles import Pool, percentiles


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, (None, None)),
        ({7: 1}, (7, 7)),
        ({1: 1, 2: 1}, (1, 2)),
        ({10: 1, 9: 1}, (9, 10)),
        # 1 … 20: the tenth and the nineteenth
        (dict.fromkeys(range(1, 21), 1), (10, 19)),
        ({5: 94, 9: 6}, (5, 9)),
        ({5: 95, 9: 5}, (5, 5)),
    ],
)
def test_percentiles_by_nearest_rank(counts, expected):
    assert percentiles({str(value): count for value, count in counts.items()}) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200))
def test_percentiles_of_counts_are_those_of_the_values(values):
    counts = Counter(map(str, values))
    ranked = sorted(values)
    assert percentiles(counts) == (
        ranked[math.ceil(len(values) * 0.5) - 1],
        ranked[math.ceil(len(values) * 95 / 100) - 1],
    )


TIMES = st.one_of(st.integers(0, 9), st.integers(0, 10**6))
GROUPS = st.lists(st.lists(st.lists(TIMES, max_size=30), max_size=4), max_size=6)


def ranked(values):
    ordered = sorted(values)
    places = [math.ceil(len(ordered) * percent / 100) - 1 for percent in (50, 95)]
    return tuple(ordered[place] if ordered else None for place in places)


@given(GROUPS, st.integers(0, 40))
def test_a_pool_knows_each_group_and_all_of_them(groups, sorted_max):
    pool = Pool()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SORTED_MAX", sorted_max)
        patch.setattr(module, "TEXTS_AT_ONCE", 3)
        for parts in groups:
            texts = [" ".join(map(str, part)) for part in parts]
            assert pool.add(texts) == ranked([value for part in parts for value in part])
        every = [value for parts in groups for part in parts for value in part]
        assert pool.all() == pool.all() == ranked(every)
