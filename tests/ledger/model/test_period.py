"""Words for moments."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ledger.model.errors import LedgerError
from ledger.model.period import moment

NOW = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T12:30", datetime(2026, 11, 1, 12, 30, tzinfo=UTC)),
        ("2026-11-01T12:30:05Z", datetime(2026, 11, 1, 12, 30, 5, tzinfo=UTC)),
        ("2026-11-01T00:30:00+02:00", datetime(2026, 10, 31, 22, 30, tzinfo=UTC)),
        ("30m", datetime(2026, 11, 20, 15, 0, tzinfo=UTC)),
        ("24h", datetime(2026, 11, 19, 15, 30, tzinfo=UTC)),
        ("7d", datetime(2026, 11, 13, 15, 30, tzinfo=UTC)),
        (" 2W ", datetime(2026, 11, 6, 15, 30, tzinfo=UTC)),
        ("now", NOW),
        ("Today", datetime(2026, 11, 20, tzinfo=UTC)),
        ("yesterday", datetime(2026, 11, 19, tzinfo=UTC)),
    ],
)
def test_a_moment(text, expected):
    assert moment(text, NOW) == expected
    assert moment(text, NOW).utcoffset() == timedelta(0)


def test_today_is_the_day_in_utc():
    late = datetime(2026, 11, 21, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    assert moment("today", late) == datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "7 parsecs", "-7d", "2026-13-01", "999999w"])
def test_what_is_no_moment(text):
    with pytest.raises(LedgerError, match=r"not a moment: .*; write 2026-11-01"):
        moment(text, NOW)
