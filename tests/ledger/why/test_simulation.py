"""What a cache would have served, by documented rules; and what fills the input."""

import random
from dataclasses import replace
from typing import Any

import pytest

from ledger.model.segments import Kind, Part, Segment, Segments
from ledger.why import simulation
from ledger.why.context import PARTS, Context
from ledger.why.simulation import Breakpoints, Cached, Simulation
from tests.ledger.why.sessions import BREAKS, PROVIDERS, Session


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_the_recorded_cached_tokens_are_predicted(provider):
    recorded = predicted = written = predicted_written = 0
    for seed in range(60):
        session = Session(seed, provider, turns=8)
        cache = Simulation(session.model, Breakpoints.AS_SENT)
        broken = BREAKS[seed % len(BREAKS)]
        for turn in range(session.turns):
            if turn == 4 and broken.do.__name__ not in ("lost", "model"):
                broken.do(session, seed % 7)
            asked = session.ask()
            found = cache.ask(asked)
            recorded += asked.read_tokens
            predicted += found.read
            written += asked.write_tokens
            predicted_written += found.write
    assert predicted == pytest.approx(recorded, rel=0.05)
    if provider.breakpoint:
        assert predicted_written == pytest.approx(written, rel=0.05)


def test_caching_can_be_on_or_off():
    session = Session(1, PROVIDERS["openai"])
    asked = [session.ask() for _ in range(4)]
    off, sent, on = (
        Simulation("claude-sonnet-4-5", each)
        for each in (Breakpoints.OFF, Breakpoints.AS_SENT, Breakpoints.ON)
    )
    assert [off.ask(each) for each in asked] == [Cached()] * 4
    assert [sent.ask(each) for each in asked] == [Cached()] * 4
    found = [on.ask(each) for each in asked]
    assert [each.read for each in found] == [0, *(each.input_tokens for each in asked[:3])]
    assert [each.read + each.write for each in found] == [each.input_tokens for each in asked]


def test_a_lifetime_of_an_hour_is_written_apart():
    session = Session(1, PROVIDERS["anthropic_hour"])
    cache = Simulation(session.model, Breakpoints.AS_SENT)
    asked = session.ask()
    assert cache.ask(asked) == Cached(0, asked.input_tokens, asked.input_tokens)


def test_keys_of_one_account_share_a_cache():
    session = Session(1, PROVIDERS["openai"])
    cache = Simulation(session.model, Breakpoints.AS_SENT)
    reads = []
    for key, account in (("a", "one"), ("b", "one"), ("b", None), ("c", None)):
        reads.append(cache.ask(replace(session.ask(), key=key, account=account)).read > 0)
    assert reads == [False, True, True, False]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(simulation, "ENTRIES_MAX", 10)
    session = Session(1, PROVIDERS["openai"])
    cache = Simulation(session.model, Breakpoints.AS_SENT)
    for _ in range(12):
        cache.ask(session.ask())
    assert len(cache._entries) <= 10
    assert len(cache._tokens) <= 10


def test_a_short_prompt_is_not_cached():
    session = Session(1, PROVIDERS["openai"])
    session.tools, session.system = [], []
    session.messages = [session.part(Kind.MESSAGES, "user", 400)]
    cache = Simulation(session.model, Breakpoints.AS_SENT)
    asked = session.ask()
    assert [cache.ask(asked), cache.ask(asked)] == [Cached(), Cached()]


CHANCE = random.Random(29)


def segment(kind: Kind, part: Part, name: str, size: int = 100) -> Segment:
    return Segment(kind, part, name, size, 0, CHANCE.randbytes(8))


CALL = segment(Kind.MESSAGES, Part.TOOL_CALL, "grep")
SEGMENTS = Segments(
    (
        segment(Kind.TOOLS, Part.TEXT, "grep", 300),
        segment(Kind.TOOLS, Part.TEXT, "bash", 500),
        segment(Kind.SYSTEM, Part.TEXT, "system", 1_000),
        segment(Kind.SYSTEM, Part.TEXT, "developer", 1_000),
        segment(Kind.MESSAGES, Part.JOINED, "", 7_777),
        segment(Kind.MESSAGES, Part.TEXT, "user"),
        CALL,
        segment(Kind.MESSAGES, Part.TOOL_RESULT, "user"),
        segment(Kind.MESSAGES, Part.IMAGE, "user"),
    )
)


def test_rows_add_up_and_unused_tools_are_named():
    context = Context()
    for tokens, cost in ((1_001, 77), (13, 5), (7, None)):
        context.add("s", "a", SEGMENTS, input_tokens=tokens, picousd=cost)
    rows: list[Any] = list(context.rows())
    assert context.requests() == 3
    assert sum(row["tokens"] for row in rows) == 1_021
    assert sum(row["list_value_usd"] for row in rows) * 10**12 == 82
    assert {row["part"] for row in rows} == set(PARTS)
    places = {(row["part"], row["name"]): (row["calls"], row["unused"]) for row in rows}
    assert places == {
        ("tools", "grep"): (1, False),
        ("tools", "bash"): (0, True),
        ("system", "system"): (None, None),
        ("messages", "older messages"): (None, None),
        ("messages", "user"): (None, None),
        ("messages", "assistant"): (None, None),
        ("tool_results", "user"): (None, None),
        ("images", "user"): (None, None),
    }
    assert rows[0]["name"] == "older messages"
    assert rows[0]["bytes"] == 3 * 7_777


def test_a_call_is_of_its_session_and_counts_once():
    context = Context()
    other = Segment(Kind.MESSAGES, Part.TOOL_CALL, "grep", 10, 0, b"another!")
    tool = segment(Kind.TOOLS, Part.TEXT, "grep")
    for session, calls in (("s", (CALL,)), ("s", (CALL, other)), ("t", ())):
        context.add(session, None, Segments((tool, *calls)), input_tokens=100, picousd=None)
    found = {row["session"]: row["calls"] for row in context.rows() if row["part"] == "tools"}
    assert found == {"s": 2, "t": 0}
    assert {row["list_value_usd"] for row in context.rows()} == {None}


def test_sizes_of_nothing_are_shared_too():
    context = Context()
    empty = Segments((segment(Kind.MESSAGES, Part.TEXT, "user", 0),))
    context.add(None, None, empty, input_tokens=3, picousd=9)
    assert [row["tokens"] for row in context.rows()] == [3]
