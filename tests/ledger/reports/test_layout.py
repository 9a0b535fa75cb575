"""Cells of tables as texts, and their figures."""

from hypothesis import given
from hypothesis import strategies as st

from ledger.reports.layout import (
    Amount,
    amount_places,
    amount_text,
    cell_text,
    key_text,
    wrapped,
)
from tests.named import for_each

USD = 10**12


@for_each(
    "largest, places",
    [(0, 6), (USD - 1, 6), (USD, 4), (100 * USD - 1, 4), (100 * USD, 2), (-100 * USD, 2)],
)
def test_the_largest_amount_of_a_column_sets_its_decimals(largest, places):
    assert amount_places([Amount(picousd=1), Amount(picousd=largest)]) == places


@for_each(
    "picousd, places, shown",
    [
        (0, 2, "$0.00"),
        (1234567 * USD, 2, "$1,234,567.00"),
        (USD // 1000, 2, "<$0.01"),
        (-USD // 1000, 2, "-<$0.01"),
        (-5 * USD, 4, "-$5.0000"),
        (499_999, 6, "<$0.000001"),
        (500_000, 6, "<$0.000001"),
        (500_001, 6, "$0.000001"),
    ],
)
def test_an_amount_is_never_shown_as_zero_unless_it_is(picousd, places, shown):
    assert amount_text(Amount(picousd=picousd), places) == shown


@given(st.integers(min_value=-(2**63), max_value=2**63), st.sampled_from([2, 4, 6]))
def test_only_zero_reads_as_zero(picousd, places):
    shown = amount_text(Amount(picousd=picousd), places)
    is_zero = not any(digit in shown for digit in "123456789")
    assert is_zero == (picousd == 0)


@for_each(
    "cell, shown",
    [(None, "-"), (True, "yes"), (False, "no"), (1000, "1,000"), ("a\x1b", "a\\x1b"), ("", "")],
)
def test_a_cell(cell, shown):
    assert cell_text(cell) == shown


def test_a_key_is_its_end_and_a_short_fingerprint():
    assert key_text("3f2a9c" + "0" * 26, "1111") == "…1111 (3f2a9c)"
    assert key_text("3f2a9c" + "0" * 26, None) == "key 3f2a9c"


def test_a_note_breaks_at_spaces_only():
    note = "tokentee: a-very-long-word-that-does-not-fit and more"
    assert wrapped(note, 20, "  ").split("\n") == [
        "tokentee:",
        "  a-very-long-word-that-does-not-fit",
        "  and more",
    ]
    assert wrapped("", 20) == ""
