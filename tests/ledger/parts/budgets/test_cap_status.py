"""Caps as the ledger has them: `budget`, and alerts at `warn` and at the first refusal."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ledger.model.exchange import CAP_ERROR, Billing, Outcome, Source, State, UsageSource
from ledger.model.usage import NO_USAGE
from ledger.parts.budgets import spent
from ledger.parts.budgets.alerts import send_due
from ledger.parts.budgets.budgets_file import Budgets
from ledger.parts.budgets.caps import COST_MAX, Amounts, Cap, session_of
from ledger.parts.budgets.status import caps_table, document, statuses, texts
from ledger.pricing.charges import BEYOND
from ledger.settings.names import NO_NAMES
from ledger.store import db
from tests.ledger import written
from tests.ledger.written import COST, NOON, opened, settled

HOLDS: dict[str, Any] = {
    "hold_picousd": 5_000,
    "hold_list_value_picousd": 7_000,
    "hold_tokens": 900,
}
LATER = NOON + timedelta(hours=1)


@pytest.fixture
def ledger(url):
    """Rows of each kind. The first costs 1640 pico-USD and has 120 tokens."""
    nothing: dict[str, Any] = {"usage_source": UsageSource.NONE, "usage": NO_USAGE}
    rows = [
        (settled("cost", **HOLDS), {}),
        (settled("plan", **HOLDS, session_id="s"), {"billing": Billing.PLAN}),
        (settled("cut", outcome=Outcome.CLIENT_LEFT, **HOLDS), nothing),
        (settled("error", outcome=Outcome.HTTP_ERROR, **HOLDS), nothing),
        (settled("replayed", source=Source.REPLAY, **HOLDS), {}),
        (settled("yesterday", at=NOON - timedelta(days=1), **HOLDS), {}),
        (
            settled("no", outcome=Outcome.REFUSED, error_type=CAP_ERROR, error_code="daily"),
            nothing,
        ),
    ]
    with written.writing(url) as ledger:
        for exchange, more in rows:
            ledger.settle(exchange, written.reading(exchange, **more))
        ledger.open(opened("open", **HOLDS))
        yield url


def cap(name: str = "daily", period: str = "day", **more: Any) -> Cap:
    facts: dict[str, Any] = {"name": name, "period": period, "usd": 1, "tokens": 10_000, **more}
    return Cap(**facts)


def amounts(url: str, one: Cap) -> dict[Any, Amounts]:
    """Without what is open."""
    with db.disposing(db.open_engine(url)) as engine, engine.connect() as connection:
        return spent.of_cap(connection, one, NO_NAMES, LATER, live={"host/1/1", "node", ""})


def test_what_was_spent_is_the_cost_or_else_the_hold(ledger):
    # cost and list value: known of two; the hold of the one that was cut; nothing of the error.
    assert amounts(ledger, cap()) == {
        None: Amounts(COST + 0 + 5_000, 2 * COST + 7_000, 120 + 120 + 900, 4)
    }


def test_sessions_and_filters_have_sums_of_their_own(ledger):
    found = amounts(ledger, cap(period="session"))
    assert found["s"] == Amounts(0, COST, 120, 1)
    assert found[session_of(opened("x"))].requests == 4  # yesterday's, too
    assert amounts(ledger, cap(session="s")) == {None: Amounts(0, COST, 120, 1)}
    assert amounts(ledger, cap(host="api.example.com"))[None].requests == 4
    assert amounts(ledger, cap(host="API.Example.com."))[None].requests == 4
    assert amounts(ledger, cap(host="other.example.com")) == {}
    assert amounts(ledger, cap(tag="a=b")) == {}


def test_a_rolling_period_has_its_minutes(ledger):
    ((minute, found),) = amounts(ledger, cap(period="5h")).items()
    assert (minute, found.requests) == (NOON, 4)


def test_budget_shows_spent_held_left_and_refused(ledger):
    caps = [cap(), cap("run", period="run", requests=5)]
    with db.disposing(db.open_engine(ledger)) as engine:
        found = statuses(engine, caps, NO_NAMES, LATER)
    daily, run = document(found)["caps"]
    assert (daily["spent_tokens"], daily["held_tokens"], daily["left_tokens"]) == (1140, 900, 7960)
    assert (daily["limit_usd"], daily["refused"], daily["warned"]) == (1, 1, [])
    assert daily["resets_at"] == "2026-11-03T00:00:00+00:00"
    assert (run["spent_usd"], run["limit_requests"], run["since"]) == (None, 5, None)
    assert [row[:4] for row in caps_table(found).rows][:2] == [
        ("daily", "day", "usd", "$1.00"),
        ("daily", "day", "tokens", "10,000"),
    ]
    assert caps_table(found).rows[1][4:] == ("1,140", "900", "7,960", 1)
    assert texts(found) == ["cap daily: 11.4% of 10,000 tokens, 900 held, 1 refused"]


def test_each_share_and_the_first_refusal_alert_once(ledger):
    budgets = Budgets(caps=(cap(tokens=1_200, warn=[50, 90, 100]),))
    said: list[str] = []
    with db.disposing(db.open_engine(ledger)) as engine:
        for _ in range(2):
            send_due(engine, budgets, NO_NAMES, LATER, lambda _, line: said.append(line))
    assert said == [
        "tokentee: cap daily, 2026-11-02: 1,140 of 1,200 (90%)",
        "tokentee: cap daily: 1 request refused",
    ]


def test_an_answer_that_can_have_no_figure_counts_no_hold(url):
    nothing: dict[str, Any] = {"usage_source": UsageSource.NONE, "usage": NO_USAGE}
    with written.writing(url) as ledger:
        for status in (204, 302, 304, 200):
            exchange = settled(f"e{status}", **HOLDS)
            ledger.settle(
                replace(exchange, http_status=status), written.reading(exchange, **nothing)
            )
    assert amounts(url, cap())[None] == Amounts(5_000, 7_000, 900, 4)


def test_equal_answers_count_each_as_they_did_when_they_were_settled(url):
    """A local server at temperature 0 gives them; in the bill they are one response."""
    same: dict[str, Any] = {
        "response_id": "chatcmpl-1", "content_digest": "c", "upstream_digest": "u",
        "request_digest": "r", **HOLDS,
    }  # fmt: skip
    with written.writing(url) as ledger:
        for name in ("a", "b", "c"):
            exchange = settled(name, **same, session_id=name)
            ledger.settle(exchange, written.reading(exchange))
    with db.disposing(db.open_engine(url)) as engine:
        counted = written.rows(engine, "SELECT COUNT(*) FROM requests")
        (status,) = statuses(engine, [cap()], NO_NAMES, LATER)
    assert counted[0][0] == 1
    assert status.spent == amounts(url, cap())[None] == Amounts(3 * COST, 3 * COST, 360, 3)
    assert {name: each.requests for name, each in amounts(url, cap(period="session")).items()} == {
        "a": 1,
        "b": 1,
        "c": 1,
    }
    assert amounts(url, cap(period="5h"))[NOON].requests == 3


def test_a_cost_beyond_64_bits_counts_as_all_that_is_left(url):
    """In the ledger as in a running process."""
    of_line = written.charge("output", 10**9, None, price_source="none", reason=f"x; {BEYOND}")
    priced = [written.charge("uncached_input", 1, 1), of_line]
    plan = {"billing": Billing.PLAN}
    for lines in ([of_line], priced):
        with written.writing(url, price=lambda *_, lines=lines: tuple(lines)) as ledger:
            for name, more in (("own", {}), ("plan", plan)):
                exchange = settled(f"{name}{len(lines)}", **HOLDS)
                ledger.settle(exchange, written.reading(exchange, **more))
    assert amounts(url, cap())[None] == Amounts(2 * COST_MAX, 4 * COST_MAX, 480, 4)
    unknown = written.charge("output", 1, None, price_source="none", reason="no price")
    with written.writing(url, price=lambda *_: (unknown,)) as ledger:
        exchange = settled("unknown", **HOLDS)
        ledger.settle(exchange, written.reading(exchange))
    assert amounts(url, cap())[None].usd == 2 * COST_MAX + 5_000


def test_what_a_dead_process_left_open_counts_its_hold(url):
    with written.writing(url, node="host/9/9") as first:
        first.open(opened("open", node="host/9/9", **HOLDS))
    with written.writing(url, node="host/1/2"):
        pass  # the start of another process marks it as lost
    assert amounts(url, cap())[None] == Amounts(5_000, 7_000, 900, 1)
    assert replace(opened("x"), state=State.OPEN).hold_tokens is None
