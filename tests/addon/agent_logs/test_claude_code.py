"""Claude Code's logs: an answer counts once, with its last usage."""

from addon.agent_logs import claude_code
from addon.agent_logs.call import booked
from tests.addon.agent_logs.logs import SESSION, claude
from tests.addon.telemetry.made import NOON


def calls(*lines):
    return list(claude_code.calls(lines))


def test_one_answer():
    (call,) = calls({"type": "user", "message": {"id": "x"}}, claude())
    assert (call.response_id, call.session_id) == ("msg_1", SESSION)
    assert (call.project, call.git_branch, call.model) == (
        "search",
        "main",
        "claude-haiku-4-5-20251001",
    )
    assert (call.user_agent, call.service_tier, call.tool_calls) == (
        "claude-cli/2.0.31",
        "standard",
        0,
    )
    exchange, reading = booked(call, now=NOON, capture="f", tags={"team": "a"})
    usage = reading.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (
        2_104,
        2_000,
        100,
    )
    assert (usage.output_tokens, exchange.agent, exchange.source) == (7, "claude-code", "import")


def test_the_last_of_several_lines_stands_and_tools_are_counted_once():
    """ccusage/ccusage#888 (the first line stood) and #994 (every line was added)."""
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    found = calls(
        claude(output=1),
        claude(output=3, block=tool),
        claude("msg_2", 9),
        claude(output=250, block=tool),
    )
    assert [(call.response_id, call.usage["output_tokens"]) for call in found] == [
        ("msg_2", 9),
        ("msg_1", 250),
    ]
    assert [call.tool_calls for call in found] == [0, 1]


def test_a_subagent_is_a_session_of_its_own():
    (call,) = calls(claude(isSidechain=True, agentId="a1"))
    assert (call.session_id, call.parent_session_id) == (f"{SESSION}/a1", SESSION)
    (call,) = calls(claude(isSidechain=True))
    assert (call.session_id, call.parent_session_id) == (SESSION, SESSION)


def test_what_is_no_answer_of_a_model():
    assert calls(claude(message_more={"model": "<synthetic>"})) == []
    assert calls(claude(message_more={"usage": None})) == []
    assert calls(claude(message_more={"id": ""})) == []
    assert calls(claude(sessionId=None)) == []
    assert calls(claude(at="yesterday")) == []
    assert calls({"type": "assistant", "message": "text"}) == []
    (call,) = calls(claude(version=None, message_more={"content": "text"}))
    assert (call.user_agent, call.tool_calls) == (None, 0)


def test_many_interleaved_answers_are_bounded():
    lines = [claude(f"msg_{at}") for at in range(claude_code.OPEN_MAX + 10)]
    assert len(calls(*lines)) == len(lines)
