"""Pure. The logs of Claude Code, Codex and Gemini CLI, and the answers in them.

Claude Code   `<config>/projects/<project>/<session>.jsonl`.
    https://docs.claude.com/en/docs/claude-code documents where sessions are stored; the format is
    not documented and was derived from logs of versions 1 and 2. A line of type `assistant` holds
    one block of an answer in the format of the Messages API: an answer has several lines with one
    `message.id`, each with its usage so far, and the last is right (ccusage/ccusage#888, #994).
Codex         `<home>/sessions/YYYY/MM/DD/rollout-*.jsonl`.
    Derived from the types of the open-source CLI (github.com/openai/codex: `RolloutItem`,
    `TokenUsageInfo`). `session_meta` names session, folder and branch, `turn_context` the model; an
    `event_msg` of type `token_count` follows each answer with its usage (`last_token_usage`) and
    the session's sum (`total_token_usage`), and with what its answer stated of limits
    (`rate_limits`). The same event may be repeated; an unchanged sum shows this. Input includes
    cached tokens, output includes reasoning, as in the Responses API. No response id is kept.
Gemini CLI    `<home>/tmp/<project>/chats/session-*.json`, one document a session, or `.jsonl`, one
    message a line. Derived from the open-source CLI (github.com/google-gemini/gemini-cli,
    `ChatRecordingService`): a message of type `gemini` has `model` and `tokens` with input, output,
    cached, thoughts, tool, total. Input includes cached tokens; output is without thoughts, as
    `candidatesTokenCount` is.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from addon.agent_logs.call import Lines, LoggedAgent, LoggedCall, folder_name, moment, text_or_none
from addon.dialects.counts import lookup, objects_at
from addon.dialects.openai.responses import RATE_LIMITS, RESPONSES
from addon.dialects.vendors.anthropic import MESSAGES
from addon.dialects.vendors.gemini import GENERATE_CONTENT
from addon.metering.quotas import quotas_of_event
from ledger.model.exchange import Quota

SYNTHETIC = "<synthetic>"
"""The model of messages that Claude Code generated itself, without a call."""
OPEN_MAX = 256
"""Answers whose lines may be interleaved (subagents); an older one counts as complete."""
_PARENT = "source.subagent.thread_spawn.parent_thread_id"
_WORDS = {
    "input": "promptTokenCount",
    "output": "candidatesTokenCount",
    "cached": "cachedContentTokenCount",
    "thoughts": "thoughtsTokenCount",
    "tool": "toolUsePromptTokenCount",
    "total": "totalTokenCount",
}
"""The log's keys -> those of `usageMetadata`."""
_OF_SESSION = ("sessionId", "directory", "projectRoot")
_OF_MESSAGE = ("tokens", "timestamp", "model")
"""What is kept of each line until the log ends: a session's texts may have gigabytes."""


def claude_code_calls(lines: Lines) -> Iterator[LoggedCall]:
    """The answers of one log, each once, with its last usage."""
    waiting: dict[str, tuple[dict[str, Any], set[str]]] = {}
    for line in lines:
        message = line.get("message")
        if line.get("type") != "assistant" or not isinstance(message, dict):
            continue
        name = text_or_none(message.get("id"))
        if name is None or message.get("model") == SYNTHETIC:
            continue
        _, tools = waiting.pop(name, (line, set()))
        # In place: an answer may have as many lines as it calls tools, and some are repeated.
        blocks = objects_at(message, "content")
        tools.update(str(each.get("id")) for each in blocks if each.get("type") == "tool_use")
        waiting[name] = (line, tools)
        if len(waiting) > OPEN_MAX:
            oldest = next(iter(waiting))
            yield from _claude_code_call(*waiting.pop(oldest))
    for line, tools in waiting.values():
        yield from _claude_code_call(line, tools)


CLAUDE_CODE = LoggedAgent(
    name="claude-code",
    origin="https://api.anthropic.com:443",
    provider="anthropic",
    path="/v1/messages",
    dialect=MESSAGES,
    home_variable="CLAUDE_CONFIG_DIR",
    home=".claude",
    patterns=("projects/**/*.jsonl",),
    calls=claude_code_calls,
)


def _claude_code_call(line: dict[str, Any], tools: set[str]) -> Iterator[LoggedCall]:
    message = line["message"]
    at = moment(line.get("timestamp"))
    session_id = text_or_none(line.get("sessionId"))
    usage = message.get("usage")
    if at is None or session_id is None or not isinstance(usage, dict):
        return
    is_subagent = line.get("isSidechain") is True
    agent_id = text_or_none(line.get("agentId"))
    version = text_or_none(line.get("version"))
    yield LoggedCall(
        agent=CLAUDE_CODE,
        at=at,
        session_id=f"{session_id}/{agent_id}" if is_subagent and agent_id else session_id,
        parent_session_id=session_id if is_subagent else None,
        number=0,
        model=text_or_none(message.get("model")),
        usage=usage,
        response_id=text_or_none(message.get("id")),
        finish_reason=text_or_none(message.get("stop_reason")),
        project=folder_name(line.get("cwd")),
        git_branch=text_or_none(line.get("gitBranch")),
        user_agent=f"claude-cli/{version}" if version else None,
        tool_calls=len(tools),
        service_tier=text_or_none(usage.get("service_tier")),
    )


def codex_calls(lines: Lines) -> Iterator[LoggedCall]:
    """The answers of one log, each once."""
    session: dict[str, Any] = {}
    model = None
    tools = 0
    number = 0
    seen: object = None
    for line in lines:
        payload = line.get("payload")
        if not isinstance(payload, dict):
            continue
        match line.get("type"), payload.get("type"):
            case "session_meta", _:
                session = (
                    session or payload
                )  # a forked session repeats its parent's `session_meta` after its own
            case "turn_context", _:
                model = text_or_none(payload.get("model")) or model
            case "response_item", "function_call" | "custom_tool_call" | "local_shell_call":
                tools += 1
            case "event_msg", "token_count":
                last = lookup(payload, "info.last_token_usage")
                total = lookup(payload, "info.total_token_usage")
                at = moment(line.get("timestamp"))
                session_id = text_or_none(session.get("id"))
                if not isinstance(last, dict) or at is None or session_id is None or total == seen:
                    continue
                client = text_or_none(session.get("originator"))
                version = text_or_none(session.get("cli_version"))
                seen = total
                number += 1
                yield LoggedCall(
                    agent=CODEX,
                    at=at,
                    session_id=session_id,
                    parent_session_id=text_or_none(lookup(session, _PARENT))
                    or text_or_none(session.get("forked_from_id")),
                    number=number,
                    model=model,
                    usage=_codex_usage(last),
                    project=folder_name(session.get("cwd")),
                    git_branch=text_or_none(lookup(session, "git.branch")),
                    user_agent=f"{client}/{version}" if client and version else client,
                    tool_calls=tools,
                    quotas=_codex_quotas(payload.get("rate_limits"), at),
                )
                tools = 0


CODEX = LoggedAgent(
    name="codex",
    origin="https://api.openai.com:443",
    provider="openai",
    path="/v1/responses",
    dialect=RESPONSES,
    home_variable="CODEX_HOME",
    home=".codex",
    patterns=("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl"),
    calls=codex_calls,
)


def _codex_quotas(limits: object, at: datetime) -> tuple[Quota, ...]:
    """What stands beside the usage of limits (`RateLimitSnapshot`), read as the event of the wire,
    which has other names for the resets."""
    if not isinstance(limits, dict):
        return ()
    windows = {
        slot: {
            **window,
            "reset_at": window.get("resets_at"),
            "reset_after_seconds": window.get("resets_in_seconds"),
        }
        for slot in ("primary", "secondary")
        if isinstance(window := limits.get(slot), dict)
    }
    event = {"type": RATE_LIMITS, "metered_limit_name": limits.get("limit_id")}
    return quotas_of_event(event | {"rate_limits": windows}, arrived_at=at)


def _codex_usage(last: dict[str, Any]) -> dict[str, Any]:
    """The usage with the keys of the Responses API, whose figures these are."""
    usage: dict[str, Any] = {
        name: last[name]
        for name in ("input_tokens", "output_tokens", "total_tokens")
        if name in last
    }
    if "cached_input_tokens" in last:
        usage["input_tokens_details"] = {"cached_tokens": last["cached_input_tokens"]}
    if "reasoning_output_tokens" in last:
        usage["output_tokens_details"] = {"reasoning_tokens": last["reasoning_output_tokens"]}
    return usage


def gemini_cli_calls(lines: Lines) -> Iterator[LoggedCall]:
    """The answers of one log; a message that was saved again counts once, in its last version."""
    session: dict[str, Any] = {}
    messages: dict[str, dict[str, Any]] = {}
    for line in lines:
        if "messages" in line or "sessionId" in line:
            session.update((name, line[name]) for name in _OF_SESSION if name in line)
        listed = line.get("messages")
        for message in listed if isinstance(listed, list) else [line]:
            if isinstance(message, dict) and message.get("type") == "gemini":
                name = text_or_none(message.get("id")) or str(len(messages))
                messages[name] = {key: message.get(key) for key in _OF_MESSAGE}
                tools = message.get("toolCalls")
                messages[name]["tools"] = len(tools) if isinstance(tools, list) else 0
    session_id = text_or_none(session.get("sessionId"))
    if session_id is None:
        return
    for number, message in enumerate(messages.values(), start=1):
        tokens = message["tokens"]
        at = moment(message["timestamp"])
        if not isinstance(tokens, dict) or at is None:
            continue
        yield LoggedCall(
            agent=GEMINI_CLI,
            at=at,
            session_id=session_id,
            number=number,
            model=text_or_none(message["model"]),
            usage={theirs: tokens[ours] for ours, theirs in _WORDS.items() if ours in tokens},
            project=folder_name(session.get("directory") or session.get("projectRoot")),
            tool_calls=message["tools"],
        )


GEMINI_CLI = LoggedAgent(
    name="gemini-cli",
    origin="https://generativelanguage.googleapis.com:443",
    provider="gcp.gemini",
    path="/v1beta/models",
    dialect=GENERATE_CONTENT,
    home_variable="GEMINI_CLI_HOME",
    home=".gemini",
    patterns=("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl"),
    calls=gemini_cli_calls,
)

AGENTS: Mapping[str, LoggedAgent] = {
    agent.name: agent for agent in (CLAUDE_CODE, CODEX, GEMINI_CLI)
}
