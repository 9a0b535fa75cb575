"""What is running now."""

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from ledger.figures.activity import Activity, RunningRequest, take
from ledger.figures.figures import Figures
from ledger.reports.activity_text import ROWS_RUNNING_MAX, lines, one_line
from ledger.store.scope import Scope
from tests.ledger.priced import BOTH, NOVEMBER, exchange, filled, reading, settled

SECOND = timedelta(seconds=1)
USD = 10**12


def entries():
    gpt = exchange("gpt-4.1", session_id="s1")
    yield (
        settled(structs.replace(gpt, id="a"), took_ms=2000),
        reading(input_tokens=1000, output_tokens=600),
    )
    yield (
        settled(
            structs.replace(gpt, id="b", session_id=None, opened_at=NOVEMBER - timedelta(hours=3))
        ),
        reading(input_tokens=10, output_tokens=1),
    )
    yield (
        settled(structs.replace(gpt, id="c", opened_at=NOVEMBER - timedelta(days=1))),
        reading(input_tokens=10, output_tokens=1),
    )


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    still_open = [
        exchange(None, id="open", request_model="gpt-4.1", session_id="s2"),
        exchange(None, id="old", at=NOVEMBER - timedelta(days=2)),
    ]
    yield from filled(request, tmp_path_factory, entries(), still_open=still_open)


def test_a_moment_of_a_ledger(engine):
    found = take(engine, Scope(), NOVEMBER + 30 * SECOND)
    assert found.running_count == len(found.running)
    assert {(each.model, each.session) for each in found.running} <= {("gpt-4.1", "s2")}
    assert (found.ended, found.output_tokens) == (1, 600)
    assert found.today.requests == 2
    assert {key: figures.requests for key, figures in found.sessions.items()} == {
        ("s1",): 1,
        (None,): 1,
    }
    assert {key: figures.requests for key, figures in found.models.items()} == {("gpt-4.1",): 2}
    later = take(engine, Scope(), NOVEMBER + 90 * SECOND)
    assert (later.ended, later.output_tokens) == (0, 0)


def test_only_some(engine):
    found = take(engine, Scope(only=(("session", "s1"),)), NOVEMBER + SECOND)
    assert found.today.requests == 1
    at = NOVEMBER + 30 * SECOND
    whole, none, both = (
        take(engine, Scope(only=tuple(("session", each) for each in some)), at)
        for some in ((), ("s1",), ("s1", "s2"))
    )
    assert (none.running, none.running_count) == ((), 0)
    assert (none.ended, none.output_tokens) == (1, 600)
    assert both.running == whole.running
    of_others = take(engine, Scope(only=(("session", "s2"),)), at)
    assert (of_others.ended, of_others.running_count) == (0, whole.running_count)


def test_today_is_a_day_of_the_zone(engine):
    """At noon in UTC it is the next day in Kiritimati, two hours old."""
    zone = ZoneInfo("Pacific/Kiritimati")
    found = take(engine, Scope(zone=zone), NOVEMBER + SECOND)
    assert (found.today.requests, found.now.tzinfo) == (1, zone)


def activity(running=2, **more):
    figures = Figures(
        requests=12, input_tokens=12_345, output_tokens=678, cost_picousd=USD + USD // 4, priced=12
    )
    return Activity(
        **{
            "now": NOVEMBER,
            "running": tuple(
                RunningRequest(
                    opened_at=NOVEMBER - (number * 100 + 3) * SECOND,
                    model=f"claude-haiku-4-5-2025100{number}",
                    provider="anthropic",
                    session=f"session-{number}" if number else None,
                    is_answered=not number,
                )
                for number in range(running)
            ),
            "running_count": running,
            "ended": 3,
            "output_tokens": 2470,
            "today": figures,
            "sessions": {("s1",): figures, (None,): Figures(requests=1, unpriced=1)},
            "models": {("gpt-5",): figures},
            **more,
        }
    )


def test_one_line_for_a_status_bar():
    assert one_line(activity()) == "2 running · 41 tok/s · $1.25 today · 12 requests"
    odd = Figures(requests=1, errors=1, complete_without_usage=2, cost_picousd=USD, unpriced=1)
    assert one_line(activity(today=odd)) == (
        "2 running · 41 tok/s · ≥ $1.00 today · 1 request · 1 error · 2 without usage"
    )
    assert "· $0 today · 0 requests" in one_line(activity(today=Figures()))
    assert "· unpriced today" in one_line(activity(today=Figures(requests=1, unpriced=1)))


def test_a_screen_of_80_columns():
    assert lines(activity(), 80) == [
        "tokentee top, 2026-11-02 12:00:00 UTC",
        "2 running · 41 tok/s · $1.25 today · 12 requests",
        "",
        "Running now",
        "Model                      Provider   Session      For  State",
        "─" * 65,
        "claude-haiku-4-5-20251000  anthropic  (none)       3 s  answering",
        "claude-haiku-4-5-20251001  anthropic  session-1  103 s  waiting",
        "",
        "Today by session",
        "Session  Requests   Input  Output      Cost",
        "───────────────────────────────────────────",
        "s1             12  12,345     678   $1.2500",
        "(none)          1       -       -  unpriced",
        "",
        "Today by model",
        "Model  Requests   Input  Output     Cost",
        "────────────────────────────────────────",
        "gpt-5        12  12,345     678  $1.2500",
    ]


def test_a_line_that_is_too_long_breaks_between_its_parts():
    odd = Figures(requests=1, errors=12, complete_without_usage=2, cost_picousd=USD, unpriced=1)
    assert lines(activity(today=odd), 60)[1:4] == [
        "2 running · 41 tok/s · ≥ $1.00 today · 1 request ·",
        "12 errors · 2 without usage",
        "",
    ]


def test_a_small_screen_is_not_overrun():
    assert len(lines(activity(running=50), 80, 10)) == 10
    assert f"{50 - ROWS_RUNNING_MAX} more" in lines(activity(running=50), 80)
    assert max(map(len, lines(activity(running=50), 60))) <= 60
    assert "nothing is running" in lines(activity(running=0), 80)
    old = replace(activity(), now=NOVEMBER + timedelta(hours=1))
    assert any(" 1 h 00 min " in line for line in lines(old, 80))


def test_what_plans_cover_stands_beside_the_cost():
    plan = Figures(requests=2, covered=2, list_value_picousd=USD, covered_value_picousd=USD)
    own = Figures(requests=1, cost_picousd=3 * USD)
    both = activity(today=plan + own, sessions={("a",): plan, ("b",): own})
    assert "$3.00 today · $1.00 covered · 3 requests" in one_line(both)
    assert "Cost Covered" in " ".join("\n".join(lines(both, 80)).split())
    assert "covered" not in one_line(activity(today=own))
