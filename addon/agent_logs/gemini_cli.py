"""Pure. Gemini CLI's logs: `<home>/tmp/<project>/chats/session-*.json`, one document a session, or
`.jsonl`, one message a line.

Derived from the open-source CLI (github.com/google-gemini/gemini-cli, `ChatRecordingService`): a
message of type `gemini` has `model` and `tokens` with input, output, cached, thoughts, tool, total.
Input includes cached tokens; output is without thoughts, as `candidatesTokenCount` is.
"""

from collections.abc import Iterator
from typing import Any

from addon.agent_logs.call import Lines, LoggedAgent, LoggedCall, folder_name, moment, text_or_none
from addon.dialects.vendors.gemini import GENERATE_CONTENT

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


def calls(lines: Lines) -> Iterator[LoggedCall]:
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
            agent=AGENT,
            at=at,
            session_id=session_id,
            number=number,
            model=text_or_none(message["model"]),
            usage={theirs: tokens[ours] for ours, theirs in _WORDS.items() if ours in tokens},
            project=folder_name(session.get("directory") or session.get("projectRoot")),
            tool_calls=message["tools"],
        )


AGENT = LoggedAgent(
    name="gemini-cli",
    origin="https://generativelanguage.googleapis.com:443",
    provider="gcp.gemini",
    path="/v1beta/models",
    dialect=GENERATE_CONTENT,
    home_variable="GEMINI_CLI_HOME",
    home=".gemini",
    patterns=("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl"),
    calls=calls,
)
