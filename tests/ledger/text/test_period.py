"""Words for moments and spans."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ledger.model.errors import LedgerError, WrongCallError
from ledger.text.period import Span, moment, month_of, span, week_of, year_of, zone_of

NOW = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)
"""A Friday."""


def at(year, month, day, hour=0, minute=0, second=0):
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01", at(2026, 11, 1)),
        ("20261101", at(2026, 11, 1)),
        ("2026-11-01T12:30", at(2026, 11, 1, 12, 30)),
        ("2026-11-01T12:30:05Z", at(2026, 11, 1, 12, 30, 5)),
        ("2026-11-01T00:30:00+02:00", at(2026, 10, 31, 22, 30)),
        ("2026-11", at(2026, 11, 1)),
        ("2026", at(2026, 1, 1)),
        ("2026-W45", at(2026, 11, 2)),
        ("30m", at(2026, 11, 20, 15, 0)),
        ("24h", at(2026, 11, 19, 15, 30)),
        ("0d", at(2026, 11, 20)),
        ("1d", at(2026, 11, 20)),
        ("7d", at(2026, 11, 14)),
        ("30d", at(2026, 10, 22)),
        ("30x24h", at(2026, 10, 21, 15, 30)),
        (" 2W ", at(2026, 11, 7)),
        ("1 w", at(2026, 11, 14)),
        ("now", NOW),
        ("Today", at(2026, 11, 20)),
        ("yesterday", at(2026, 11, 19)),
        ("this-week", at(2026, 11, 16)),
        ("last-week", at(2026, 11, 9)),
        ("this month", at(2026, 11, 1)),
        ("last_month", at(2026, 10, 1)),
        ("this-year", at(2026, 1, 1)),
        ("last-year", at(2025, 1, 1)),
    ],
)
def test_a_moment(text, expected):
    assert moment(text, NOW) == expected
    assert moment(text, NOW).utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-02", at(2026, 2, 1), at(2026, 3, 1)),
        ("2026-12", at(2026, 12, 1), at(2027, 1, 1)),
        ("2026-11-01", at(2026, 11, 1), at(2026, 11, 2)),
        ("2026-W45", at(2026, 11, 2), at(2026, 11, 9)),
        ("yesterday", at(2026, 11, 19), at(2026, 11, 20)),
        ("last-week", at(2026, 11, 9), at(2026, 11, 16)),
        ("last-month", at(2026, 10, 1), at(2026, 11, 1)),
        ("7d", at(2026, 11, 14), at(2026, 11, 21)),
        ("7x24h", at(2026, 11, 13, 15, 30), NOW),
        ("2026-11-20T12:00", at(2026, 11, 20, 12), NOW),
        ("2027-01-01T12:00", at(2027, 1, 1, 12), at(2027, 1, 1, 12)),
    ],
)
def test_a_span(text, start, end):
    assert span(text, NOW) == Span(start=start, end=end)


def test_spans_around_a_moment():
    assert week_of(at(2026, 1, 1)) == Span(start=at(2025, 12, 29), end=at(2026, 1, 5))
    assert month_of(at(2024, 2, 29, 23)) == Span(start=at(2024, 2, 1), end=at(2024, 3, 1))
    assert year_of(NOW) == Span(start=at(2026, 1, 1), end=at(2027, 1, 1))


def test_today_is_the_day_in_utc():
    late = datetime(2026, 11, 21, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    assert moment("today", late) == at(2026, 11, 20)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "7 parsecs",
        "-7d",
        "2026-13",
        "2026-13-01",
        "0000",
        "999999w",
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59-14:00",
        "9999",
    ],
)
def test_what_is_no_moment(text):
    with pytest.raises(LedgerError, match=r"not a moment: .*; write 2026-11, 2026-11-01") as error:
        moment(text, NOW)
    for word in ("30d", "1w", "today", "yesterday", "this-month", "last-week", "T12:00:00Z"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("text", "meant"), [("month", "this-month"), ("lastweek", "last-week"), ("tday", "today")]
)
def test_the_nearest_word_is_named(text, meant):
    with pytest.raises(LedgerError, match=f"did you mean '{meant}'"):
        moment(text, NOW)


@pytest.mark.parametrize(
    ("word", "start", "end"),
    [
        ("today", "2026-10-24T22:00", "2026-10-25T23:00"),  # 25 hours
        ("yesterday", "2026-10-23T22:00", "2026-10-24T22:00"),
        ("2026-03-29", "2026-03-28T23:00", "2026-03-29T22:00"),  # 23 hours
        ("2026-10", "2026-09-30T22:00", "2026-10-31T23:00"),
        ("this-week", "2026-10-18T22:00", "2026-10-25T23:00"),
        ("7d", "2026-10-18T22:00", "2026-10-25T23:00"),
        ("12h", "2026-10-24T13:30", "2026-10-25T01:30"),
        ("2026-10-25T12:00:00Z", "2026-10-25T12:00", "2026-10-25T12:00"),
    ],
)
def test_days_of_the_zone_of_now(word, start, end):
    now = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zone_of("Europe/Berlin"))
    found = span(word, now)
    shown = [f"{each.astimezone(UTC):%Y-%m-%dT%H:%M}" for each in (found.start, found.end)]
    assert shown == [start, end]


@pytest.mark.parametrize("name", ["Europe/Berlni", "", "/etc/passwd", "../UTC", "x" * 300])
def test_a_zone_that_is_none_is_named(name):
    with pytest.raises(WrongCallError, match="not a time zone"):
        zone_of(name)
