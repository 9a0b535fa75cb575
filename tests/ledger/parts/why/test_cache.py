"""Each break that is put into a session is named, and an unbroken session has none; what a cache would
have served, by documented rules; and what fills the input."""

import random
from dataclasses import replace
from typing import Any

import pytest

from ledger.model.segments import DAY_ASKED, HOUR_ASKED, Kind, Segment, Segments, SegmentType
from ledger.parts.why import cache
from ledger.parts.why.cache import Judge, Reason, Verdict
from ledger.parts.why.caches import CACHES_FILE, cache_of, table
from ledger.parts.why.context import Context
from tests.ledger.parts.why.sessions import (
    BREAKS,
    MINUTE,
    PROVIDERS,
    Break,
    Session,
    changed,
    expired,
    lost,
    model,
    organization,
)
from tests.ledger.written import NOON
from tests.named import for_each

SESSIONS = pytest.mark.parametrize("count", [256, pytest.param(1_000, marks=pytest.mark.nightly)])
"""By default two of each provider and break."""


def verdicts(
    session: Session, broken: Break | None = None, turn: int = 3, at: int = 0
) -> list[Verdict]:
    judge, found = Judge(), []
    for number in range(session.turns):
        if broken is not None and number == turn:
            broken.do(session, at)
        found.append(judge.judge(session.ask()))
    return found


@SESSIONS
def test_each_break_is_named(count):
    """Every kind of break, with every provider, in sessions of chance."""
    cases = [
        (provider, broken)
        for provider in PROVIDERS.values()
        for broken in BREAKS
        if provider.breakpoint or not broken.marked_only
    ]
    wrong = []
    for seed in range(count):
        provider, broken = cases[seed % len(cases)]
        at = seed % 7
        session = Session(seed, provider)
        found = verdicts(session, broken, at=at)
        one = found[3]
        expected = [Reason.FIRST, Reason.HIT, Reason.HIT, broken.reason]
        expected += [broken.reason if broken.stays else Reason.HIT] * 2
        new = one.asked.input_tokens - one.asked.read_tokens
        is_right = [each.reason for each in found] == expected and 0 < one.lost_tokens <= new
        is_right = is_right and (one.how, one.kind) == (broken.how, broken.kind)
        if is_right and broken.kind == "tools":
            name = "new" if broken.how == "added" else f"tool{at}"
            is_right = (one.name, one.segment) == (name, f"tools[{at}] {name}")
        if not is_right:
            wrong.append((seed, broken.do.__name__, provider.model, found))
    assert len(wrong) <= count // 100, wrong[:3]


@SESSIONS
def test_an_unbroken_session_has_no_break(count):
    for seed in range(count):
        provider = list(PROVIDERS.values())[seed % len(PROVIDERS)]
        found = verdicts(Session(seed, provider))
        assert [each.reason for each in found] == [Reason.FIRST] + [Reason.HIT] * 5, seed


def enlarged_system(s: Session) -> list[Segment]:
    return s.system


def enlarged_tools(s: Session) -> list[Segment]:
    return s.tools


def enlarged_messages(s: Session) -> list[Segment]:
    return s.messages


@for_each("provider", PROVIDERS.values(), ids=PROVIDERS)
@for_each("parts_of", [enlarged_system, enlarged_tools, enlarged_messages])
def test_a_changed_segment_that_is_most_of_the_request_is_named(parts_of, provider):
    """At any turn, also at each; and what goes on after it is no break."""
    for seed in range(20):
        session, judge = Session(seed, provider), Judge()
        parts = parts_of(session)
        at = seed % len(parts)
        one = parts[at]
        turns = [seed % 3 + 1] if seed % 2 else [1, 2, 3]
        # Of a conversation that has no answer yet, another first message is another question.
        turns = [turn for turn in turns if turn > 1 or parts is not session.messages]
        size = 400_000 + 1_000 * seed
        parts[at] = session.part(one.kind, one.name, size)
        for turn in range(5):
            if turn in turns:
                parts[at] = session.part(one.kind, one.name, size + session.chance.randint(-99, 99))
            found = judge.judge(session.ask())
            if turn in turns:
                assert (found.reason, found.how) == (Reason.CHANGED, "changed"), (seed, turn, found)
                assert found.kind == cache._KIND_WORDS[one.kind]
                assert found.lost_tokens > 0
            else:
                assert found.reason is (Reason.HIT if turn else Reason.FIRST), (seed, turn, found)


@for_each("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_another_conversation_with_a_large_prompt_of_its_own_breaks_at_its_first_request_alone(
    provider,
):
    """Sessions at a time under one name, which begin with the same message: a first request is held
    against the last one of the session, each other against the one that it continues."""
    for seed in range(20):
        judge = Judge()
        sessions = [Session(100 * seed + n, provider) for n in range(3)]
        hello = sessions[0].messages[0]
        for session in sessions:
            session.system[0] = session.part(Kind.SYSTEM, "system", 300_000)
            session.messages[0] = hello
        for turn in range(4):
            for session in sessions:
                found = judge.judge(session.ask())
                if turn:
                    assert found.reason is Reason.HIT, (seed, turn, found)
                elif session is not sessions[0]:
                    assert found.reason is Reason.CHANGED, (seed, turn, found)


@for_each("provider", PROVIDERS.values(), ids=PROVIDERS)
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


def test_what_the_provider_says_counts_where_nothing_else_shows_it():
    """Nothing was recorded before, or the segments are the same."""
    session, judge = Session(1, PROVIDERS["anthropic"]), Judge()
    one = judge.judge(replace(session.ask(), diagnosis="tools_changed"))
    assert (one.reason, one.kind, one.lost_tokens) == (Reason.CHANGED, "tools", 0)
    before = session.ask()
    judge.judge(before)
    session.cached.clear()
    for word, kind in (("input_changed", None), ("messages_changed", "messages")):
        session.cached.clear()
        one = judge.judge(replace(session.ask(), diagnosis=word))
        assert (one.reason, one.kind, one.segment) == (Reason.CHANGED, kind, None)
        assert one.lost_tokens >= before.input_tokens


def anew(s: Session) -> None:
    s.messages = [s.part(Kind.MESSAGES, "user") for _ in s.messages[:3]]


def task(s: Session) -> None:
    anew(s)
    s.tools, s.system = s.tools[:6], [s.system[0], s.part(Kind.SYSTEM, "system")]


def rewound(s: Session) -> None:
    s.messages[-2:] = [s.part(Kind.MESSAGES, "user")]


def back(s: Session) -> None:
    del s.messages[-2:]


@for_each("provider", PROVIDERS.values(), ids=PROVIDERS)
@for_each("other", [anew, task, rewound, back])
def test_another_question_from_a_shared_beginning_is_no_break(other, provider):
    """A prompt with another document, a subagent, a conversation after its compaction, a question
    that is asked again; and the first conversation goes on."""
    allowed = {Reason.HIT, Reason.FIRST, Reason.TOO_SHORT}
    for seed in range(20):
        session, judge = Session(seed, provider), Judge()
        for _ in range(3):
            judge.judge(session.ask())
        tools, system, messages = session.tools, session.system, session.messages
        for _ in range(3):
            session.tools, session.system, session.messages = tools, system, [*messages]
            other(session)
            session.at -= 2 * MINUTE  # other sessions run at the same time
            assert judge.judge(session.ask()).reason in allowed
            assert judge.judge(session.ask()).reason is Reason.HIT
        session.tools, session.system, session.messages = tools, system, messages
        assert judge.judge(session.ask()).reason is Reason.HIT


@for_each(
    "broken, reason",
    [
        (expired, Reason.EXPIRED),
        (model, Reason.MODEL),
        (organization, Reason.ACCOUNT),
        (lost, Reason.UNEXPLAINED),
        (None, Reason.HIT),
    ],
)
def test_another_question_reads_the_shared_beginning_or_misses_it(broken, reason):
    session, judge = Session(1, PROVIDERS["openai"]), Judge()
    judge.judge(session.ask())
    anew(session)
    if broken is not None:
        broken(session, 0)
    one = judge.judge(session.ask())
    head = sum(each.size for each in (*session.tools, *session.system)) // 4
    assert one.reason is reason
    assert one.lost_tokens == (0 if reason is Reason.HIT else pytest.approx(head, abs=128))


def test_a_shared_beginning_is_too_short_or_has_no_breakpoint_in_reach():
    session, judge = Session(1, PROVIDERS["openai"]), Judge()
    session.tools, session.system = [], [session.part(Kind.SYSTEM, "system", 3_500)]
    session.messages = [session.part(Kind.MESSAGES, "user", 3_000)]
    judge.judge(session.ask())
    anew(session)
    session.messages = [session.part(Kind.MESSAGES, "user", 3_000)]
    assert judge.judge(session.ask()).reason is Reason.TOO_SHORT
    session, judge = Session(1, PROVIDERS["anthropic"]), Judge()
    marked = session.ask()
    parts = [*marked.segments.parts]
    parts[len(session.tools)] = parts[len(session.tools)]._replace(breakpoint=1)
    judge.judge(replace(marked, segments=Segments(tuple(parts))))
    session.messages = [session.part(Kind.MESSAGES, "user") for _ in range(30)]
    session.cached.clear()
    assert judge.judge(session.ask()).reason is Reason.NO_BREAKPOINT


def test_a_prompt_below_the_minimum_is_too_short():
    session = Session(1, PROVIDERS["openai"], turns=2)
    session.tools, session.system = [], []
    session.messages = [session.part(Kind.MESSAGES, "user", 400)]
    judge = Judge()
    first = judge.judge(session.ask())
    session.messages = [session.messages[0], session.part(Kind.MESSAGES, "user", 400)]
    assert [first.reason, judge.judge(session.ask()).reason] == [Reason.FIRST, Reason.TOO_SHORT]


@for_each("name", ["openai", "anthropic"])
def test_a_whole_long_session_has_no_break_where_older_messages_are_joined(name):
    found = verdicts(Session(1, PROVIDERS[name], turns=200))
    assert {each.reason for each in found[1:]} == {Reason.HIT}


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(cache, "REMEMBERED_SEGMENTS_MAX", 200)
    monkeypatch.setattr(cache, "REQUESTS_MAX", 5)
    judge = Judge()
    for seed in range(6):
        session = Session(seed, PROVIDERS["openai"])
        for _ in range(40 if seed == 5 else 4):
            judge.judge(replace(session.ask(), session=f"s{seed}"))
            assert judge._segments == sum(each.segments for each in judge._sessions.values()) <= 200
            for one in judge._sessions.values():
                assert one.segments == sum(len(each.prefixes) for each in one._requests.values())
                assert len(one._requests) <= 5
    again = session.ask()
    for _ in range(9):
        judge.judge(again)
    assert judge._segments <= 200


def test_a_conversation_goes_on_beside_many_others():
    """Without a session, and with one that all share; and what breaks it is seen, if it is among
    the latest."""
    for name in (None, "s"):
        sessions, judge = [Session(1, PROVIDERS["openai"]) for _ in range(200)], Judge()
        for seed, session in enumerate(sessions):
            session.chance.seed(seed)
            session.messages = [session.part(Kind.MESSAGES, "user")]
        for turn in range(4):
            for session in sessions:
                verdict = judge.judge(replace(session.ask(), session=name))
                assert turn == 0 or verdict.reason is Reason.HIT
        changed(sessions[-1], 3)
        verdict = judge.judge(replace(sessions[-1].ask(), session=name))
        assert (verdict.reason, verdict.segment) == (Reason.CHANGED, "tools[3] tool3")


@pytest.mark.large
def test_a_thousand_sessions_at_a_time_are_remembered():
    sessions, judge = [Session(seed, PROVIDERS["openai"]) for seed in range(1_000)], Judge()
    for turn in range(5):
        for at, session in enumerate(sessions):
            verdict = judge.judge(replace(session.ask(), session=f"s{at}"))
            assert verdict.reason is (Reason.HIT if turn else Reason.FIRST)


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
    assert not cache_of("anthropic.messages", "deepseek-chat", NOON).breakpoints
    assert cache_of("bedrock.converse", "us.amazon.nova-pro-v1:0", NOON).breakpoints


@for_each(
    "model, asked, minutes",
    [
        ("claude-sonnet-4-5", 0, 5),
        ("claude-sonnet-4-5", 1, 5),
        ("claude-sonnet-4-5", HOUR_ASKED, 60),
        ("gpt-5.1", 0, 60),
        ("gpt-5.1", HOUR_ASKED, 60),
        ("gpt-5.1", DAY_ASKED, 24 * 60),
        ("gpt-5.5", 0, 24 * 60),
    ],
)
def test_the_lifetime_that_applies(model, asked, minutes):
    assert cache_of("openai.chat", model, NOON).lifetime(asked) == minutes * MINUTE


def test_a_day_is_no_breakpoint():
    found = Segments((Session(1, PROVIDERS["openai"]).tools[0],), DAY_ASKED)
    assert (cache.marks(found), found.lifetime) == ([], DAY_ASKED)


CHANCE = random.Random(29)


def segment(kind: Kind, part: SegmentType, name: str, size: int = 100) -> Segment:
    return Segment(kind, part, name, size, 0, CHANCE.randbytes(8))


CALL = segment(Kind.MESSAGES, SegmentType.TOOL_CALL, "grep")
SEGMENTS = Segments(
    (
        segment(Kind.TOOLS, SegmentType.TEXT, "grep", 300),
        segment(Kind.TOOLS, SegmentType.TEXT, "bash", 500),
        segment(Kind.SYSTEM, SegmentType.TEXT, "system", 1_000),
        segment(Kind.SYSTEM, SegmentType.TEXT, "developer", 1_000),
        segment(Kind.MESSAGES, SegmentType.JOINED, "", 7_777),
        segment(Kind.MESSAGES, SegmentType.TEXT, "user"),
        CALL,
        segment(Kind.MESSAGES, SegmentType.TOOL_RESULT, "user"),
        segment(Kind.MESSAGES, SegmentType.IMAGE, "user"),
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
    assert {row["part"] for row in rows} == {
        "system",
        "tools",
        "messages",
        "tool_results",
        "images",
    }
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
    other = Segment(Kind.MESSAGES, SegmentType.TOOL_CALL, "grep", 10, 0, b"another!")
    tool = segment(Kind.TOOLS, SegmentType.TEXT, "grep")
    for session, calls in (("s", (CALL,)), ("s", (CALL, other)), ("t", ())):
        context.add(session, None, Segments((tool, *calls)), input_tokens=100, picousd=None)
    found = {row["session"]: row["calls"] for row in context.rows() if row["part"] == "tools"}
    assert found == {"s": 2, "t": 0}
    assert {row["list_value_usd"] for row in context.rows()} == {None}


def test_sizes_of_nothing_are_shared_too():
    context = Context()
    empty = Segments((segment(Kind.MESSAGES, SegmentType.TEXT, "user", 0),))
    context.add(None, None, empty, input_tokens=3, picousd=9)
    assert [row["tokens"] for row in context.rows()] == [3]
