"""Rows of agents' logs, and what was recorded of the same answers: merged, each counts once."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ledger.maintenance import checking, imported
from ledger.maintenance.known import BookedAnswer
from ledger.maintenance.same_answer import APART_MAX, STATED, stated_of
from ledger.model.exchange import Source
from ledger.model.usage import Usage
from ledger.parts.sync import merging, sessions
from tests.ledger.parts.sync.test_merging import every_way, two  # noqa: F401
from tests.ledger.written import NOON, on, priced, put, rows, settled, whole
from tests.named import for_each

SESSION: dict[str, Any] = {"session_id": "s", "agent": "an-agent"}


@pytest.fixture(autouse=True)
def prices(monkeypatch):
    monkeypatch.setattr(sessions, "priced", priced)


def logged(name, **more):
    return settled(name, source=Source.IMPORT, **{**SESSION, **more})


@every_way
def test_what_was_recorded_counts_whichever_comes_first(two):  # noqa: F811
    source, target = two
    put(source, whole(logged("log-1")), whole(logged("log-2", at=NOON + timedelta(hours=1))))
    put(
        target,
        whole(settled("live-1", at=NOON + timedelta(minutes=5), **SESSION)),
        whole(settled("live-2", at=NOON + timedelta(hours=3), **SESSION)),
    )
    counted = "SELECT id FROM requests ORDER BY 1"
    for _ in range(2):
        merging.sync(source, target)
        assert rows(target, counted) == [("live-1",), ("live-2",), ("log-2",)]
        merging.sync(target, source)
        assert rows(source, counted) == [("live-1",), ("live-2",), ("log-2",)]
    with on(target) as engine:
        assert not [found for found in checking.verify(engine) if found.count]


@every_way
def test_what_was_recorded_may_have_taken_long(two):  # noqa: F811
    source, target = two
    put(source, whole(logged("log-1")))
    put(target, whole(settled("live-1", at=NOON - timedelta(minutes=50), seconds=3_000, **SESSION)))
    merging.sync(source, target)
    assert rows(target, "SELECT id FROM requests") == [("live-1",)]


@every_way
def test_the_rest_of_a_sum_shrinks(two):  # noqa: F811
    """By what its session has, and by what the sessions that it started have; a model that no sum
    names is the first one's."""
    source, target = two
    rest = Usage(input_tokens=300, cache_read_tokens=None, output_tokens=70)
    stated = f'{{"{STATED}": [300, 0, null, 90]}}'
    put(target, whole(logged("log-1"), usage=rest, usage_json=stated))
    put(
        source,
        whole(settled("live-1", session_id="an-agent:s")),
        whole(settled("live-2", session_id="t", parent_session_id="s", response_model="alias")),
        whole(settled("live-3", session_id="s", agent="another")),
    )
    left = "SELECT input_tokens, output_tokens FROM requests WHERE id = 'log-1'"
    for _ in range(2):
        merging.sync(source, target)
        assert rows(target, left) == [(100, 50)]
    assert rows(target, "SELECT count(*) FROM readings") == [(5,)]


@every_way
def test_an_alias_is_of_the_greatest_sum_without_answers(two):  # noqa: F811
    """Else a small sum would take it, and the great one would be booked beside it."""
    source, target = two
    for name, model, count in (("log-1", "small", 9), ("log-2", "great", 300)):
        exchange = replace(logged(name), request_model=model, response_model=model)
        stated = f'{{"{STATED}": [{count}, null, null, {count}]}}'
        rest = Usage(input_tokens=count, output_tokens=count)
        put(target, whole(exchange, usage=rest, usage_json=stated))
    alias = replace(settled("live-1", **SESSION), request_model="alias", response_model="alias")
    put(source, whole(alias, usage=Usage(input_tokens=280, output_tokens=290)))
    left = "SELECT id, input_tokens, output_tokens FROM requests WHERE source = 'import' ORDER BY 1"
    for _ in range(2):
        merging.sync(source, target)
        assert rows(target, left) == [("log-1", 9, 9), ("log-2", 20, 10)]


@every_way
def test_the_parts_of_a_rest_stay_within_it(two):  # noqa: F811
    """Where the answers of the session state fewer parts than its sum."""
    source, target = two
    rest = Usage(
        input_tokens=300,
        cache_read_tokens=150,
        cache_write_tokens=140,
        cache_write_1h_tokens=140,
        output_tokens=70,
        reasoning_tokens=60,
        reported_cost_picousd=5,
    )
    stated = f'{{"{STATED}": [300, 150, 140, 70]}}'
    put(target, whole(logged("log-1"), usage=rest, usage_json=stated))
    figures = Usage(input_tokens=100, output_tokens=30)
    put(source, whole(settled("live-1", **SESSION), usage=figures))
    left = """SELECT input_tokens, cache_read_tokens, cache_write_tokens, cache_write_1h_tokens,
        output_tokens, reasoning_tokens, reported_cost_picousd FROM requests WHERE id = 'log-1'"""
    for _ in range(2):
        merging.sync(source, target)
        assert rows(target, left) == [(200, 150, 50, 50, 40, 40, None)]
    with on(target) as engine:
        assert not [found for found in checking.verify(engine) if found.count]


def test_answers_of_days_are_looked_for_by_hours():
    """Else all of them would be named in one question of the database."""
    facts: dict[str, Any] = dict.fromkeys(BookedAnswer.__dataclass_fields__)
    moments = [NOON + timedelta(minutes=15 * number) for number in range(200)]
    answers = [
        BookedAnswer(**{**facts, "opened_at": moment, "settled_at": moment}) for moment in moments
    ]
    spans = imported._spans(answers)
    assert 8 < len(spans) < 12
    for moment in moments:
        around = moment - APART_MAX, moment + APART_MAX
        assert any(begin <= around[0] and around[1] <= end for begin, end in spans)


@for_each(
    "usage_json",
    [None, f'["{STATED}"]', f'{{"{STATED}": 1}}', f'{{"{STATED}": [1]}}', '{"x": 1}'],
)
def test_what_states_no_sum(usage_json):
    facts: dict[str, Any] = dict.fromkeys(BookedAnswer.__dataclass_fields__)
    answer = BookedAnswer(**{**facts, "is_import": True, "usage_json": usage_json})
    assert stated_of(answer) is None
