"""The answers in agents' logs: once, with their greatest counts, and nothing that is not there."""

import json
import time
from pathlib import PurePath
from typing import Any

import pytest

from addon.dialects.counts import lookup
from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.call import booked, folder_name, moment
from addon.parts.agent_logs.files import SkippedCounts, read
from addon.parts.agent_logs.reader import OPEN_ANSWERS_MAX, calls_of
from ledger.model.exchange import Billing
from tests.addon.parts.agent_logs.logs import (
    LINES,
    OPENCODE,
    PATHS,
    SESSION,
    claude,
    codex_lines,
    gemini,
    write_home,
)
from tests.addon.parts.telemetry.made import NOON
from tests.named import for_each


def calls(agent, *lines):
    return list(calls_of(AGENTS[agent], lines, PurePath("/", PATHS[agent])))


def booked_of(call):
    return booked(call, now=NOON, capture="f", tags={})


HAIKU = "claude-haiku-4-5-20251001"
EXAMPLES = {
    # model, provider, folder, branch, tool calls, input, cache read, cache write, output, reasoning
    "claude-code": (HAIKU, "anthropic", "search", "main", 0, 2_104, 2_000, 100, 7, None),
    "codex": ("gpt-5-codex", "openai", "search", "feature", 1, 1_000, 800, None, 50, 20),
    "gemini-cli": ("gemini-2.5-pro", "gcp.gemini", None, None, 1, 900, 500, None, 100, 60),
    "qwen-code": ("qwen3-coder-plus", "unknown", "search", "main", None, 900, 500, None, 40, 10),
    "opencode": (HAIKU, "anthropic", "search", None, None, 2_104, 2_000, 100, 40, 10),
    "copilot": (
        *("gpt-5.4-mini", "github_copilot", "search", "main", None),
        *(21_343, 0, 20_974, 100, 0),
    ),
    "kimi-cli": (None, "api.kimi.com", None, None, None, 135, 25, 10, 40, None),
    "kimi-code": ("kimi-k3", "api.kimi.com", None, None, None, 135, 25, 10, 40, None),
    "amp": (HAIKU, "ampcode.com", None, None, None, 12_368, 11_372, 986, 178, None),
    "droid": (HAIKU, "api.factory.ai", None, None, None, 301_000, 1_000, 0, 50, 10),
    "cline": ("gpt-4o", "openai", None, None, None, 1_001, 200, 0, 11, None),
    "crush": ("m", "unknown", None, None, None, None, None, None, None, None),
    "kilo": (HAIKU, "anthropic", "search", None, None, 2_104, 2_000, 100, 40, 10),
    "goose": (HAIKU, "anthropic", "search", None, None, 5_900, 5_400, 310, 200, None),
    "hermes": (HAIKU, "anthropic", None, None, None, 1_270, 50, 20, 310, 10),
    "openclaw": (HAIKU, "anthropic", None, None, 1, 2_104, 2_000, 100, 7, None),
    "zcode": ("GLM-5.3", "unknown", "search", None, None, 900, 500, 0, 40, 10),
    "grok-build": ("grok-4.5", "x_ai", None, None, None, 2_100, 1_000, 0, 70, None),
    "pi": (
        *("anthropic/claude-haiku-4.5", "openrouter", "search", None, 1),
        *(2_104, 2_000, 100, 7, None),
    ),
}


@for_each("agent", AGENTS)
def test_the_first_answer_of_each_agent(tmp_path, agent):
    write_home(tmp_path, agent)
    path = tmp_path / PATHS[agent]
    call, *_ = calls_of(AGENTS[agent], read(AGENTS[agent], path, SkippedCounts()), path)
    exchange, reading = booked_of(call)
    usage = reading.usage
    assert (
        *(exchange.model, exchange.provider, exchange.project, exchange.git_branch),
        *(exchange.tool_calls, usage.input_tokens, usage.cache_read_tokens),
        *(usage.cache_write_tokens, usage.output_tokens, usage.reasoning_tokens),
    ) == EXAMPLES[agent]
    assert exchange.session_id == (f"T-{SESSION}" if agent == "amp" else SESSION)
    assert exchange.opened_at.isoformat()[:17] == "2026-11-02T12:00:"
    assert reading.usage_source == ("none" if agent == "crush" else "reported")
    assert "PRIVATE" not in str((exchange, reading))


def test_what_a_line_of_claude_code_says_beside_its_usage():
    (call,) = calls("claude-code", {"type": "user", "message": {"id": "x"}}, claude())
    exchange, _ = booked_of(call)
    assert (exchange.response_id, exchange.session_id) == ("msg_1", SESSION)
    assert (exchange.user_agent, exchange.service_tier) == ("claude-cli/2.0.31", "standard")
    assert (exchange.agent, exchange.source) == ("claude-code", "import")
    (call,) = calls("claude-code", claude(version=None, message_more={"content": "text"}))
    assert (booked_of(call)[0].user_agent, call.tool_calls) == (None, 0)


def test_a_usage_of_codex_without_details():
    lines = codex_lines()
    for line in lines:
        if line["type"] == "event_msg" and line["payload"]["info"]:
            last = line["payload"]["info"]["last_token_usage"]
            last.pop("cached_input_tokens", None)
            last.pop("reasoning_output_tokens", None)
    call, _ = calls("codex", *lines)
    usage = booked_of(call)[1].usage
    assert (usage.input_tokens, usage.output_tokens) == (1_000, 50)
    assert (usage.cache_read_tokens, usage.reasoning_tokens) == (None, None)


def test_every_agent_has_an_example_and_its_paths_lead_somewhere():
    assert set(EXAMPLES) == set(AGENTS) == set(PATHS)
    for agent in AGENTS.values():
        paths = [path for listed in agent.members.values() for path in listed]
        assert {path.split(".")[0] for path in paths} <= {"line", "record", "session", "file"}


def test_what_copilot_bills_is_a_unit():
    (call,) = calls(
        "copilot",
        {"id": 1, "session_id": "s", "at": "2026-11-02T12:00:00Z"}
        | {"input_tokens": 5, "output_tokens": 1, "total_nano_aiu": 7},
    )
    assert call.usage.tool_units == {"copilot_nano_aiu": 7}


def test_a_message_of_opencode_that_is_a_file():
    """Before its database; in old versions the total shows that output has the reasoning."""
    document: dict[str, Any] = {**OPENCODE, "id": "msg_1", "sessionID": "ses_1"}
    document["tokens"] = {**document["tokens"], "total": 4 + 2_000 + 100 + 30}
    (call,) = calls("opencode", document)
    assert (call.session_id, call.usage.output_tokens) == ("ses_1", 30)
    document["time"] = {"created": document["time"]["created"]}
    (call,) = calls("opencode", document)
    assert call.usage_source == "partial"


@for_each(
    "response_id, model, provider",
    [
        ("msg_01AbC", HAIKU, "anthropic"),
        ("msg_vrtx_01AbC", HAIKU, "gcp.vertex_ai"),
        ("msg_bdrk_01AbC", HAIKU, "aws.bedrock"),
        ("gen-17-AbC", "anthropic/claude-haiku-4.5", "openrouter"),
        ("msg_1", "qwen3-coder", "unknown"),
        ("chatcmpl-1", "glm-4.6", "unknown"),
    ],
)
def test_who_really_served_an_answer_of_claude_code(response_id, model, provider):
    (call,) = calls("claude-code", claude(response_id, message_more={"model": model}))
    exchange, reading = booked_of(call)
    assert exchange.provider == provider
    # The region, which the price depends on, is not logged.
    has_regions = provider in ("gcp.vertex_ai", "aws.bedrock")
    assert (json.loads(reading.usage_json).get("beside:region") == "unknown") == has_regions


@for_each(
    "word, provider",
    [("openai", "openai"), ("azure", "azure.ai.openai"), ("oss", "localhost"), ("mine", "unknown")],
)
def test_who_served_codex(word, provider):
    lines = codex_lines()
    lines[0]["payload"]["model_provider"] = word
    assert booked_of(calls("codex", *lines)[0])[0].provider == provider


def test_the_fullest_of_several_lines_stands_and_tools_are_counted_once():
    """ccusage/ccusage#888 (the first line stood) and #994 (every line was added); in any order."""
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    found = calls(
        "claude-code",
        claude(output=1),
        claude("msg_2", 9),
        claude(output=250, block=tool),
        claude(output=3, block=tool),
    )
    assert [(c.response_id, c.usage.output_tokens, c.tool_calls) for c in found] == [
        ("msg_2", 9, 0),
        ("msg_1", 250, 1),
    ]


def test_an_answer_without_an_end_is_partial():
    """anthropics/claude-code#22671: versions that logged only what `message_start` stated."""
    (call,) = calls("claude-code", claude(message_more={"stop_reason": None}))
    assert call.usage_source == "partial"


def test_an_id_that_a_server_gives_to_every_answer():
    """Gateways without request ids (ccusage/ccusage#1635); hours later also with one."""
    first, second = (
        claude("chatcmpl-1", at=at, requestId=None, message_more={"usage": {"input_tokens": n}})
        for n, at in ((100, "2026-11-02T12:00:00Z"), (200, "2026-11-02T12:00:09Z"))
    )
    assert len(calls("claude-code", first, second)) == 2
    assert len(calls("claude-code", claude(), claude(at="2026-11-02T18:00:00Z"))) == 2
    keys = {call.exchange_id for call in calls("claude-code", first, second, claude())}
    assert len(keys) == 3


def test_the_session_is_part_of_what_identifies_an_answer():
    """Of Codex' logs, whose answers of one size in two sessions have nothing else."""
    ids = set()
    for session in ("s1", "s2", "s3"):
        lines = codex_lines()
        lines[0]["payload"]["id"] = session
        ids |= {call.exchange_id for call in calls("codex", *lines)}
    assert len(ids) == 6


def test_a_subagent_is_a_session_of_its_own():
    (call,) = calls("claude-code", claude(isSidechain=True, agentId="a1"))
    assert (call.session_id, call.parent_session_id) == (f"{SESSION}/a1", SESSION)
    (call,) = calls("claude-code", claude(isSidechain=True))
    assert (call.session_id, call.parent_session_id) == (SESSION, SESSION)


@for_each(
    "line",
    [
        claude(message_more={"model": "<synthetic>"}),
        claude(message_more={"usage": None}),
        claude(message_more={"usage": {"input_tokens": 0, "output_tokens": 0}}),
        claude(sessionId=None),
        claude(at="yesterday"),
        {"type": "assistant", "message": "text"},
        {"type": {"odd": 1}, "message": {}},
    ],
)
def test_what_is_no_answer_of_a_model(line):
    assert calls("claude-code", line) == []


def test_many_interleaved_answers_are_bounded():
    lines = [claude(f"msg_{at}") for at in range(OPEN_ANSWERS_MAX + 10)]
    assert len(calls("claude-code", *lines)) == len(lines)


def codex(meta=None, **more):
    lines = codex_lines(**more)
    lines[0]["payload"] |= meta or {}
    return calls("codex", *lines)


def test_each_answer_of_codex_once():
    first, second = codex()
    assert (first.tool_calls, second.tool_calls) == (1, 0)
    assert (first.user_agent, first.billing) == ("codex_cli_rs/0.140.0", None)
    assert [call.usage.output_tokens for call in (first, second)] == [50, 30]
    assert {call.billing for call in codex(plan="plus")} == {Billing.PLAN}


def test_a_count_and_its_record_in_any_order_and_repeated():
    *head, count = codex_lines()[:4]
    usage = count["payload"]["info"]["last_token_usage"]
    record = {"timestamp": count["timestamp"], "type": "token_usage_record"}
    record |= {"payload": {"response_id": "resp_1", "usage": usage}}
    for tail in ([record, count], [count, record], [record, count, count], [record]):
        (call,) = calls("codex", *head, *tail)
        assert call.exchange_id == calls("codex", *head, count)[0].exchange_id


@for_each(
    "more, parent",
    [
        ({"forked_from_id": "p1"}, "p1"),
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p2"}}}}, "p2"),
        ({"source": {"subagent": "review"}}, None),
        ({"source": "cli"}, None),
    ],
)
def test_the_session_that_started_this_one(more, parent):
    assert codex(more)[0].parent_session_id == parent


def test_a_log_of_codex_that_numbers_its_own_lines():
    lines = [{**line, "ordinal": number} for number, line in enumerate(codex_lines())]
    lines[0]["payload"] |= {"forked_from_id": "p1", "subagent_history_start_ordinal": 5}
    assert [call.session_id for call in calls("codex", *lines)] == ["p1", SESSION]


def test_what_the_log_of_codex_does_not_tell():
    (call, _) = codex({"git": None, "originator": None, "cwd": None})
    assert (call.git_branch, call.user_agent, call.project) == (None, None, None)
    assert codex({"cli_version": None})[0].user_agent == "codex_cli_rs"
    assert codex({"id": None}) == []
    assert calls("codex", {"type": "session_meta", "payload": 1}) == []


@for_each(
    "limits, stated",
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
    exchange, _ = booked_of(calls("codex", *lines)[0])
    assert {each.window: each.used_ppm for each in exchange.quotas} == stated


def test_a_session_of_gemini_cli_line_by_line_and_saved_again():
    document = gemini()
    head = {key: value for key, value in document.items() if key != "messages"}
    (call,) = calls("gemini-cli", head, *document["messages"], document["messages"][1])
    assert call.exchange_id == calls("gemini-cli", document)[0].exchange_id
    assert calls("gemini-cli", *document["messages"]) == []
    message = {**document["messages"][1], "id": None, "toolCalls": None}
    (call,) = calls("gemini-cli", {**document, "messages": [message], "directory": "/w/app/"})
    assert (call.project, call.tool_calls) == ("app", 0)


@for_each(
    "path, name",
    [
        ("/home/ada/app", "app"),
        ("C:\\work\\app\\", "app"),
        ("app", "app"),
        ("/", None),
        (3, None),
        ("x" * 300, "x" * 100),
    ],
)
def test_folders(path, name):
    assert folder_name(path) == name


@for_each(
    "stated, text",
    [
        ("2026-11-02T13:00:00+01:00", "2026-11-02T12:00:00+00:00"),
        (1_793_620_800, "2026-11-02T12:00:00+00:00"),
        (1_793_620_800_000, "2026-11-02T12:00:00+00:00"),
        ("2026-11-02T12:00:00", None),
        ("0001-01-01T00:00:00Z", None),
        ("soon", None),
        (None, None),
        (True, None),
        (-1e300, None),
        (float("nan"), None),
    ],
)
def test_moments(stated, text):
    found = moment(stated)
    assert (found and found.isoformat()) == text


@pytest.mark.large
@pytest.mark.parametrize("agent", sorted({*LINES} - {"droid"}))
def test_the_work_is_linear_in_the_lines(agent):
    """Four times as many lines, of one answer or of as many, take about four times the CPU time;
    what is quadratic takes sixteen times."""
    for of_one_answer in (True, False):
        few, many = (seconds(agent, count, of_one_answer) for count in (500, 2_000))
        assert many < 9 * max(few, 0.002)


def seconds(agent, count, of_one_answer):
    path = next((p for p in AGENTS[agent].members.get("id", ())), "line.nothing")
    lines = json.loads(json.dumps([*LINES[agent][:-1], *[LINES[agent][-1]] * count]))
    for number, line in enumerate(lines):
        records = [lookup({"line": line}, place) for place in AGENTS[agent].records]
        for record in records if not of_one_answer else ():
            if isinstance(record, dict):
                record[path.rpartition(".")[2]] = f"id{number}"
    begin = time.process_time()
    assert calls(agent, *lines)
    return time.process_time() - begin
