"""Pure. Claude Code's logs: `<config>/projects/<project>/<session>.jsonl`.

https://docs.claude.com/en/docs/claude-code documents where sessions are stored; the format is not
documented and was derived from logs of versions 1 and 2. A line of type `assistant` holds one block
of an answer in the format of the Messages API: an answer has several lines with one `message.id`,
each with its usage so far, and the last is right (ccusage/ccusage#888, #994).
"""

from collections.abc import Iterator
from typing import Any

from addon.agent_logs.call import Lines, LoggedAgent, LoggedCall, folder_name, moment, text_or_none
from addon.dialects.counts import objects_at
from addon.dialects.vendors.anthropic import MESSAGES

SYNTHETIC = "<synthetic>"
"""The model of messages that Claude Code generated itself, without a call."""
OPEN_MAX = 256
"""Answers whose lines may be interleaved (subagents); an older one counts as complete."""


def calls(lines: Lines) -> Iterator[LoggedCall]:
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
            yield from _call(*waiting.pop(oldest))
    for line, tools in waiting.values():
        yield from _call(line, tools)


AGENT = LoggedAgent(
    name="claude-code",
    origin="https://api.anthropic.com:443",
    provider="anthropic",
    path="/v1/messages",
    dialect=MESSAGES,
    home_variable="CLAUDE_CONFIG_DIR",
    home=".claude",
    patterns=("projects/**/*.jsonl",),
    calls=calls,
)


def _call(line: dict[str, Any], tools: set[str]) -> Iterator[LoggedCall]:
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
        agent=AGENT,
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
