"""Blocks of five hours: stated windows, guessed ones beside them, and sums that add up."""

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from typer.testing import CliRunner

from ledger.figures import blocks, queries
from ledger.model.errors import LedgerError
from ledger.store.scope import Scope
from tests.app import APP
from tests.ledger.stated_limits import HOUR, answered, play, stated
from tests.ledger.written import NOON, on

RESET = NOON + 3 * HOUR
ENTRIES = [
    answered("before", -180, "s", "k", []),  # 09:00, guessed; ends where the stated one begins
    answered("1", 0, "s", "k", [stated(1, RESET)]),  # 10:00 to 15:00
    answered("2", 179, "s", "k", [stated(2, RESET + timedelta(seconds=3))]),
    answered("after", 180, "s", "k", []),  # 15:00
    answered("last", 180 + 299, "t", "k", []),
    answered("next", 180 + 300, "t", "k", []),
]
ROWS = [
    (("2026-11-02 09:00", "10:00", "guessed"), 1),
    (("2026-11-02 10:00", "15:00", "stated"), 2),
    (("2026-11-02 15:00", "20:00", "guessed"), 2),
    (("2026-11-02 20:00", "01:00", "guessed"), 1),
]


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    play(url, ENTRIES)
    return url


def rows(url, scope):
    with on(url) as engine:
        found = blocks.report_by_block(engine, scope, now=NOON)
    return [(row.key[:3], row.figures.requests) for row in found.rows]


def test_stated_and_guessed_windows(url):
    assert rows(url, Scope()) == ROWS


def test_blocks_are_told_by_the_clock_of_the_zone(url):
    """Four hours before UTC."""
    found = rows(url, Scope(zone=ZoneInfo("America/Caracas")))
    assert [(key[0][-5:], key[1]) for key, _ in found[:2]] == [
        ("05:00", "06:00"),
        ("06:00", "11:00"),
    ]


def test_a_period_cuts_blocks_and_conditions_count(url):
    since, until = NOON + timedelta(minutes=100), NOON + timedelta(minutes=190)
    found = rows(url, Scope(since=since, until=until))
    assert [(key[2], count) for key, count in found] == [("stated", 1), ("guessed", 1)]
    assert [count for _, count in rows(url, Scope(only=(("session", "t"),)))] == [1, 1]
    assert rows(url, Scope(since=NOON + timedelta(days=2))) == []


def test_windows_of_another_account_do_not_cut_these(tmp_path):
    url = f"sqlite:///{tmp_path / 'two.sqlite3'}"
    theirs = {"account": "b", "provider": "another"}
    two = [
        answered("1", 0, "s", "k", [stated(1, NOON + 2 * HOUR)]),  # 09:00 to 14:00
        answered("2", 30, "t", "j", [stated(1, NOON + 4 * HOUR)], **theirs),  # 11:00 to 16:00
        answered("3", 150, "t", "j", [stated(2, NOON + 4 * HOUR)], **theirs),
    ]
    play(url, two)
    for only in (("provider", "another"), ("session", "t")):
        assert rows(url, Scope(only=(only,))) == [(("2026-11-02 11:00", "16:00", "stated"), 2)]
    assert rows(url, Scope()) == [
        (("2026-11-02 09:00", "14:00", "stated"), 1),
        (("2026-11-02 11:00", "16:00", "stated"), 2),
    ]


def test_each_account_has_blocks_of_its_own(url):
    """Of a key without one, the key has."""
    given = [
        answered("by key", 5, "u", "j", [], account=None, provider="openai"),
        answered("of another", 60, "u", "j", [], account="b", provider="openai"),
        answered("later", 70, "u", "j", [], account="b", provider="openai"),
    ]
    play(url, given)
    with on(url) as engine:
        found = blocks.report_by_block(engine, Scope(), now=NOON)
    assert found.by == ("block", "until", "window", "account")
    others = [
        (row.key, row.figures.requests)
        for row in found.rows
        if (row.key[3] or "").startswith("openai/")
    ]
    assert others == [
        (("2026-11-02 12:05", "17:05", "guessed", "openai/j"), 1),
        (("2026-11-02 13:00", "18:00", "guessed", "openai/b"), 2),
    ]
    with on(url) as engine:
        only = (("provider", "open*"), ("account", "*"))
        found = blocks.report_by_block(engine, Scope(only=only), now=NOON)
    assert [row.key[3] for row in found.rows] == ["openai/b"]
    assert [row for row in rows(url, Scope()) if row in ROWS] == ROWS


def test_blocks_are_of_one_moment(url, monkeypatch):
    """A request that is recorded meanwhile is in no figure."""
    more = [answered("meanwhile", 181, "s", "k", [])]

    def report_while_recording(*words, **named):
        found = queries.report(*words, **named)
        play(url, [more.pop()] if more else [])
        return found

    monkeypatch.setattr(blocks, "report", report_while_recording)
    assert rows(url, Scope()) == ROWS
    assert not more


def test_too_many_blocks_are_refused(url, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCKS_MAX", 3)
    with pytest.raises(LedgerError, match="more than 3 blocks"):
        rows(url, Scope())


def test_the_command_by_block(url):
    runner = CliRunner()
    call = ["report", "--by", "block", "--ledger", url]
    shown = runner.invoke(APP, call).stdout
    assert "2026-11-02 10:00" in shown
    assert "stated" in shown
    refused = runner.invoke(APP, [*call, "--top", "3"])
    assert "stands alone" in str(refused.exception)
