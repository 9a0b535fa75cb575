"""What one exchange costs, by its reading and its charges."""

import pytest

from ledger.model.charge import Amounts, amounts_of

LIST, OWN = "list 1", "provider"


@pytest.mark.parametrize(
    ("source", "billing", "lines", "expected", "shown"),
    [
        ("none", None, [], Amounts(), None),
        (None, None, [], Amounts(), None),
        ("reported", None, [], Amounts(is_complete=False), None),
        (
            "reported",
            "metered",
            [(3, LIST), (4, LIST)],
            Amounts(cost_picousd=7, list_value_picousd=7),
            7,
        ),
        (
            "partial",
            None,
            [(3, LIST), (None, "none")],
            Amounts(cost_picousd=3, list_value_picousd=3, is_complete=False),
            3,
        ),
        ("reported", None, [(5, OWN)], Amounts(cost_picousd=5), 5),
        ("reported", "plan", [(3, LIST)], Amounts(list_value_picousd=3, is_covered=True), 3),
        ("reported", "free", [(0, LIST)], Amounts(list_value_picousd=0, is_covered=True), 0),
        ("reported", "plan", [(5, OWN)], Amounts(is_covered=True), None),
        ("estimated", None, [(3, LIST)], Amounts(estimated_cost_picousd=3), 3),
        ("estimated", "plan", [(3, LIST)], Amounts(is_covered=True), None),
    ],
)
def test_amounts(source, billing, lines, expected, shown):
    found = amounts_of(source, billing, lines)
    assert found == expected
    assert found.shown_picousd == shown
