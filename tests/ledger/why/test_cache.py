"""Each break that is put into a session is named, and an unbroken session has none."""

from dataclasses import replace

import pytest

from ledger.model.segments import Kind
from ledger.why import cache
from ledger.why.cache import Judge, Reason, Verdict
from ledger.why.caches import CACHES_FILE, cache_of, table
from tests.ledger.why.sessions import BREAKS, PROVIDERS, Break, Session
from tests.ledger.written import NOON

SESSIONS = 1_000


def verdicts(
    session: Session, broken: Break | None = None, turn: int = 3, at: int = 0
) -> list[Verdict]:
    judge, found = Judge(), []
    for number in range(session.turns):
        if broken is not None and number == turn:
            broken.do(session, at)
        found.append(judge.judge(session.ask()))
    return found


def test_each_break_is_named():
    """Every kind of break, with every provider, in sessions of chance."""
    cases = [
        (provider, broken)
        for provider in PROVIDERS.values()
        for broken in BREAKS
        if provider.breakpoint or not broken.marked_only
    ]
    wrong = []
    for seed in range(SESSIONS):
        provider, broken = cases[seed % len(cases)]
        at = seed % 7
        session = Session(seed, provider)
        found = verdicts(session, broken, at=at)
        one = found[3]
        expected = [Reason.FIRST, Reason.HIT, Reason.HIT, broken.reason]
        expected += [broken.reason if broken.stays else Reason.HIT] * 2
        is_right = [each.reason for each in found] == expected and one.lost_tokens > 0
        is_right = is_right and (one.how, one.kind) == (broken.how, broken.kind)
        if is_right and broken.kind == "tools":
            name = "new" if broken.how == "added" else f"tool{at}"
            is_right = (one.name, one.segment) == (name, f"tools[{at}] {name}")
        if not is_right:
            wrong.append((seed, broken.do.__name__, provider.model, found))
    assert len(wrong) <= SESSIONS // 100, wrong[:3]


def test_an_unbroken_session_has_no_break():
    for seed in range(SESSIONS):
        provider = list(PROVIDERS.values())[seed % len(PROVIDERS)]
        found = verdicts(Session(seed, provider))
        assert [each.reason for each in found] == [Reason.FIRST] + [Reason.HIT] * 5, seed


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_another_key_of_one_organization_is_no_cause(provider):
    session = Session(1, provider)
    session.account = "one"
    another_key = next(each for each in BREAKS if each.do.__name__ == "account")
    found = verdicts(session, another_key)
    assert [each.reason for each in found[1:]] == [Reason.HIT] * 5


def test_another_organization_is_named():
    session, judge = Session(1, PROVIDERS["openai"]), Judge()
    session.account = "one"
    judge.judge(session.ask())
    session.account = "two"
    assert judge.judge(session.ask()).reason is Reason.ACCOUNT


def test_an_account_that_is_named_at_times_is_no_other():
    session, judge = Session(1, PROVIDERS["openai"]), Judge()
    for account in (None, "one", None, "one"):
        session.cached.clear()
        verdict = judge.judge(replace(session.ask(), account=account))
    assert verdict.reason is Reason.UNEXPLAINED


def test_what_the_provider_says_counts():
    for word, reason, kind in (
        ("tools_changed", Reason.CHANGED, "tools"),
        ("system_changed", Reason.CHANGED, "system"),
        ("messages_changed", Reason.CHANGED, "messages"),
        ("model_changed", Reason.MODEL, None),
        ("input_changed", Reason.CHANGED, "tools"),
        ("unavailable", Reason.CHANGED, "tools"),
        ("previous_message_not_found", Reason.CHANGED, "tools"),
    ):
        session, judge = Session(1, PROVIDERS["anthropic"]), Judge()
        judge.judge(session.ask())
        session.tools.pop(2)
        verdict = judge.judge(replace(session.ask(), diagnosis=word))
        assert (verdict.reason, verdict.kind) == (reason, kind)
        assert verdict.segment == ("tools[2] tool2" if kind == "tools" else None)


def test_a_prompt_below_the_minimum_is_too_short():
    session = Session(1, PROVIDERS["openai"], turns=2)
    session.tools, session.system = [], []
    session.messages = [session.part(Kind.MESSAGES, "user", 400)]
    judge = Judge()
    first = judge.judge(session.ask())
    session.messages = [session.messages[0], session.part(Kind.MESSAGES, "user", 400)]
    assert [first.reason, judge.judge(session.ask()).reason] == [Reason.FIRST, Reason.TOO_SHORT]


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_whole_long_session_has_no_break_where_older_messages_are_joined(name):
    found = verdicts(Session(1, PROVIDERS[name], turns=200))
    assert {each.reason for each in found[1:]} == {Reason.HIT}


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(cache, "REQUESTS_MAX", 10)
    judge = Judge()
    for seed in range(6):
        session = Session(seed, PROVIDERS["openai"])
        for _ in range(40 if seed == 5 else 4):
            judge.judge(replace(session.ask(), session=f"s{seed}"))
            assert judge._count == sum(map(len, judge._sessions.values())) <= 10


def test_every_row_of_the_caches_names_its_pages_and_its_day():
    for row in table():
        assert row.pages
        assert all(page.startswith("https://") for page in row.pages)
        assert row.read.year >= 2026
    assert table()[-1].models == ["*"]
    assert CACHES_FILE.is_file()


def test_the_row_of_a_cache_depends_on_model_format_and_day():
    assert cache_of("openai.chat", "anthropic/claude-haiku-4.5", NOON).tokens_min == 4096
    assert cache_of("anthropic.messages", "glm-4.6", NOON).breakpoints
    assert cache_of("google.generate", "gemini-2.5-pro", NOON).tokens_min == 2048
    before = NOON.replace(month=5)
    assert cache_of("google.generate", "models/gemini-2.5-pro", before).tokens_min == 4096
    assert cache_of("openai.chat", None, NOON).tokens_min == 1024
