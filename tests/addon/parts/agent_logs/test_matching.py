"""What was recorded on the wire is found again in a log, and nothing else is."""

from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.booking import SPANS_MAX, spans_of
from addon.parts.agent_logs.files import SkippedCounts, read
from addon.parts.agent_logs.matching import KnownAnswers
from addon.parts.agent_logs.reader import calls_of
from ledger.maintenance.known import BookedAnswer
from tests.addon.parts.agent_logs.logs import LINES, PATHS, SESSION, write_home
from tests.addon.parts.telemetry.made import NOON
from tests.named import for_each


def recorded(**facts: Any) -> BookedAnswer:
    stated: dict[str, Any] = {
        "id": "live-1",
        "is_import": False,
        "agent": None,
        "response_id": "resp_1",
        "session_id": None,
        "opened_at": NOON,
        "settled_at": NOON + timedelta(seconds=9),
        "usage_source": "reported",
        "cache_write_tokens": None,
    }
    return BookedAnswer(**(stated | facts))


def logged(tmp_path, agent):
    write_home(tmp_path, agent)
    path = tmp_path / PATHS[agent]
    call, *_ = calls_of(AGENTS[agent], read(AGENTS[agent], path, SkippedCounts()), path)
    return call


def figures_of(call) -> dict[str, Any]:
    names = ("input_tokens", "output_tokens", "cache_read_tokens")
    return {name: getattr(call.usage, name) for name in names}


GEMINI = {"input_tokens": 900, "cache_read_tokens": 500, "output_tokens": 100}
QWEN = {"input_tokens": 900, "cache_read_tokens": 500, "output_tokens": 40}
COPILOT = {"input_tokens": 21_343, "cache_read_tokens": None, "output_tokens": 100}


@for_each(
    "agent, facts, is_same",
    [
        ("gemini-cli", {**GEMINI, "agent": "gemini-cli"}, True),
        ("gemini-cli", {**GEMINI, "agent": "qwen-code"}, False),
        ("gemini-cli", {**GEMINI, "agent": None}, False),
        ("gemini-cli", {**GEMINI, "agent": "gemini-cli", "output_tokens": 101}, False),
        ("gemini-cli", {**GEMINI, "agent": "gemini-cli", "session_id": "another"}, False),
        ("copilot", {**COPILOT, "agent": "copilot"}, True),
        ("copilot", {**COPILOT, "agent": "pi"}, False),
        ("qwen-code", {**QWEN, "session_id": f"qwen-code:{SESSION}"}, True),
        ("qwen-code", {**QWEN, "session_id": f"pi:{SESSION}"}, False),
    ],
)
def test_a_recorded_request_without_a_session_or_with_another_form_of_it(
    tmp_path, agent, facts, is_same
):
    call = logged(tmp_path, agent)
    known = KnownAnswers([recorded(**facts)])
    assert (known.find(call) is not None) == is_same
    assert known.find(call) is None  # a recorded request is one answer


CLINE = {"input_tokens": 1_001, "cache_read_tokens": 200, "output_tokens": 11}


@for_each(
    "facts, is_same",
    [
        ({"model": "gpt-4o"}, True),
        ({"model": "gpt-4"}, False),
        ({}, False),
        ({"model": "gpt-4o", "agent": "pi"}, False),
        ({"model": "gpt-4o", "session_id": "another"}, False),
        ({"model": "gpt-4o", "opened_at": NOON - timedelta(minutes=5)}, True),
        ({"model": "gpt-4o", "settled_at": NOON - timedelta(minutes=2)}, False),
        ({"model": "gpt-4o", "output_tokens": 12}, False),
    ],
)
def test_a_recorded_request_whose_wire_told_neither_session_nor_agent(tmp_path, facts, is_same):
    """As of Cline: model, figures and a short time decide."""
    call = logged(tmp_path, "cline")
    times = {"opened_at": call.at, "settled_at": call.at}
    times |= {name: call.at + (facts[name] - NOON) for name in times if name in facts}
    known = KnownAnswers([recorded(**{**CLINE, **facts, **times})])
    assert (known.find(call) is not None) == is_same


@for_each(
    "facts, is_same",
    [
        ({"agent": "opencode", "session_id": "the-first"}, True),
        ({"agent": "opencode"}, True),
        ({"model": "claude-opus-4-8"}, True),
        ({"model": "claude-opus-4-7"}, False),
        ({"agent": "kilo", "session_id": "the-first"}, False),
        ({"agent": "opencode", "session_id": "the-first", "output_tokens": 99}, False),
        ({"agent": "opencode", "session_id": "the-first", "hours": 1}, False),
    ],
)
def test_what_a_fork_copied_of_a_recorded_request_is_that_request(tmp_path, facts, is_same):
    """Under a new id, in another session, whether the request itself was found before or not."""
    call = replace(logged(tmp_path, "opencode"), model="claude-opus-4-8")
    moment = call.at + timedelta(hours=facts.get("hours", 0))
    answer = recorded(
        **figures_of(call)
        | {"opened_at": moment, "settled_at": moment}
        | {name: value for name, value in facts.items() if name != "hours"}
    )
    known = KnownAnswers([answer])
    known.find(replace(call, session_id="the-first"))
    copy = replace(call, session_id="fork", key=("fork", "msg_9", ""))
    assert (known.find(copy) is not None) == is_same
    assert known.find(replace(copy, copies_renew_ids=False)) is None
    assert (known.find(replace(copy, session_id="fork-of-it")) is not None) == is_same


@for_each(
    "more, is_same", [({}, True), ({"output_tokens": 8}, False), ({"response_id": "m"}, False)]
)
def test_a_copy_that_was_stamped_anew_is_the_recorded_request(tmp_path, more, is_same):
    call = logged(tmp_path, "claude-code")
    facts = figures_of(call) | {"response_id": call.response_id} | more
    answer = recorded(**facts, opened_at=call.at - timedelta(days=1), settled_at=call.at)
    answer.settled_at = answer.opened_at
    assert (KnownAnswers([answer]).find(call) is not None) == is_same


def test_a_second_answer_like_it_in_its_session_is_no_copy(tmp_path):
    call = logged(tmp_path, "opencode")
    figures = figures_of(call)
    answer = recorded(**figures, agent="opencode", opened_at=call.at, settled_at=call.at)
    known = KnownAnswers([answer])
    assert known.find(call) is answer
    assert known.find(replace(call, key=(call.session_id, "msg_9", ""))) is None


def test_a_time_that_is_another_is_no_match(tmp_path):
    call = logged(tmp_path, "copilot")
    hours = timedelta(hours=2)
    answer = recorded(**COPILOT, agent="copilot", opened_at=NOON - hours, settled_at=NOON - hours)
    assert KnownAnswers([answer]).find(call) is None


def test_what_both_sides_lack_is_no_match():
    """No session, no response id, no figures."""
    (call,) = calls_of(
        AGENTS["pi"],
        [
            LINES["pi"][0],
            {**LINES["pi"][1], "message": {**LINES["pi"][1]["message"], "responseId": None}},
        ],
        PurePath("/x.jsonl"),
    )
    figures = {"input_tokens": 2_104, "cache_read_tokens": 2_000, "output_tokens": 7}
    for agent in (None, "copilot"):
        answer = recorded(**figures, agent=agent, response_id=None)
        assert KnownAnswers([answer]).find(call) is None


def test_recorded_requests_are_searched_where_answers_were_and_in_few_spans(tmp_path):
    first = logged(tmp_path, "gemini-cli")

    def spans(*days: int) -> list[tuple[datetime, datetime]]:
        moved = [first.at + timedelta(day) for day in days]
        return spans_of([replace(first, at=at, ended_at=at) for at in moved])

    before, behind = timedelta(minutes=70), timedelta(minutes=10)
    assert spans() == []
    assert spans(90, 0) == [
        (first.at + timedelta(day) - before, first.at + timedelta(day) + behind) for day in (0, 90)
    ]
    found = spans(*range(0, 1_000, 20))
    assert len(found) <= SPANS_MAX
    assert all(
        any(begin <= first.at + timedelta(day) <= end for begin, end in found)
        for day in range(0, 1_000, 20)
    )
