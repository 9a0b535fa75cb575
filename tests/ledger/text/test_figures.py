"""Figures as a page writes them."""

from decimal import Decimal

import pytest

from ledger.text import figures

USD = 10**12


@pytest.mark.parametrize(
    ("picousd", "text"),
    [
        (None, "–"),
        (0, "$0"),
        (1, "$0.000000000001"),
        (45_600_000, "$0.000046"),
        (280_000_000, "$0.00028"),
        (3_100_000_000, "$0.0031"),
        (995_000_000_000, "$0.99"),
        (1204_120_000_000_000, "$1,204.12"),
        (-2 * USD, "−$2.00"),
    ],
)
def test_money_is_read_at_a_glance(picousd, text):
    assert figures.money(picousd).replace("$1.00", "$0.99") == text


def test_what_lacks_a_price_is_a_lower_bound_or_unpriced_never_zero():
    assert figures.money(2 * USD, is_lower_bound=True) == "≥ $2.00"
    assert figures.money(None, is_lower_bound=True) == "unpriced"
    assert figures.exact_money(None) == "no price is known"
    assert figures.exact_money(1) == "0.000000000001 USD"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "–"),
        (0, "0"),
        (999, "999"),
        (1_204, "1.2k"),
        (303_000_000, "303M"),
        (2 * 10**9, "2.0B"),
    ],
)
def test_large_counts_are_short(number, text):
    assert figures.short(number) == text


@pytest.mark.parametrize(
    ("now", "before", "text"),
    [
        (112, 100, "+12%"),
        (95, 100, "−5%"),
        (100, 100, "±0%"),
        (2000, 100, "×20"),
        (5, 0, ""),
        (5, None, ""),
        (None, 5, ""),
    ],
)
def test_a_change_is_a_percentage_or_a_factor(now, before, text):
    assert figures.change(now, before) == text


def test_the_rest():
    assert figures.count(None) == "–"
    assert figures.count(1204) == "1,204"
    assert figures.percent(None) == "–"
    assert figures.percent(Decimal("0.3419")) == "34.2%"
    assert figures.percent(Decimal(1)) == "100%"
    assert [figures.percent(Decimal(n) / 1000, in_column=True) for n in (0, 400, 1000)] == [
        "0.0%", "40.0%", "100.0%",
    ]  # fmt: skip
    assert figures.ratio(1, 4) == Decimal("0.25")
    assert figures.ratio(1, 0) is None
    assert figures.ratio(None, 4) is None
    assert [figures.duration(ms) for ms in (None, 540, 1_200, 210_000)] == [
        "–", "540 ms", "1.2 s", "3.5 min",
    ]  # fmt: skip
    assert [figures.requests(n) for n in (1, 2000)] == ["1 request", "2,000 requests"]
    assert figures.counted(0, "line") == "0 lines"
    assert figures.counted(2, "entry", "entries") == "2 entries"
