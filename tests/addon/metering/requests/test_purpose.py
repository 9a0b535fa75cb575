"""Which agents make requests, and what for. The bodies have the shapes of the agents' own, with other
words."""

import itertools
from typing import Any

import orjson
import pytest
from msgspec import structs

from addon.metering.opening import RunRules
from addon.metering.requests.messages import Body
from addon.metering.requests.purpose import (
    AGENTS,
    NO_AGENT,
    RULES,
    AgentFacts,
    Shape,
    agent_of,
    purpose_of,
    shape_of,
)
from tests.addon.metering.opened import REQUEST, opened

IDENTITY = {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude."}


def claude(system: str = "", last: str = "Mend the tests", **more: Any) -> dict[str, Any]:
    texts = [IDENTITY, *([{"type": "text", "text": system}] if system else [])]
    content = [{"type": "text", "text": "<system-reminder>"}, {"type": "text", "text": last}]
    messages = [{"role": "user", "content": "Hello"}, {"role": "user", "content": content}]
    return {"max_tokens": 32_000, "system": texts, "messages": messages, **more}


def codex(last: str = "Mend the tests", system: str = "You are a coding agent") -> dict[str, Any]:
    content = [{"type": "input_text", "text": last}]
    return {
        "instructions": system,
        "input": [{"type": "message", "role": "user", "content": content}],
    }


def gemini(system: str = "You are an agent", last: str = "Mend the tests") -> dict[str, Any]:
    return {
        "systemInstruction": {"parts": [{"text": f"\n{system} and more."}]},
        "contents": [{"role": "user", "parts": [{"text": last}]}],
    }


def opencode(system: str = "You are opencode", last: str = "x") -> dict[str, Any]:
    texts = {"system": f"{system}. More.", "user": last}
    return {"messages": [{"role": role, "content": text} for role, text in texts.items()]}


MAKERS: dict[str, Any] = {
    "claude-code": claude,
    "codex": codex,
    "gemini-cli": gemini,
    "qwen-code": gemini,
    "opencode": opencode,
}
SUMMARY = (
    "Respond with text only.\n\nYour task is to create a detailed summary of the conversation."
)
EXAMPLES: list[tuple[str | None, str, dict[str, str], dict[str, Any] | None, str | None]] = [
    ("claude-code", "/v1/messages", {}, claude(), "turn"),
    ("claude-code", "/v1/messages", {}, claude("Generate a concise, sentence-case title"), "title"),
    ("claude-code", "/v1/messages", {}, claude(last=SUMMARY), "compaction"),
    ("claude-code", "/v1/messages", {}, claude(last="quota", max_tokens=1), "probe"),
    ("claude-code", "/v1/messages", {"x-claude-code-agent-id": "a1"}, claude(), "subagent"),
    ("claude-code", "/v1/messages", {"x-stainless-retry-count": "1"}, claude(), "retry"),
    ("claude-code", "/v1/messages", {"x-stainless-retry-count": "0"}, claude(), "turn"),
    ("claude-code", "/v1/messages", {}, None, None),
    ("claude-code", "/v1/messages/count_tokens", {}, None, "count-only"),
    ("codex", "/v1/responses", {}, codex(), "turn"),
    ("codex", "/v1/responses/compact", {}, codex(), "compaction"),
    ("codex", "/v1/responses", {"x-openai-subagent": "compact"}, codex(), "compaction"),
    ("codex", "/v1/responses", {"x-openai-subagent": "review"}, codex(), "subagent"),
    ("codex", "/v1/responses", {"x-codex-parent-thread-id": "t"}, codex(), "subagent"),
    ("gemini-cli", "/v1beta/models/gemini:streamGenerateContent", {}, gemini(), "turn"),
    ("opencode", "/v1/chat/completions", {}, opencode(), "turn"),
    ("opencode", "/v1/chat/completions", {"x-parent-session-id": "p"}, opencode(), "subagent"),
    (None, "/v1/chat/completions", {}, opencode("You are a title generator"), None),
    (None, "/v1/chat/completions", {"x-stainless-retry-count": "2"}, opencode(), "retry"),
    ("aider", "/v1/chat/completions", {}, opencode(), None),
]


@pytest.mark.parametrize(("agent", "path", "headers", "body", "purpose"), EXAMPLES)
def test_what_a_request_is_for(agent, path, headers, body, purpose):
    shape = None if body is None else shape_of(body)
    assert purpose_of(agent, headers, path, shape) == purpose


def test_every_rule_names_a_purpose_for_what_it_describes():
    purposes = set()
    for rule in RULES:
        assert rule.sources
        path = (*rule.paths, "/v1")[0]
        places = itertools.product(rule.agents or (None,), rule.headers or (None,))
        for agent, header in places:
            headers = {header: (*rule.values, "1")[0]} if header else {}
            make = MAKERS[agent or "claude-code"]
            given: list[dict[str, Any]] = [{"system": text} for text in rule.system]
            given += [{"last": text} for text in rule.last]
            for more in given or [{"max_tokens": rule.max_tokens} if rule.max_tokens else {}]:
                shape = shape_of(make(**more))
                assert purpose_of(agent, headers, path, shape) == rule.purpose, (rule, more)
        purposes.add(rule.purpose)
    assert purposes | {"turn"} == {
        *("turn", "title", "compaction", "safety check", "retry", "subagent", "count-only"),
        "probe",
    }


def test_odd_bodies_have_a_shape():
    values: list[Any] = [None, 1, "x", [], [None], {}, {"content": 3}, [{"content": [None, 1, {}]}]]
    for value in values:
        for name in ("messages", "system", "input", "systemInstruction"):
            assert isinstance(shape_of({name: value, "max_tokens": value}), Shape)
    long = shape_of({"system": "x" * 9_000, "messages": [{"content": ["y" * 9_000] * 99}]})
    assert sum(map(len, (*long.system, *long.last))) <= 5 * 1_024


def test_the_purpose_of_an_exchange():
    headers = {**REQUEST.headers, "user-agent": "opencode/1.0"}
    body = Body(orjson.dumps({"model": "m", **opencode("You are a title generator")}))
    request = structs.replace(REQUEST, headers=headers, body=body)
    for keeps, purpose in ((True, "title"), (False, None)):
        rules = RunRules(node="n", secret=b"s", keeps_segments=keeps)
        assert opened(request, rules).opened.purpose == purpose


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
