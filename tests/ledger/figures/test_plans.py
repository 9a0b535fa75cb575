"""Plans by month, against figures worked out by hand; and blocks of five hours: stated windows,
guessed ones beside them, and sums that add up."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from typer.testing import CliRunner

from ledger.figures import plans, queries
from ledger.figures.plans import plan_months
from ledger.maintenance import rollup
from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing, UsageSource
from ledger.settings.names import read
from ledger.store.scope import Scope
from tests.app import APP
from tests.ledger.figures.test_limits import HOUR, answered, play, rate_of, stated
from tests.ledger.written import COST, NOON, charge, on, put, settled, whole

NAMES, _ = read(
    """
[[plan]]
name = "Max"
usd_per_month = 0.000001
key_hint = "1a2b"
from = 2026-07-15

[[plan]]
name = "Nameless price"
agent = "codex"
"""
)


def moment(month, day=3):
    return datetime(2026, month, day, 12, tzinfo=UTC)


@pytest.fixture
def ledger(engine):
    entries: list[Any] = [
        # Covered by Max from 15 July on; before, by a plan whose price is not known.
        ("a", moment(7, 3), {"key_hint": "1a2b", "key_fingerprint": "k1"}, Billing.PLAN),
        ("b", moment(7, 20), {"key_hint": "1a2b", "key_fingerprint": "k2"}, Billing.PLAN),
        ("c", moment(9, 1), {"key_hint": "1a2b", "key_fingerprint": "k3"}, Billing.PLAN),
        ("d", moment(9, 2), {"key_hint": "1a2b", "key_fingerprint": "k3"}, Billing.PLAN),
        # Beyond the plan, from credits; and with a key.
        ("e", moment(9, 2), {"key_hint": "1a2b", "key_fingerprint": "k3"}, Billing.METERED),
        ("f", moment(9, 2), {}, None),
        ("g", moment(9, 2), {}, Billing.FREE),
        ("h", moment(9, 4), {"agent": "codex"}, Billing.PLAN),
    ]
    for name, at, facts, billing in entries:
        put(engine, whole(settled(name, at=at, **facts), billing=billing))
    for name, day, lines, source in (
        ("i", 5, [charge("output", 1, None)], UsageSource.REPORTED),
        ("j", 6, None, UsageSource.ESTIMATED),
    ):
        exchange = settled(name, at=moment(9, day), agent="codex")
        put(engine, whole(exchange, lines, billing=Billing.PLAN, usage_source=source))
    return engine


@pytest.mark.parametrize("is_rolled", [False, True])
def test_plans_by_month(ledger, is_rolled):
    if is_rolled:
        rollup.roll(ledger, now=moment(10))
    found = [
        (one.plan, one.month, one.requests, one.list_value_picousd, one.ratio, one.is_lower_bound)
        for one in plan_months(ledger, Scope(names=NAMES))
    ]
    price = 10**6
    assert found == [
        ("Max", "2026-07", 1, COST, Decimal(COST) / price, False),
        ("Max", "2026-08", 0, None, None, False),
        ("Max", "2026-09", 2, 2 * COST, Decimal(2 * COST) / price, False),
        ("Nameless price", "2026-09", 3, COST, None, True),
        ("example", "2026-07", 1, COST, None, False),
    ]


def test_a_ledger_without_plans(sqlite_engine):
    assert plan_months(sqlite_engine, Scope()) == []


def test_the_command(new_sqlite, text_file):
    names = text_file(
        "names.toml", '[[plan]]\nname = "Max"\nusd_per_month = 0.000001\nkey_hint = "1a2b"\n'
    )
    url = new_sqlite()
    words = ["limits", "--names", str(names), "--ledger", url]
    windows = [
        # The reset moves by a second; another window is used up, and a rate is no plan.
        stated(100, moment(9) + timedelta(hours=2)),
        stated(101, moment(9) + timedelta(hours=2, seconds=1)),
        stated(99, moment(9) + timedelta(hours=7)),
        stated(40, moment(9) + timedelta(days=3), "7d", status="rejected"),
        rate_of(9, 0),
    ]
    for number, window in enumerate(windows):
        at = moment(9) + timedelta(minutes=number)
        exchange = settled(f"e{number}", at=at, key_hint="1a2b", quotas=(window,))
        put(url, whole(exchange, billing=None if number else Billing.PLAN))
    found = CliRunner().invoke(APP, [*words, "--plans", "--format", "json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == [
        {
            "plan": "Max",
            "month": "2026-09",
            "usd_per_month": 1e-6,
            "list_value_usd": COST / 1e12,
            "ratio": 0.0,
            "requests": 1,
            "windows_hit": 2,
        }
    ]
    found = CliRunner().invoke(APP, [*words, "--plans"])
    assert "Max   2026-09         1" in found.stdout
    assert "ratio: list value of a month / price of the plan" in found.stderr


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
        found = plans.report_by_block(engine, scope, now=NOON)
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
        found = plans.report_by_block(engine, Scope(), now=NOON)
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
        found = plans.report_by_block(engine, Scope(only=only), now=NOON)
    assert [row.key[3] for row in found.rows] == ["openai/b"]
    assert [row for row in rows(url, Scope()) if row in ROWS] == ROWS


def test_blocks_are_of_one_moment(url, monkeypatch):
    """A request that is recorded meanwhile is in no figure."""
    more = [answered("meanwhile", 181, "s", "k", [])]

    def report_while_recording(*words, **named):
        found = queries.report(*words, **named)
        play(url, [more.pop()] if more else [])
        return found

    monkeypatch.setattr(plans, "report", report_while_recording)
    assert rows(url, Scope()) == ROWS
    assert not more


def test_too_many_blocks_are_refused(url, monkeypatch):
    monkeypatch.setattr(plans, "BLOCKS_MAX", 3)
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
