"""Codex's logs: each answer once, though its event may stand twice."""

import pytest

from addon.agent_logs import codex
from addon.agent_logs.call import booked
from tests.addon.agent_logs.logs import SESSION, codex_lines
from tests.addon.telemetry.made import NOON


def meta(**more):
    lines = codex_lines()
    lines[0]["payload"] |= more
    return list(codex.calls(lines))


def test_each_answer_once():
    first, second = meta()
    assert [call.number for call in (first, second)] == [1, 2]
    assert (first.session_id, first.project, first.git_branch) == (SESSION, "search", "feature")
    assert (first.model, first.user_agent) == ("gpt-5-codex", "codex_cli_rs/0.140.0")
    assert (first.tool_calls, second.tool_calls) == (1, 0)
    _, reading = booked(first, now=NOON, capture="f", tags={})
    usage = reading.usage
    assert (usage.input_tokens, usage.cache_read_tokens) == (1_000, 800)
    assert (usage.output_tokens, usage.reasoning_tokens) == (50, 20)


@pytest.mark.parametrize(
    ("more", "parent"),
    [
        ({"forked_from_id": "p1"}, "p1"),
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p2"}}}}, "p2"),
        ({"source": {"subagent": "review"}}, None),
        ({"source": "cli"}, None),
    ],
)
def test_the_session_that_started_this_one(more, parent):
    assert meta(**more)[0].parent_session_id == parent


def test_what_the_log_does_not_tell():
    (call, _) = meta(git=None, originator=None, cwd=None)
    assert (call.git_branch, call.user_agent, call.project) == (None, None, None)
    assert meta(cli_version=None)[0].user_agent == "codex_cli_rs"
    assert meta(id=None) == []
    assert list(codex.calls([{"type": "session_meta", "payload": 1}])) == []


def test_a_usage_without_details():
    lines = codex_lines()
    for line in lines:
        if line["type"] == "event_msg" and line["payload"]["info"]:
            last = line["payload"]["info"]["last_token_usage"]
            last.pop("cached_input_tokens", None)
            last.pop("reasoning_output_tokens", None)
    call = next(codex.calls(lines))
    assert set(call.usage) == {"input_tokens", "output_tokens", "total_tokens"}


@pytest.mark.parametrize(
    ("limits", "stated"),
    [
        (
            {
                "limit_id": "codex",
                "primary": {"used_percent": 1.5, "window_minutes": 300, "resets_at": 1793000000},
                "secondary": {"used_percent": 40, "window_minutes": 10080, "resets_in_seconds": 60},
            },
            {"5h": 15_000, "7d": 400_000},
        ),
        (
            {"limit_id": "codex_spark", "primary": {"used_percent": 2, "window_minutes": 300}},
            {"5h spark": 20_000},
        ),
        ({"primary": None, "secondary": 7}, {}),
        ({"primary": {"used_percent": "many", "window_minutes": -1}}, {}),
        ("none", {}),
        (None, {}),
    ],
)
def test_what_stood_of_limits_beside_the_usage(limits, stated):
    lines = codex_lines()
    for line in lines:
        if line["type"] == "event_msg":
            line["payload"]["rate_limits"] = limits
    exchange, _ = booked(next(codex.calls(lines)), now=NOON, capture="f", tags={})
    assert {each.window: each.used_ppm for each in exchange.quotas} == stated
