"""A session of each agent, from its wire to what its commands say about it."""

import base64
import json
from datetime import timedelta
from typing import Any

import orjson
from typer.testing import CliRunner

from tests.addon.recordings.recorded_files import AT
from tests.app import APP
from tests.named import for_each

TOOLS = ("read", "bash", "grep")
TEXT = "Words that fill the prompt of an agent. " * 40
FRESH, READ = (9_000, 500, 10_000, 500), (0, 9_000, 0, 10_000)
"""Tokens of each turn that come new, and those from the cache: the third turn's tools changed."""


def described(name: str, turn: int) -> str:
    return f"{name}: {TEXT}{' Now otherwise.' if name == 'bash' and turn >= 2 else ''}"


def claude(turn: int) -> tuple[str, dict[str, str], Any, Any]:
    mark = {"cache_control": {"type": "ephemeral"}}
    messages: list[Any] = [{"role": "user", "content": TEXT}]
    for at in range(turn):
        call = {"type": "tool_use", "id": f"t{at}", "name": "bash", "input": {"command": "ls"}}
        messages.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": f"t{at}", "content": TEXT}
        messages.append({"role": "user", "content": [result]})
    last = messages[-1]["content"]
    parts = [{"type": "text", "text": last}] if isinstance(last, str) else last
    messages[-1] = {"role": "user", "content": [*parts[:-1], {**parts[-1], **mark}]}
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32_000,
        "tools": [{"name": name, "description": described(name, turn)} for name in TOOLS],
        "system": [{"type": "text", "text": f"You are Claude Code. {TEXT}", **mark}],
        "messages": messages,
    }
    usage: dict[str, Any] = {
        "input_tokens": 3,
        "cache_creation_input_tokens": FRESH[turn],
        "output_tokens": 9,
    }
    usage["cache_read_input_tokens"] = READ[turn]
    answer: dict[str, Any] = {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "content": [],
    }
    headers = {"user-agent": "claude-cli/2.1 (external)", "x-claude-code-session-id": "s"}
    answer |= {"model": "claude-sonnet-4-5-20250929", "stop_reason": "end_turn", "usage": usage}
    return "https://api.anthropic.com/v1/messages", headers, body, answer


def codex(turn: int) -> tuple[str, dict[str, str], Any, Any]:
    items: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}]
    for at in range(turn):
        items.append(
            {"type": "function_call", "name": "bash", "call_id": f"c{at}", "arguments": "{}"}
        )
        items.append({"type": "function_call_output", "call_id": f"c{at}", "output": TEXT})
    tools = [
        {"type": "function", "name": name, "description": described(name, turn)} for name in TOOLS
    ]
    body = {
        "model": "gpt-5.1",
        "instructions": TEXT,
        "input": items,
        "tools": tools,
        "store": False,
    }
    usage: dict[str, Any] = {
        "input_tokens": FRESH[turn] + READ[turn],
        "output_tokens": 9,
        "total_tokens": 0,
    }
    usage["input_tokens_details"] = {"cached_tokens": READ[turn] // 128 * 128}
    answer: dict[str, Any] = {
        "id": f"resp_{turn}",
        "object": "response",
        "status": "completed",
        "usage": usage,
    }
    headers = {"user-agent": "codex_cli_rs/0.60", "session_id": "s"}
    answer |= {"model": "gpt-5.1-2025-11-13", "output": []}
    return "https://api.openai.com/v1/responses", headers, body, answer


def gemini(turn: int) -> tuple[str, dict[str, str], Any, Any]:
    contents: list[Any] = [{"role": "user", "parts": [{"text": TEXT}]}]
    for at in range(turn):
        call = {"functionCall": {"name": "bash", "args": {"turn": at}}}
        contents.append({"role": "model", "parts": [call]})
        result = {"functionResponse": {"name": "bash", "response": {"output": TEXT, "turn": at}}}
        contents.append({"role": "user", "parts": [result]})
    tools = [{"name": name, "description": described(name, turn)} for name in TOOLS]
    body = {
        "systemInstruction": {"parts": [{"text": TEXT}]},
        "tools": [{"functionDeclarations": tools}],
        "contents": contents,
    }
    usage: dict[str, Any] = {
        "promptTokenCount": FRESH[turn] + READ[turn],
        "candidatesTokenCount": 9,
    }
    usage["cachedContentTokenCount"] = READ[turn]
    candidate = {"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}
    answer: dict[str, Any] = {
        "responseId": f"r{turn}",
        "modelVersion": "gemini-2.5-pro",
        "candidates": [candidate],
    }
    url = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent"
    return url, {"user-agent": "GeminiCLI/0.9"}, body, {**answer, "usageMetadata": usage}


def opencode(turn: int) -> tuple[str, dict[str, str], Any, Any]:
    messages: list[Any] = [{"role": "system", "content": TEXT}, {"role": "user", "content": TEXT}]
    for at in range(turn):
        function = {"name": "bash", "arguments": "{}"}
        calls = [{"id": f"c{at}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": TEXT})
    tools = [
        {"type": "function", "function": {"name": name, "description": described(name, turn)}}
        for name in TOOLS
    ]
    body = {"model": "gpt-5", "messages": messages, "tools": tools}
    usage: dict[str, Any] = {"prompt_tokens": FRESH[turn] + READ[turn], "completion_tokens": 9}
    usage["prompt_tokens_details"] = {"cached_tokens": READ[turn] // 128 * 128}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "choices": [choice],
    }
    answer |= {"model": "gpt-5-2025-08-07", "usage": usage}
    headers = {"user-agent": "opencode/1.0", "x-opencode-session": "s"}
    return "https://api.openai.com/v1/chat/completions", headers, body, answer


@for_each("agent", [claude, codex, gemini, opencode])
def test_what_broke_the_cache_and_what_filled_the_input(agent, tmp_path):
    lines = []
    for turn in range(4):
        url, headers, body, answer = agent(turn)
        headers = {**headers, "content-type": "application/json"}
        raw = base64.b64encode(orjson.dumps(answer)).decode()
        response = {"status": 200, "headers": {"content-type": "application/json"}, "body_b64": raw}
        request = {"method": "POST", "url": url, "headers": headers, "body": body}
        started = (AT + timedelta(minutes=turn)).isoformat()
        row = {"name": f"t{turn}", "started_at": started, "request": request, "response": response}
        lines.append(orjson.dumps(row))
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"\n".join(lines))
    ledger = ["--ledger", str(tmp_path / "ledger.sqlite3")]

    def run(*words: str) -> Any:
        done = CliRunner().invoke(APP, [*words, *ledger])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout) if "json" in words else None

    run("replay", str(path))
    causes = run("cache", "--format", "json")
    found = {(row["reason"], row["how"], row["segment"], row["requests"]) for row in causes}
    assert found == {
        ("changed", "changed", "tools[1] bash", 1),
        ("first", None, None, 1),
        ("hit", None, None, 2),
    }
    assert causes[0]["tokens"] > 8_000
    assert causes[0]["list_value_usd"] > 0
    rows = run("context", "--format", "json")
    used = {row["name"]: (row["calls"], row["unused"]) for row in rows if row["part"] == "tools"}
    assert used == {"read": (0, True), "bash": (3, False), "grep": (0, True)}
    summed = run("context", "--by", "name", "--format", "json")
    tools = {row["name"]: row["calls"] for row in summed if row["part"] == "tools"}
    assert tools == {"read": 0, "bash": 3, "grep": 0}
    parts = run("context", "--by", "part", "--format", "json")
    assert len({row["part"] for row in parts}) == len(parts)
    for added in (summed, parts):
        assert sum(row["tokens"] for row in added) == sum(row["tokens"] for row in rows)
    report = run("report", "--by", "purpose", "--by", "agent", "--format", "json")
    (row,) = report["rows"]
    assert row["purpose"] == "turn"
    assert sum(each["tokens"] for each in rows) == report["total"]["input_tokens"]
