"""What is simulated is what was recorded, and caches can be thought on and off."""

from dataclasses import replace

import pytest

from ledger.model.segments import Kind
from ledger.why import simulation
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
