"""The table of single requests."""

from datetime import UTC, datetime

import pytest

from ledger.figures.request_list import LISTED_COLUMNS, ListedRequest
from ledger.reports import requests_text
from ledger.reports.layout import column_texts

NOTHING = dict.fromkeys(LISTED_COLUMNS)


@pytest.mark.parametrize(
    ("outcome", "usage_source", "cost_state", "cost", "shown"),
    [
        ("complete", "reported", "priced", 5 * 10**12, "$5.0000"),
        ("complete", "reported", "partial", 5 * 10**12, "≥ $5.0000"),
        ("complete", "reported", "unpriced", None, "unpriced"),
        ("complete", "none", None, None, "no usage"),
        ("http_error", "none", None, None, "-"),
    ],
)
def test_why_there_is_no_cost(outcome, usage_source, cost_state, cost, shown):
    given = {"opened_at": datetime(2026, 11, 26, tzinfo=UTC), "id": "1", "billing": "metered"}
    given |= {"outcome": outcome, "usage_source": usage_source, "cost_state": cost_state}
    one = ListedRequest(**{**NOTHING, **given, "cost_picousd": cost})
    (column,) = [each for each in column_texts(requests_text.table([one])) if "Cost" in each[0]]
    assert column[1].strip() == shown
