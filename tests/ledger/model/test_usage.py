"""Counts: what is one, and what a sum of them is."""

import pytest

from ledger.model.usage import COUNT_MAX, count_of, sum_of


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0),
        (7, 7),
        (COUNT_MAX, COUNT_MAX),
        (6.0, 6),
        (float(COUNT_MAX), COUNT_MAX),
        (COUNT_MAX + 1, None),
        (2.0**53, None),
        (6.5, None),
        (-1, None),
        (-1.0, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ("7", None),
        (None, None),
        ([7], None),
    ],
)
def test_a_count_is_a_whole_number_that_a_column_holds(value, count):
    assert count_of(value) == count
    assert type(count_of(value)) is type(count)


def test_a_sum_is_of_what_was_reported():
    assert sum_of(1, None, 2) == 3
    assert sum_of(0, None) == 0
    assert sum_of(None, None) is None
    assert sum_of() is None


def test_a_sum_that_no_column_holds_is_not_reported():
    assert sum_of(COUNT_MAX - 1, 1) == COUNT_MAX
    assert sum_of(COUNT_MAX, 1) is None
