"""Agents by their User-Agent, and the sessions that their headers name."""

import pytest

from addon.metering.requests.purpose import AGENTS, NO_AGENT, AgentFacts, agent_of


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("claude-cli/2.0.31 (external, cli)", "claude-code"),
        ("codex_cli_rs/0.140.0 (Debian 12; x86_64)", "codex"),
        ("GeminiCLI/0.21.0/gemini-2.5-pro (linux; x64)", "gemini-cli"),
        ("opencode/1.0.55 ai-sdk/provider-utils/3.0", "opencode"),
        ("OpenAI/Python 2.7.0", None),
        ("", None),
    ],
)
def test_the_agent(user_agent, name):
    assert agent_of({"user-agent": user_agent}).agent == name


def test_the_first_header_that_says_something():
    headers = {"user-agent": "codex_cli_rs/1", "session_id": "", "conversation_id": "c1"}
    assert agent_of(headers).session_id == "c1"
    assert agent_of(headers | {"session_id": "s1"}).session_id == "s1"


def test_a_subagent():
    headers = {
        "user-agent": "opencode/1",
        "x-session-affinity": "s2",
        "x-parent-session-id": "s1",
    }
    assert agent_of(headers) == AgentFacts(
        agent="opencode", session_id="s2", parent_session_id="s1"
    )


def test_a_subagent_of_claude_code_is_a_session_within_the_session():
    headers = {"user-agent": "claude-cli/2", "x-claude-code-session-id": "s1"}
    assert agent_of(headers).parent_session_id is None
    found = agent_of(headers | {"x-claude-code-agent-id": "a1"})
    assert (found.session_id, found.parent_session_id) == ("s1/a1", "s1")


def test_headers_of_an_agent_mean_nothing_for_others():
    assert agent_of({"user-agent": "curl/8", "session_id": "s1"}) is NO_AGENT


def test_names_are_given_once():
    names = [agent.name for agent in AGENTS]
    assert len(names) == len(set(names))
