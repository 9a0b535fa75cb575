"""Spans lie side by side, cover a period once, and use the sums of all days that have some."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
import sqlalchemy as sa

from ledger.figures import sums
from ledger.store import db
from ledger.store.tables import meta, stale_days
from ledger.text.period import DAY, HOUR

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
ROLLED = BEGIN + 100 * DAY


def asked(engine, since, until, stale, *, step=DAY):
    with db.writing(engine) as connection:
        connection.execute(sa.delete(stale_days))
        for day in stale:
            begin = BEGIN + day * DAY
            connection.execute(
                sa.insert(stale_days).values(
                    day=begin.date(), starts_at=begin, ends_at=begin + DAY, writes=1
                )
            )
        connection.execute(sa.delete(meta).where(meta.c.key == "rolled_until"))
        connection.execute(sa.insert(meta).values(key="rolled_until", value=str(ROLLED)))
        found = sums.spans(connection, since, until, step=step)
    assert (found[0].since, found[-1].until) == (since, until)
    for left, right in pairwise(found):
        assert left.until == right.since
        assert left.has_sums != right.has_sums
    return found


def days_of(found):
    """Beginning and end of what has sums, in days."""
    return [
        tuple(None if at is None else (at - BEGIN) / DAY for at in (span.since, span.until))
        for span in found
        if span.has_sums
    ]


@pytest.mark.parametrize(
    ("since", "until", "stale", "expected"),
    [
        pytest.param(None, None, [], [(None, 100)], id="everything"),
        pytest.param(None, None, [3, 4, 9], [(None, 3), (5, 9), (10, 100)], id="stale"),
        pytest.param(5, 8, [3, 4, 9], [(5, 8)], id="stale-outside"),
        pytest.param(4.5, 9.5, [3, 4, 9], [(5, 9)], id="cut-days"),
        pytest.param(4, 10, [4, 9], [(5, 9)], id="stale-ends"),
        pytest.param(4, 6, [4, 5], [], id="all-stale"),
        pytest.param(6.2, 6.9, [], [], id="part-of-a-day"),
        pytest.param(120, None, [], [], id="not-over"),
        pytest.param(99, 140, [], [(99, 100)], id="the-end-of-what-is-over"),
    ],
)
def test_days(engine, since, until, stale, expected):
    begin, end = (None if at is None else BEGIN + at * DAY for at in (since, until))
    found = asked(engine, begin, end, stale)
    assert days_of(found) == expected


def test_hours(engine):
    found = asked(engine, BEGIN + 6.9 * HOUR, BEGIN + 30.5 * HOUR, [0], step=HOUR)
    assert days_of(found) == [(1, 1.25)]
    found = asked(engine, BEGIN + 6.5 * HOUR, BEGIN + 9.5 * HOUR, [], step=HOUR)
    assert [span.since for span in found] == [BEGIN + at * HOUR for at in (6.5, 7, 9)]


def test_many_stale_days_are_added_up_with_what_lies_between_the_closest(engine, monkeypatch):
    monkeypatch.setattr(sums, "STALE_SPANS_MAX", 2)
    found = asked(engine, None, None, [2, 4, 20, 30, 33])
    assert days_of(found) == [(None, 2), (5, 20), (34, 100)]
