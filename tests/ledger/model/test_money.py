"""Integer pico-USD."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.money import AMOUNT_MAX, picousd_of, usd_text


@pytest.mark.parametrize(
    ("usd", "picousd"),
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
        (9_223_372, 9_223_372 * 10**12),
    ],
)
def test_an_amount_on_the_wire(usd, picousd):
    assert picousd_of(usd) == picousd


@pytest.mark.parametrize(
    "usd",
    [None, True, -1, "-0.5", "much", "", float("nan"), float("inf"), "1e400", 9_223_373, [1], b"1"],
)
def test_what_is_no_amount(usd):
    assert picousd_of(usd) is None


@pytest.mark.parametrize(
    ("picousd", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (12_500_000_000, "0.0125"),
        (10**14, "100"),
        (AMOUNT_MAX, "9223372.036854775807"),
    ],
)
def test_an_amount_as_text(picousd, text):
    assert usd_text(picousd) == text


@given(st.integers(0, AMOUNT_MAX))
def test_text_is_exact(picousd):
    assert picousd_of(usd_text(picousd)) == picousd
