"""Plans by month, against figures worked out by hand."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from typer.testing import CliRunner

from ledger.maintenance import rollup
from ledger.model.exchange import Billing, UsageSource
from ledger.parts.plans.plans import plan_months
from ledger.settings.names import read
from ledger.store.scope import Scope
from tests.app import APP
from tests.ledger.stated_limits import rate_of, stated
from tests.ledger.written import COST, charge, put, settled, whole

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
