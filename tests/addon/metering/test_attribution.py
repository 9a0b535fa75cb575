"""Values of requests: keys are told apart and never kept, in paths neither; names stay; how an exchange is
billed; which agents make requests, and what for. The bodies have the shapes of the agents' own, with other
words."""

import itertools
from typing import Any

import orjson
import pytest
from msgspec import structs

from addon.dialects.agents import (
    AGENTS,
    NO_AGENT,
    RULES,
    AgentFacts,
    Shape,
    agent_of,
    purpose_of,
    shape_of,
)
from addon.dialects.billing import SENT_KEY, of_answer, of_request
from addon.metering.attribution import (
    REDACTED,
    TAG_LENGTH_MAX,
    TAGS_MAX,
    api_key_of,
    fingerprint_of,
    is_password,
    is_signed,
    redacted_path,
    tags_of_headers,
)
from addon.metering.messages import NOT_KNOWN, Body, header_map, recorded_body
from addon.metering.opening import RunRules
from ledger.model.exchange import Billing
from tests.addon.metering.opened import REQUEST, opened
from tests.named import for_each


@for_each(
    "headers, path, expected",
    [
        pytest.param({"authorization": "Bearer sk-abc"}, "/v1", "sk-abc", id="bearer"),
        pytest.param({"authorization": "bearer  sk-abc"}, "/v1", "sk-abc", id="lower-case"),
        pytest.param({"x-api-key": "sk-ant-1"}, "/v1", "sk-ant-1", id="anthropic"),
        pytest.param({"api-key": "az-1"}, "/v1", "az-1", id="azure"),
        pytest.param({"x-goog-api-key": "AIza1"}, "/v1", "AIza1", id="gemini-header"),
        pytest.param({}, "/v1beta/models/g:x?alt=sse&key=AIza2", "AIza2", id="gemini-query"),
        pytest.param(
            {"authorization": "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20261120/us-east-1/bedrock"},
            "/model/x/invoke",
            "AKIAEXAMPLE",
            id="aws-names-the-key-by-its-id",
        ),
        pytest.param(
            {"sec-websocket-protocol": "realtime, openai-insecure-api-key.ek_1, openai-beta.x"},
            "/v1/realtime",
            "ek_1",
            id="a WebSocket's protocol",
        ),
        pytest.param(
            {"authorization": "Negotiate abc", "api-key": "az-2"}, "/v1", "az-2", id="other-scheme"
        ),
        pytest.param({}, "/v1?alt=sse", None, id="a query without a key"),
        pytest.param({}, "/v1", None, id="none"),
    ],
)
def test_the_credential_is_found(headers: dict[str, str], path: str, expected: str | None):
    assert api_key_of(headers, path) == expected


def test_a_fingerprint_is_the_same_within_a_ledger_only():
    key = "sk-proj-0123456789abcdef"
    assert fingerprint_of(key, b"one") == fingerprint_of(key, b"one")
    assert fingerprint_of(key, b"one")[0] != fingerprint_of(key, b"two")[0]
    assert fingerprint_of(key, b"one")[1] == "cdef"
    assert key not in repr(fingerprint_of(key, b"one"))


def test_of_a_password_nothing_is_shown():
    assert is_password({"authorization": "Basic YWxpY2U6aHVudGVyMg=="})
    assert not is_password({"authorization": "Bearer sk-proj-0123456789abcdef"})
    assert not is_password({})


def test_a_short_key_shows_nothing():
    assert fingerprint_of("sk-short", b"one")[1] is None


@for_each(
    "headers, path, expected",
    [
        ({"authorization": "AWS4-HMAC-SHA256 Credential=A/1"}, "/", True),
        ({"content-digest": "sha-256=:x:"}, "/", True),
        ({"x-amz-content-sha256": "x"}, "/", True),
        ({}, "/?X-Amz-Signature=1", True),
        ({"authorization": "Bearer x"}, "/", False),
    ],
)
def test_a_signed_body_is_recognised(headers: dict[str, str], path: str, expected: bool):
    assert is_signed(headers, path) is expected


def test_a_header_that_is_no_tag_is_left_out():
    values = ["team=a, nonsense,=b", " env = prod ", "empty="]
    assert tags_of_headers(values) == {"team": "a", "env": "prod", "empty": ""}


def test_tags_are_bounded():
    long = "k" * (TAG_LENGTH_MAX + 9)
    assert tags_of_headers([f"{long}={long}"]) == {long[:TAG_LENGTH_MAX]: long[:TAG_LENGTH_MAX]}
    many = ",".join(f"k{n}=v" for n in range(TAGS_MAX + 9))
    assert len(tags_of_headers([many])) == TAGS_MAX


@for_each(
    "path",
    [
        "/v1/chat/completions",
        "/v1beta/models/gemini-2.5-flash-preview-09-2025:streamGenerateContent",
        "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/converse-stream",
        "/openai/deployments/gpt-4o-mini-2024-07-18/chat/completions",
        "/v1/projects/my-project-123456/locations/us-central1/publishers/google/models/x:predict",
        "/v1/files/1b4e28ba-2fa1-11d2-883f-0016d3cca427/content",
        "/inference/v1/accounts/fireworks/models/llama-v3p1-405b-instruct",
    ],
)
def test_names_stay(path: str):
    assert redacted_path(path) == path


@for_each(
    "key",
    [
        "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl",
        "sk-ant-api03-abcdefghijkl-mnopqrst_uvwx",
        "AIzaSyA1234567890abcdefghij_KLM",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "0123456789abcdef0123456789abcdef",
        "AbCdEfGhIjKlMnOpQrSt1",
        "sk%2Dproj%2DAb12Cd34Ef56Gh78Ij90Kl",
    ],
)
def test_keys_do_not(key: str):
    assert redacted_path(f"/hooks/{key}/v1/messages") == f"/hooks/{REDACTED}/v1/messages"


@for_each(
    "data, method, body",
    [
        (b"x", "POST", Body(b"x")),
        (b"", "POST", NOT_KNOWN),
        (b"", "GET", Body(b"")),
        (b"", "CONNECT", Body(b"")),
    ],
)
def test_a_recorded_body_may_be_missing(data, method, body):
    assert recorded_body(data, method) == body


def test_of_two_headers_the_last_counts():
    fields = [(b"A", b"1"), (b"a", b"2"), (b"B", b"\xff")]
    assert header_map(fields) == {"a": "2", "b": "\udcff"}


@for_each(
    "lines, encoding",
    [
        ([b"gzip", b"identity"], "gzip, identity"),
        ([b"identity", b"br"], "identity, br"),
        ([b"gzip", b"br"], "gzip, br"),
        ([b"gzip"], "gzip"),
    ],
)
def test_encodings_in_several_lines_are_one_list(lines, encoding):
    fields = [(b"Content-Encoding", line) for line in lines]
    assert header_map([(b"a", b"1"), *fields]) == {"a": "1", "content-encoding": encoding}


OAUTH = {
    "authorization": "Bearer sk-ant-oat01-abc",
    "anthropic-beta": "claude-code-20250219,oauth-2025-04-20",
}
CLAUDE = ("api.anthropic.com", "/v1/messages", "anthropic")
CODEX = ("chatgpt.com", "/backend-api/codex/responses", "openai")
OVERAGE = "anthropic-ratelimit-unified-overage-in-use"
NO_MODELS = (None, None)
MINIMAX = ("api.minimax.io", "/anthropic/v1/messages", "minimax")
METERED, PLAN, FREE = Billing.METERED, Billing.PLAN, Billing.FREE


@for_each(
    "upstream, headers, has_key, expected",
    [
        (CLAUDE, OAUTH, True, PLAN),
        (CLAUDE, {"x-api-key": "sk-ant-api03-abc"}, True, METERED),
        (CLAUDE, OAUTH | {"x-api-key": "sk-ant-api03-abc"}, True, METERED),
        (CLAUDE, {"authorization": "Bearer sk-ant-oat01-abc"}, True, METERED),
        (CLAUDE, {"anthropic-beta": "oauth-2025-04-20"}, False, None),
        (CLAUDE, {}, False, None),
        (CODEX, {"authorization": "Bearer ey"}, True, PLAN),
        (("localhost", "/backend-api/codex/responses", "localhost"), {}, True, PLAN),
        (("api.openai.com", "/v1/responses", "openai"), {"authorization": "x"}, True, METERED),
        (("api.githubcopilot.com", "/chat/completions", "github_copilot"), {}, True, PLAN),
        (("api.business.githubcopilot.com", "/responses", "github_copilot"), {}, True, PLAN),
        (("notgithubcopilot.com", "/responses", "notgithubcopilot.com"), {}, True, None),
        (("cloudcode-pa.googleapis.com", "/v1internal:x", "gcp.gemini"), {}, True, PLAN),
        (("generativelanguage.googleapis.com", "/v1beta/x", "gcp.gemini"), {}, True, METERED),
        (("api.z.ai", "/api/coding/paas/v4/chat/completions", "zai"), {}, True, PLAN),
        (("api.z.ai", "/api/paas/v4/chat/completions", "zai"), {}, True, METERED),
        (("api.kimi.com", "/coding/v1/messages", "api.kimi.com"), {}, True, PLAN),
        (("example.com", "/coding/v1/messages", "example.com"), {}, True, None),
        (("api.z.ai", "/api/anthropic/v1/messages", "zai"), OAUTH, True, METERED),
        (("10.0.0.1", "/v1/messages", "10.0.0.1"), OAUTH, True, PLAN),
        (("coding.dashscope.aliyuncs.com", "/v1/chat/completions", "dashscope"), {}, True, PLAN),
        (("coding-intl.dashscope.aliyuncs.com", "/v1/messages", "dashscope"), {}, True, PLAN),
        (("dashscope.aliyuncs.com", "/v1/chat/completions", "dashscope"), {}, True, METERED),
        (MINIMAX, {"authorization": "Bearer sk-cp-abc"}, True, PLAN),
        (MINIMAX, {"x-api-key": "sk-cp-abc"}, True, PLAN),
        (MINIMAX, {"authorization": "Bearer sk-api-abc"}, True, METERED),
        (("ollama.com", "/api/chat", "ollama"), {}, True, None),
        (("10.0.0.1", "/v1/chat/completions", "10.0.0.1"), {}, True, None),
    ],
)
def test_a_request(upstream, headers, has_key, expected):
    host, path, provider = upstream
    found = of_request(headers, host=host, path=path, provider=provider, has_key=has_key)
    assert found is expected


@for_each(
    "headers, redacted, expected",
    [
        ({"anthropic-beta": OAUTH["anthropic-beta"]}, {"authorization"}, PLAN),
        ({"anthropic-beta": OAUTH["anthropic-beta"]}, {"x-api-key", "authorization"}, METERED),
        ({}, {"x-api-key"}, METERED),
        ({}, {SENT_KEY}, METERED),
        ({}, {"cookie"}, None),
    ],
)
def test_a_recorded_request_without_its_credential(headers, redacted, expected):
    host, path, provider = CLAUDE
    found = of_request(
        headers,
        host=host,
        path=path,
        provider=provider,
        has_key=False,
        redacted=frozenset(redacted),
    )
    assert found is expected


@for_each(
    "asked, headers, provider, models, expected",
    [
        (PLAN, {}, "anthropic", ("claude-x", None), (PLAN, False)),
        (None, {}, "example", NO_MODELS, (None, False)),
        # Credits pay for what goes beyond the plan, whatever a file of the operator says.
        (PLAN, {OVERAGE: "true"}, "anthropic", NO_MODELS, (METERED, True)),
        (PLAN, {OVERAGE: "false"}, "anthropic", NO_MODELS, (PLAN, False)),
        (METERED, {"anthropic-ratelimit-unified-status": "allowed"}, "x", NO_MODELS, (PLAN, False)),
        (None, {"x-codex-primary-used-percent": "12"}, "localhost", NO_MODELS, (PLAN, False)),
        (METERED, {}, "openrouter", ("a/b", "a/b:free"), (FREE, False)),
        (METERED, {}, "openrouter", ("a/b:free", "a/c"), (FREE, False)),
        (METERED, {}, "openrouter", (None, "a/b:free"), (FREE, False)),
        (METERED, {}, "openrouter", ("a/b-480b-07-25", "a/b:free"), (FREE, False)),
        (METERED, {}, "openrouter", ("a/c", "openrouter/free"), (FREE, False)),
        # A fallback in `models` that is billed.
        (
            METERED,
            {},
            "openrouter",
            ("x-ai/grok-4", "google/gemini-2.0-flash-exp:free"),
            (METERED, False),
        ),
        (METERED, {}, "openrouter", ("a/b", None), (METERED, False)),
        (METERED, {}, "openai", ("a/b:free", None), (METERED, False)),
    ],
)
def test_an_answer(asked, headers, provider, models, expected):
    assert of_answer(asked, headers, provider=provider, models=models) == expected


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


@for_each("agent, path, headers, body, purpose", EXAMPLES)
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


@for_each(
    "user_agent, name",
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
