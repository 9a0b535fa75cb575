"""Prices, and what repricing changes, as tables."""

from ledger.maintenance.reprice import Change
from ledger.pricing.price_lines import Rate, Sheet
from ledger.reports.price_tables import difference, sheet_table


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
        ("output", "15", "1M", "above 200,000 tokens 22.5", "list"),
        ("web_searches", "0.01", "1", "", "list; a note"),
    )


def test_what_is_free_to_the_last_line():
    table = sheet_table(Sheet({}, "", rest=Rate(0, "override", note="declared free")))
    assert table.rows == (("every other line", "0", "1", "", "override; declared free"),)


def test_the_difference_by_model_largest_first():
    table = difference(
        {
            None: Change(requests=1, lines=2),
            "a": Change(requests=1, lines=1, before_picousd=10**12, after_picousd=2 * 10**12),
            "b": Change(requests=3, lines=3, before_picousd=5 * 10**12, after_picousd=10**12),
            "c": Change(requests=1, lines=1, after_picousd=10**11),
        }
    )
    assert table.rows == (
        ("b", 3, 3, "$5.0000", "$1.0000", "-$4.0000"),
        ("a", 1, 1, "$1.0000", "$2.0000", "$1.0000"),
        ("c", 1, 1, "unpriced", "$0.1000", "$0.1000"),
        ("(none)", 1, 2, "unpriced", "unpriced", ""),
    )
    assert table.total == ("Total", 6, 7, "$6.0000", "$3.1000", "-$2.9000")
