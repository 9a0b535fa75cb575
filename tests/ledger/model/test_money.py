"""Integer pico-USD, what one exchange costs by its reading and its charges, and counts of tokens."""

import re
import time
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from ledger.model.charge import ExchangeCost, amounts_of
from ledger.model.money import AMOUNT_MAX, DIGITS_MAX, decimal_of, money_text, picousd_of, usd_text
from ledger.model.usage import COUNT_MAX, count_of, sum_of
from tests.named import for_each


@for_each(
    "usd, picousd",
    [
        (0, 0),
        (1, 10**12),
        (0.0125, 12_500_000_000),
        ("0.000000000001", 1),
        (Decimal("0.06"), 60_000_000_000),
        (1.2e-08, 12_000),
        (0.1 + 0.2, 300_000_000_000),  # 0.30000000000000004
        ("0.0000000000005", 0),
        ("0.0000000000015", 2),
        (100_000, 10**17),
        (" 1e-3 ", 10**9),
        (0.0, 0),
        ("0e99", 0),
    ],
)
def test_an_amount_on_the_wire(usd, picousd):
    assert picousd_of(usd) == picousd


@for_each(
    "usd",
    [None, True, -1, "-0.5", "much", "", float("nan"), float("inf"), "1e400", 100_001, [1], b"1"],
)
def test_what_is_no_amount(usd):
    assert picousd_of(usd) is None


@for_each(
    "usd",
    ["1e200000", "1e999999", "-1e999999", "1e-999999", "9" * 100_000, "0." + "0" * 100_000 + "1"],
    ids=lambda text: text[:9],
)
def test_a_number_that_is_too_long_costs_no_arithmetic(usd):
    started = time.process_time()
    assert picousd_of(usd) is None
    assert picousd_of(Decimal(usd)) is None
    assert time.process_time() - started < 1.0


def test_a_number_is_read_up_to_64_characters():
    longest = "0.5" + "0" * (DIGITS_MAX - 3)
    assert decimal_of(longest) == Decimal("0.5")
    assert decimal_of(f"{longest}0") is None


def test_a_huge_int_is_not_turned_into_text():
    assert picousd_of(10**5_000) is None
    assert decimal_of(-(10**5_000)) is None


@for_each(
    "picousd, text",
    [
        (0, "0"),
        (1, "0.000000000001"),
        (12_500_000_000, "0.0125"),
        (10**14, "100"),
        (AMOUNT_MAX, "100000"),
    ],
)
def test_an_amount_as_text(picousd, text):
    assert usd_text(picousd) == text


@given(st.integers(0, AMOUNT_MAX))
def test_text_is_exact(picousd):
    assert picousd_of(usd_text(picousd)) == picousd


@for_each(
    "picousd, text",
    [
        (0, "$0"),
        (1, "$0.000000000001"),
        (99_999_999, "$0.000100"),
        (10**8, "$0.00010"),
        (994_000_000_000, "$0.9940"),
        (1_204_125_000_000_000, "$1,204.12"),
        (-45_600_000, "\N{MINUS SIGN}$0.000046"),
    ],
)
def test_one_amount_at_a_glance(picousd, text):
    assert money_text(picousd) == text


@given(st.integers(min_value=1, max_value=AMOUNT_MAX))
def test_no_amount_looks_like_nothing(picousd):
    assert re.search("[1-9]", money_text(picousd))


LIST, OWN = "list 1", "provider"


@for_each(
    "source, billing, lines, expected, shown",
    [
        ("none", None, [], ExchangeCost(), None),
        (None, None, [], ExchangeCost(), None),
        ("reported", None, [], ExchangeCost(is_complete=False), None),
        (
            "reported",
            "metered",
            [(3, LIST), (4, LIST)],
            ExchangeCost(cost_picousd=7, list_value_picousd=7),
            7,
        ),
        (
            "partial",
            None,
            [(3, LIST), (None, "none")],
            ExchangeCost(cost_picousd=3, list_value_picousd=3, is_complete=False),
            3,
        ),
        ("reported", None, [(5, OWN)], ExchangeCost(cost_picousd=5), 5),
        ("reported", "plan", [(3, LIST)], ExchangeCost(list_value_picousd=3, is_covered=True), 3),
        ("reported", "free", [(0, LIST)], ExchangeCost(list_value_picousd=0, is_covered=True), 0),
        ("reported", "plan", [(5, OWN)], ExchangeCost(is_covered=True), None),
        ("estimated", None, [(3, LIST)], ExchangeCost(estimated_cost_picousd=3), 3),
        ("estimated", "plan", [(3, LIST)], ExchangeCost(is_covered=True), None),
    ],
)
def test_amounts(source, billing, lines, expected, shown):
    found = amounts_of(source, billing, lines)
    assert found == expected
    assert found.shown_picousd == shown


@for_each(
    "value, count",
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
