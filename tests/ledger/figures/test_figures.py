"""Sums that keep what is not known apart from zero, and percentiles of times."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.figures import figures as module
from ledger.figures.figures import Figures, Pool, Row, order, percentiles, top_of


def test_not_reported_is_not_zero():
    none = Figures(requests=1)
    some = Figures(requests=1, input_tokens=5, cache_read_tokens=0)
    assert (none + none).input_tokens is None
    assert (none + some) == Figures(requests=2, input_tokens=5, cache_read_tokens=0)


@pytest.mark.parametrize(
    ("figures", "state"),
    [
        (Figures(requests=2, priced=2), "priced"),
        (Figures(requests=3, priced=2), "priced"),  # the third has no usage: an HTTP error
        (Figures(requests=2, priced=1, reported=1), "priced"),
        (Figures(requests=2, reported=2), "reported"),
        (Figures(requests=2, priced=1, unpriced=1), "partial"),
        (Figures(requests=1, partial=1), "partial"),
        (Figures(requests=2, unpriced=2), "unpriced"),
        (Figures(requests=2), None),
    ],
)
def test_the_cost_state_of_a_sum(figures, state):
    assert figures.cost_state == state


def row(name, cost, requests=1):
    return Row(key=(name,), figures=Figures(requests=requests, cost_picousd=cost))


def test_what_costs_most_comes_first_and_time_runs_forward():
    rows = [row("b", None, 9), row("a", 1), row(None, 5), row("c", None, 9)]
    by_cost = sorted(rows, key=order(("model",), ("day",)))
    assert [each.key[0] for each in by_cost] == [None, "a", "b", "c"]
    by_day = sorted(rows, key=order(("day", "model"), ("day",)))
    assert [each.key[0] for each in by_day] == [None, "a", "b", "c"]
    assert sorted([row("2", 1), row("1", 0)], key=order(("day",), ("day",)))[0].key == ("1",)


@given(
    st.lists(
        st.tuples(st.none() | st.integers(0, 100), st.integers(1, 5)), min_size=1, max_size=20
    ),
    st.integers(1, 20),
)
def test_top_rows_and_the_rest_add_up_to_all(costs, top):
    rows = [row(str(place), cost, count) for place, (cost, count) in enumerate(costs)]
    whole = sum((each.figures for each in rows), Figures())
    assert sum((each.figures for each in top_of(rows, top)), Figures()) == whole


def test_the_top_rows_are_those_that_cost_most_in_their_own_order():
    costs = {"1st": 5, "2nd": 9, "3rd": None, "4th": 7}
    rows = list(itertools.starmap(row, costs.items()))
    assert [row.key for row in top_of(rows, 2)] == [("2nd",), ("4th",), (None,)]
    assert top_of(rows, 2)[-1].merged == 2
    assert top_of(rows, 2)[-1].figures == Figures(requests=2, cost_picousd=5)
    assert top_of(rows, 4) == rows


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


def test_the_rest_is_one_row():
    rows = [row("a", 5), row("b", 3), row("c", None)]
    assert top_of(rows, 3) == rows
    first, rest = top_of(rows, 1)
    assert first == rows[0]
    assert (rest.merged, rest.key, rest.figures) == (
        2,
        (None,),
        Figures(requests=2, cost_picousd=3),
    )
