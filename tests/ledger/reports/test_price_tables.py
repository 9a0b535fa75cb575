"""Prices, and what repricing changes, as tables."""

from datetime import UTC, datetime
from decimal import Decimal

from ledger.maintenance.reprice import RepriceChange
from ledger.pricing.price_lines import Rate, Sheet
from ledger.reports.layout import Amount
from ledger.reports.price_tables import difference, sheet_table, sheet_title


def usd(amount):
    return Amount(picousd=int(Decimal(amount) * 10**12))


def test_each_line_with_its_price_and_source():
    table = sheet_table(
        Sheet(
            {
                "output": Rate(15_000_000, "list", above=((200_000, 22_500_000),)),
                "web_searches": Rate(10_000_000_000, "list", note="a note"),
            },
            "",
        )
    )
    assert table.rows == (
        ("output", Decimal(15), "1M tokens", "above 200,000 tokens 22.5", ""),
        ("web_searches", Decimal("0.01"), "1", "", "a note"),
    )


def test_what_is_free_to_the_last_line():
    table = sheet_table(Sheet({}, "", rest=Rate(0, "override", note="declared free")))
    assert table.rows == (("every other line", Decimal(0), "1", "declared free"),)


def test_the_one_source_stands_above_and_two_in_each_line():
    at = datetime(2026, 11, 2, 12, tzinfo=UTC)
    one = Sheet({"output": Rate(15_000_000, "list")}, "")
    assert sheet_title(one, "m", at) == "Prices of m at 2026-11-02 12:00 UTC, from list"
    assert sheet_table(one).rows == (("output", Decimal(15), "1M tokens"),)
    two = Sheet({"output": Rate(1, "list"), "cache_read": Rate(1, "own", note="x")}, "")
    assert sheet_title(two, "m\x1b", at) == "Prices of m\\x1b at 2026-11-02 12:00 UTC"
    assert [row[-1] for row in sheet_table(two).rows] == ["list", "own; x"]


def test_the_difference_by_model_largest_first():
    table = difference(
        {
            None: RepriceChange(requests=1, lines=2),
            "a": RepriceChange(
                requests=1, lines=1, before_picousd=10**12, after_picousd=2 * 10**12
            ),
            "b": RepriceChange(
                requests=3, lines=3, before_picousd=5 * 10**12, after_picousd=10**12
            ),
            "c": RepriceChange(requests=1, lines=1, after_picousd=10**11),
        }
    )
    assert table.rows == (
        ("b", 3, 3, usd(5), usd(1), usd(-4)),
        ("a", 1, 1, usd(1), usd(2), usd(1)),
        ("c", 1, 1, "unpriced", usd("0.1"), usd("0.1")),
        ("(none)", 1, 2, "unpriced", "unpriced", None),
    )
    assert table.total == ("Total", 6, 7, usd(6), usd("3.1"), usd("-2.9"))
