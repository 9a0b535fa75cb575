"""Session logs as the three agents write them, made by hand; no text of anybody's."""

import json

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


def codex_lines():
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
            "payload": {"type": "token_count", "info": info},
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


def write_home(home, *, claude_lines=None):
    """The folders of all three agents below a home."""
    folder = home / ".claude" / "projects" / "-home-ada-work-search"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in claude_lines or [claude()])
    (folder / f"{SESSION}.jsonl").write_text(text)
    folder = home / ".codex" / "sessions" / "2026" / "11" / "02"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in codex_lines())
    (folder / f"rollout-2026-11-02T12-00-00-{SESSION}.jsonl").write_text(text)
    folder = home / ".gemini" / "tmp" / "ab12" / "chats"
    folder.mkdir(parents=True)
    (folder / "session-2026-11-02T12-00-abcd.json").write_text(json.dumps(gemini()))
