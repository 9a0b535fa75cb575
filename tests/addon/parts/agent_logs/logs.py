"""Session logs as agents write them, made by hand; no text of anybody's."""

import json
import sqlite3
from contextlib import closing

SESSION = "0199f2a0-1111-7222-8333-444455556666"


def claude(message="msg_1", output=7, *, at="2026-11-02T12:00:05.000Z", block=None, **more):
    """One line of an answer."""
    line = {
        "type": "assistant",
        "timestamp": at,
        "sessionId": SESSION,
        "cwd": "/home/ada/work/search",
        "gitBranch": "main",
        "version": "2.0.31",
        "isSidechain": False,
        "requestId": "req_1",
        "message": {
            "id": message,
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5-20251001",
            "content": [block or {"type": "text", "text": "PRIVATE"}],
            "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 4,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": 2_000,
                "output_tokens": output,
                "service_tier": "standard",
            },
        },
    }
    line["message"] |= more.pop("message_more", {})
    return {**line, **more}


def codex_lines(plan=None):
    def usage(input_tokens, cached, output, reasoning):
        return {
            "input_tokens": input_tokens,
            "cached_input_tokens": cached,
            "output_tokens": output,
            "reasoning_output_tokens": reasoning,
            "total_tokens": input_tokens + output,
        }

    def count(second, last, total):
        info = {"last_token_usage": last, "total_token_usage": total}
        return {
            "timestamp": f"2026-11-02T12:00:{second:02}.000Z",
            "type": "event_msg",
            "payload": {"type": "token_count", "info": info, "rate_limits": {"plan_type": plan}},
        }

    first, second = usage(1_000, 800, 50, 20), usage(1_200, 1_000, 30, 0)
    both = usage(2_200, 1_800, 80, 20)
    return [
        {
            "timestamp": "2026-11-02T12:00:00.000Z",
            "type": "session_meta",
            "payload": {
                "id": SESSION,
                "cwd": "/home/ada/work/search",
                "originator": "codex_cli_rs",
                "cli_version": "0.140.0",
                "git": {"branch": "feature", "commit_hash": "abc"},
            },
        },
        {"timestamp": "x", "type": "turn_context", "payload": {"model": "gpt-5-codex"}},
        {"type": "response_item", "payload": {"type": "function_call", "name": "shell"}},
        count(10, first, first),
        count(11, first, first),
        {"type": "event_msg", "payload": {"type": "token_count", "info": None}},
        count(20, second, both),
    ]


def gemini():
    return {
        "sessionId": SESSION,
        "projectHash": "ab12",
        "startTime": "2026-11-02T12:00:00.000Z",
        "messages": [
            {
                "id": "1",
                "type": "user",
                "timestamp": "2026-11-02T12:00:00.000Z",
                "content": "PRIVATE",
            },
            {
                "id": "2",
                "type": "gemini",
                "timestamp": "2026-11-02T12:00:04.000Z",
                "content": "PRIVATE",
                "model": "gemini-2.5-pro",
                "toolCalls": [{"name": "ls"}],
                "tokens": {
                    "input": 900,
                    "output": 40,
                    "cached": 500,
                    "thoughts": 60,
                    "tool": 0,
                    "total": 1_000,
                },
            },
            {"id": "3", "type": "gemini", "timestamp": "2026-11-02T12:00:09.000Z", "content": ""},
        ],
    }


AT = "2026-11-02T12:00:05.000Z"
MS = 1_793_620_805_000
"""The same time."""
PATHS = {
    "claude-code": f".claude/projects/-home-ada-work-search/{SESSION}.jsonl",
    "codex": f".codex/sessions/2026/11/02/rollout-2026-11-02T12-00-00-{SESSION}.jsonl",
    "gemini-cli": ".gemini/tmp/ab12/chats/session-2026-11-02T12-00-abcd.json",
    "qwen-code": f".qwen/projects/-home-ada/chats/{SESSION}.jsonl",
    "opencode": ".local/share/opencode/opencode.db",
    "copilot": ".copilot/session-store.db",
    "kimi-cli": f".kimi/sessions/ab12/{SESSION}/wire.jsonl",
    "kimi-code": f".kimi-code/sessions/wd/{SESSION}/agents/main/wire.jsonl",
    "amp": f".local/share/amp/threads/T-{SESSION}.json",
    "droid": f".factory/sessions/-home-ada/{SESSION}.settings.json",
    "cline": f".cline/data/sessions/{SESSION}/{SESSION}.messages.json",
    "crush": "work/search/.crush/crush.db",
    "kilo": ".local/share/kilo/kilo.db",
    "goose": ".local/share/goose/sessions/sessions.db",
    "hermes": ".hermes/state.db",
    "pi": f".pi/agent/sessions/--home-ada--/2026-11-02_{SESSION}.jsonl",
    "openclaw": ".openclaw/agents/main/agent/openclaw-agent.sqlite",
    "zcode": ".zcode/cli/db/db.sqlite",
    "grok-build": f".grok/sessions/%2Fhome%2Fada/{SESSION}/updates.jsonl",
}
OPENCODE = {
    "role": "assistant",
    "providerID": "anthropic",
    "modelID": "claude-haiku-4-5-20251001",
    "path": {"cwd": "/home/ada/work/search", "root": "/home/ada/work/search"},
    "time": {"created": MS, "completed": MS + 4_000},
    "finish": "stop",
    "parts": "PRIVATE",
    "tokens": {"input": 4, "output": 30, "reasoning": 10, "cache": {"read": 2_000, "write": 100}},
}
OPENCLAW = {
    "type": "message",
    "id": "evt_1",
    "message": {
        "role": "assistant",
        "provider": "anthropic",
        "model": "claude-haiku-4-5-20251001",
        "content": [{"type": "text", "text": "PRIVATE"}, {"type": "toolCall", "id": "t1"}],
        "stopReason": "toolUse",
        "usage": {"input": 4, "output": 7, "cacheRead": 2_000, "cacheWrite": 100},
        "timestamp": MS,
    },
}


def grok_turn(inputs, output, *, at=MS, cost=None, **more):
    counts = {"inputTokens": inputs, "outputTokens": output, "totalTokens": inputs + output}
    counts |= {"cachedReadTokens": 500, "cacheCreationTokens": 0, "reasoningTokens": 5}
    usage = {**counts, "modelUsage": {"grok-4.5": {**counts, "modelCalls": 2, **(cost or {})}}}
    update = {"sessionUpdate": "turn_completed", "usage": usage}
    params = {"sessionId": SESSION, "update": update, "_meta": {"agentTimestampMs": at}}
    return {"timestamp": at // 1_000, "params": params, **more}


LINES = {
    "claude-code": [claude()],
    "codex": codex_lines(),
    "gemini-cli": [gemini()],
    "qwen-code": [
        {"type": "user", "uuid": "u0", "sessionId": SESSION, "message": {"parts": ["PRIVATE"]}},
        {
            "type": "assistant",
            "uuid": "u1",
            "sessionId": SESSION,
            "timestamp": AT,
            "cwd": "/home/ada/work/search",
            "gitBranch": "main",
            "version": "0.9.0",
            "model": "qwen3-coder-plus",
            "usageMetadata": {
                "promptTokenCount": 900,
                "cachedContentTokenCount": 500,
                "candidatesTokenCount": 40,
                "thoughtsTokenCount": 10,
                "totalTokenCount": 940,
            },
        },
    ],
    "kimi-cli": [
        {"type": "metadata", "protocol_version": "1.2"},
        {
            "timestamp": MS / 1_000,
            "message": {
                "type": "StatusUpdate",
                "payload": {
                    "message_id": "chatcmpl-1",
                    "token_usage": {
                        "input_other": 100,
                        "input_cache_read": 25,
                        "input_cache_creation": 10,
                        "output": 40,
                    },
                },
            },
        },
    ],
    "kimi-code": [
        {"type": "llm.request", "model": "kimi-k3", "time": MS},
        *(
            {
                "type": "usage.record",
                "usageScope": scope,
                "model": "__kimi_env_model__",
                "time": MS,
                "usage": {
                    "inputOther": 100,
                    "inputCacheRead": 25,
                    "inputCacheCreation": 10,
                    "output": 40,
                },
            }
            for scope in ("turn", "session")
        ),
    ],
    "amp": [
        {
            "id": f"T-{SESSION}",
            "usageLedger": {
                "events": [
                    {
                        "id": "e1",
                        "timestamp": AT,
                        "model": "claude-haiku-4-5-20251001",
                        "tokens": {"input": 10, "output": 178},
                        "toMessageId": 1,
                    }
                ]
            },
            "messages": [
                {"role": "user", "messageId": 0, "content": "PRIVATE"},
                {
                    "role": "assistant",
                    "messageId": 1,
                    "content": "PRIVATE",
                    "usage": {
                        "model": "claude-haiku-4-5-20251001",
                        "inputTokens": 10,
                        "outputTokens": 178,
                        "cacheCreationInputTokens": 986,
                        "cacheReadInputTokens": 11_372,
                    },
                },
            ],
        }
    ],
    "droid": [
        {
            "model": "claude-haiku-4-5-20251001",
            "providerLockTimestamp": AT,
            "tokenUsage": {
                "inputTokens": 300_000,
                "outputTokens": 40,
                "cacheCreationTokens": 0,
                "cacheReadTokens": 1_000,
                "thinkingTokens": 10,
            },
        }
    ],
    "cline": [
        {
            "version": 1,
            "sessionId": SESSION,
            "origin": {"sessionId": SESSION, "version": "3.0.65"},
            "messages": [
                {"id": "u", "role": "user", "content": "PRIVATE"},
                {
                    "id": "msg_1",
                    "role": "assistant",
                    "ts": MS,
                    "content": [{"type": "text", "text": "PRIVATE"}],
                    "modelInfo": {"id": "gpt-4o", "provider": "openai-native", "family": "gpt"},
                    "metrics": {
                        "inputTokens": 1_001,
                        "outputTokens": 11,
                        "cacheReadTokens": 200,
                        "cacheWriteTokens": 0,
                        "cost": 0.0026125,
                    },
                },
            ],
        }
    ],
    "pi": [
        {"type": "session", "version": 3, "id": SESSION, "timestamp": AT, "cwd": "/w/search"},
        {
            "type": "message",
            "id": "a1b2c3d4",
            "timestamp": AT,
            "message": {
                "role": "assistant",
                "content": [{"type": "text", "text": "PRIVATE"}, {"type": "toolCall", "id": "t1"}],
                "provider": "openrouter",
                "model": "anthropic/claude-haiku-4.5",
                "responseId": "gen-1",
                "stopReason": "toolUse",
                "usage": {"input": 4, "output": 7, "cacheRead": 2_000, "cacheWrite": 100},
            },
        },
    ],
}
LINES["grok-build"] = [
    {"timestamp": MS // 1_000, "params": {"update": {"sessionUpdate": "user_message_chunk"}}},
    grok_turn(900, 40),
    grok_turn(1_200, 30, at=MS + 60_000),
]
TABLES = {
    "openclaw": [
        "CREATE TABLE transcript_events (session_id, seq, event_json, created_at)",
        f"""INSERT INTO transcript_events VALUES ('{SESSION}', 0, '{{"type":"session"}}', {MS})""",
        "INSERT INTO transcript_events "
        f"VALUES ('{SESSION}', 1, '{json.dumps(OPENCLAW)}', {MS + 9_000})",
    ],
    "zcode": [
        "CREATE TABLE session (id, directory)",
        f"INSERT INTO session VALUES ('{SESSION}', '/home/ada/work/search')",
        "CREATE TABLE model_usage (id, session_id, started_at, model_id, status, input_tokens, "
        "output_tokens, reasoning_tokens, cache_creation_input_tokens, cache_read_input_tokens, "
        "computed_total_tokens)",
        f"INSERT INTO model_usage VALUES ('u1', '{SESSION}', {MS}, 'GLM-5.3', 'completed', 900, "
        "40, 10, 0, 500, 940)",
        f"INSERT INTO model_usage VALUES ('u2', '{SESSION}', {MS}, 'GLM-5.3', 'error', 0, 0, 0, 0, "
        "0, 0)",
    ],
    "opencode": [
        "CREATE TABLE session (id, parent_id, directory)",
        f"INSERT INTO session VALUES ('{SESSION}', 'ses_0', '/elsewhere')",
        "CREATE TABLE message (id, session_id, data)",
        f"INSERT INTO message VALUES ('msg_1', '{SESSION}', '{json.dumps(OPENCODE)}')",
        f"INSERT INTO message VALUES ('msg_2', '{SESSION}', 'not json')",
    ],
    "kilo": [
        "CREATE TABLE session (id, parent_id, directory)",
        f"INSERT INTO session VALUES ('{SESSION}', 'ses_0', '/elsewhere')",
        "CREATE TABLE message (id, session_id, data)",
        f"INSERT INTO message VALUES ('msg_1', '{SESSION}', '{json.dumps(OPENCODE)}')",
    ],
    "goose": [
        "CREATE TABLE sessions (id, working_dir, created_at, updated_at, input_tokens, "
        "accumulated_input_tokens, accumulated_output_tokens, accumulated_cache_read_tokens, "
        "accumulated_cache_write_tokens, provider_name, model_config_json)",
        f"INSERT INTO sessions VALUES ('{SESSION}', '/home/ada/work/search', "
        "'2026-11-02 12:00:05', '2026-11-02 12:09:00', 7, 5900, 200, 5400, 310, 'anthropic', "
        """'{"model_name":"claude-haiku-4-5-20251001"}')""",
    ],
    "hermes": [
        "CREATE TABLE sessions (id, source, model, started_at, input_tokens, output_tokens, "
        "cache_read_tokens, cache_write_tokens, reasoning_tokens, billing_provider)",
        f"INSERT INTO sessions VALUES ('{SESSION}', 'cli', 'claude-haiku-4-5-20251001', "
        f"{MS / 1_000}, 1200, 300, 50, 20, 10, 'anthropic')",
    ],
    "copilot": [
        "CREATE TABLE sessions (id, cwd, branch, created_at)",
        f"INSERT INTO sessions VALUES ('{SESSION}', '/home/ada/work/search', 'main', '')",
        "CREATE TABLE assistant_usage_events (id INTEGER, session_id, model, input_tokens, "
        "output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, total_nano_aiu, "
        "created_at)",
        f"INSERT INTO assistant_usage_events VALUES (1, '{SESSION}', 'gpt-5.4-mini', 21343, 100, "
        "0, 20974, 0, 556570000, '2026-11-02 12:00:05')",
    ],
    "crush": [
        "CREATE TABLE sessions (id, parent_session_id, prompt_tokens)",
        f"INSERT INTO sessions VALUES ('{SESSION}', NULL, 900)",
        "CREATE TABLE messages (id, session_id, role, parts, model, created_at)",
        f"INSERT INTO messages VALUES ('m0', '{SESSION}', 'user', 'PRIVATE', NULL, {MS // 1000})",
        f"INSERT INTO messages VALUES ('m1', '{SESSION}', 'assistant', 'PRIVATE', 'm', {MS // 1000})",
    ],
}


def write_database(path, statements):
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)


def write_home(home, *agents, claude_lines=None):
    """The logs of these agents, or of all, below a home."""
    for agent in agents or PATHS:
        path = home / PATHS[agent]
        path.parent.mkdir(parents=True, exist_ok=True)
        if agent in TABLES:
            write_database(path, TABLES[agent])
        else:
            lines = (claude_lines if agent == "claude-code" else None) or LINES[agent]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    registry = home / ".local/share/crush/projects.json"
    registry.parent.mkdir(parents=True, exist_ok=True)
    registry.write_text(json.dumps({"projects": [{"path": str(home / "work/search")}]}))
