"""Sums that keep what is not known apart from zero, percentiles of times, and what is running now."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ledger.figures.activity import Activity, RunningRequest, take
from ledger.figures.figures import Figures, ReportRow, order, percentiles, top_of
from ledger.reports.activity_text import ROWS_RUNNING_MAX, lines, one_line
from ledger.store.adding_up import histogram, histogram_text
from ledger.store.scope import Scope
from tests.ledger.priced import BOTH, NOVEMBER, exchange, filled, reading, settled
from tests.named import for_each


def test_not_reported_is_not_zero():
    none = Figures(requests=1)
    some = Figures(requests=1, input_tokens=5, cache_read_tokens=0)
    assert (none + none).input_tokens is None
    assert (none + some) == Figures(requests=2, input_tokens=5, cache_read_tokens=0)


@for_each(
    "figures, state",
    [
        (Figures(requests=2, priced=2), "priced"),
        (Figures(requests=3, priced=2), "priced"),  # the third has no usage: an HTTP error
        (Figures(requests=2, priced=1, reported=1), "priced"),
        (Figures(requests=2, reported=2), "reported"),
        (Figures(requests=2, priced=1, unpriced=1), "partial"),
        (Figures(requests=1, partial=1), "partial"),
        (Figures(requests=2, unpriced=2), "unpriced"),
        (Figures(requests=2), None),
    ],
)
def test_the_cost_state_of_a_sum(figures, state):
    assert figures.cost_state == state


def row(name, cost, requests=1):
    return ReportRow(key=(name,), figures=Figures(requests=requests, cost_picousd=cost))


def test_what_costs_most_comes_first_and_time_runs_forward():
    rows = [row("b", None, 9), row("a", 1), row(None, 5), row("c", None, 9)]
    by_cost = sorted(rows, key=order(("model",), ("day",)))
    assert [each.key[0] for each in by_cost] == [None, "a", "b", "c"]
    by_day = sorted(rows, key=order(("day", "model"), ("day",)))
    assert [each.key[0] for each in by_day] == [None, "a", "b", "c"]
    assert sorted([row("2", 1), row("1", 0)], key=order(("day",), ("day",)))[0].key == ("1",)


@given(
    st.lists(
        st.tuples(st.none() | st.integers(0, 100), st.integers(1, 5)), min_size=1, max_size=20
    ),
    st.integers(1, 20),
)
def test_top_rows_and_the_rest_add_up_to_all(costs, top):
    rows = [row(str(place), cost, count) for place, (cost, count) in enumerate(costs)]
    whole = sum((each.figures for each in rows), Figures())
    assert sum((each.figures for each in top_of(rows, top)), Figures()) == whole


def test_the_top_rows_are_those_that_cost_most_in_their_own_order():
    costs = {"1st": 5, "2nd": 9, "3rd": None, "4th": 7}
    rows = list(itertools.starmap(row, costs.items()))
    assert [row.key for row in top_of(rows, 2)] == [("2nd",), ("4th",), (None,)]
    assert top_of(rows, 2)[-1].merged == 2
    assert top_of(rows, 2)[-1].figures == Figures(requests=2, cost_picousd=5)
    assert top_of(rows, 4) == rows


@for_each(
    "counts, expected",
    [
        ({}, (None, None)),
        ({7: 1}, (7, 7)),
        ({1: 1, 2: 1}, (1, 2)),
        ({10: 1, 9: 1}, (9, 10)),
        # 1 … 20: the tenth and the nineteenth
        (dict.fromkeys(range(1, 21), 1), (10, 19)),
        ({5: 94, 9: 6}, (5, 9)),
        ({5: 95, 9: 5}, (5, 5)),
    ],
)
def test_percentiles_by_nearest_rank(counts, expected):
    assert percentiles(counts) == expected


@given(st.lists(st.lists(st.integers(0, 50), max_size=100), max_size=5))
def test_percentiles_of_added_histograms_are_those_of_the_times(parts):
    """Written as single times or as a histogram, in one text or in several."""
    texts = [
        " ".join(map(str, part)) if place % 2 else histogram_text(Counter(part))
        for place, part in enumerate(parts)
    ]
    added: Counter[int] = sum(map(histogram, texts), Counter())
    assert added == histogram(" ".join(text for text in texts if text))
    values = sorted(time for part in parts for time in part)
    places = [math.ceil(len(values) * percent / 100) - 1 for percent in (50, 95)]
    assert percentiles(added) == tuple(values[at] if values else None for at in places)


def test_the_rest_is_one_row():
    rows = [row("a", 5), row("b", 3), row("c", None)]
    assert top_of(rows, 3) == rows
    first, rest = top_of(rows, 1)
    assert first == rows[0]
    assert (rest.merged, rest.key, rest.figures) == (
        2,
        (None,),
        Figures(requests=2, cost_picousd=3),
    )


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
