"""Pure. Which agent made a request, the session that its headers name, and what the request is for.

The User-Agent identifies the agent. A header of an agent counts for that agent alone, since other
clients may use the same name for something else. The names come from the published packages of
Claude Code, Codex, Gemini CLI and OpenCode (November 2026), which `tests/clients` runs.
`dialects/request.py` reads facts from the body (Anthropic's `metadata.user_id`).

Agents ask for more than turns of a conversation: titles, summaries of a conversation that got too
long, checks of commands. The beginnings of their own prompts tell these apart. They are read from
the same packages and their sources, and no text of a request is kept. A request of another client,
or one that no rule fits, has no purpose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import Struct

from ledger.model.exchange import REFUSED_STATUS

TEXT_CHARACTERS = 1_024
"""Of one text of a request; the prompts of agents say at their beginning what they are for."""
TEXTS_MAX = 4
TURN = "turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent."""

    name: str
    """The value of `exchanges.agent`."""
    user_agents: tuple[str, ...]
    """How its User-Agent begins, in lower case."""
    session_headers: tuple[str, ...] = ()
    """In order of preference."""
    parent_headers: tuple[str, ...] = ()
    """Headers that name the session that started this one (a subagent's)."""
    subagent_header: str | None = None
    """The header that names a subagent within the session. The subagent's session is then
    `<session>/<subagent>`, and its parent is the session."""
    refused_status: int = REFUSED_STATUS
    """Of an answer that it does not repeat."""


AGENTS = (
    Agent(
        name="claude-code",
        user_agents=("claude-cli/", "claude-code/"),
        session_headers=("x-claude-code-session-id",),
        subagent_header="x-claude-code-agent-id",
    ),
    Agent(
        name="codex",
        user_agents=("codex_cli_rs/", "codex_exec/", "codex-tui/", "codex_vscode/", "codex_sdk"),
        session_headers=("session_id", "session-id", "conversation_id", "thread-id"),
        parent_headers=("x-codex-parent-thread-id",),
        refused_status=400,  # it asks six times after a 402
    ),
    Agent(name="gemini-cli", user_agents=("geminicli/", "geminicli-")),
    Agent(
        name="opencode",
        user_agents=("opencode/",),
        session_headers=("x-opencode-session", "x-session-affinity", "x-session-id"),
        parent_headers=("x-parent-session-id",),
    ),
    Agent(name="aider", user_agents=("aider/",)),
    Agent(name="goose", user_agents=("goose/",)),
    Agent(name="copilot", user_agents=("githubcopilotchat/", "copilot/")),
    Agent(name="droid", user_agents=("factory-cli/",)),
    Agent(name="cursor", user_agents=("cursor/",)),
    Agent(name="cline", user_agents=("cline/",)),
    Agent(name="roo-code", user_agents=("roocode/", "roo-code/")),
    Agent(name="qwen-code", user_agents=("qwencode/", "qwen-code/")),
)
"""One row for each agent."""
_USER_AGENTS = tuple(name for agent in AGENTS for name in agent.user_agents)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """Facts from the headers of a request. None: the headers have no such fact."""

    agent: str | None = None
    session_id: str | None = None
    parent_session_id: str | None = None


NO_AGENT = AgentFacts()


def agent_of(headers: Mapping[str, str]) -> AgentFacts:
    """The agent behind a request. `headers`: by lower-case name."""
    user_agent = headers.get("user-agent", "").lower()
    if not user_agent.startswith(_USER_AGENTS):
        return NO_AGENT
    agent = next(one for one in AGENTS if user_agent.startswith(one.user_agents))
    session = _first(headers, agent.session_headers)
    subagent = headers.get(agent.subagent_header) if agent.subagent_header else None
    if session and subagent:
        return AgentFacts(
            agent=agent.name, session_id=f"{session}/{subagent}", parent_session_id=session
        )
    return AgentFacts(
        agent=agent.name,
        session_id=session,
        parent_session_id=_first(headers, agent.parent_headers),
    )


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := headers.get(name))), None)


def refused_status_of(agent: str | None) -> int:
    """The status of the answer to a request that a cap refuses, of an agent or another client."""
    return next((one.refused_status for one in AGENTS if one.name == agent), REFUSED_STATUS)


class Shape(NamedTuple):
    """What is looked at in the body of a chat request."""

    system: tuple[str, ...] = ()
    """The beginnings of the first texts of the system prompt."""
    last: tuple[str, ...] = ()
    """The beginnings of the last texts of the last message."""
    max_tokens: int | None = None


class PurposeRule(Struct, frozen=True, kw_only=True):
    """What must be so for a purpose; each kind of it that is given."""

    purpose: str
    agents: tuple[str, ...] = ()
    """Empty: any client."""
    system: tuple[str, ...] = ()
    """How a text of the system prompt begins, one of these; or:"""
    last: tuple[str, ...] = ()
    """What a text of the last message has in its beginning, one of these."""
    headers: tuple[str, ...] = ()
    """One of these is there."""
    values: frozenset[str] = frozenset()
    """Its values; empty: any but 0."""
    paths: tuple[str, ...] = ()
    """How the path ends."""
    max_tokens: int = 0
    """At most so many tokens are asked for."""
    sources: tuple[str, ...]


_CLAUDE_CODE = ("claude-code",)
_CODEX = ("codex",)
_AGENTS = (*_CLAUDE_CODE, *_CODEX, "gemini-cli", "qwen-code", "opencode")

RULES = (
    PurposeRule(
        purpose="count-only",
        paths=("/count_tokens", ":countTokens", "/responses/input_tokens"),
        sources=("https://docs.claude.com/en/api/messages-count-tokens",),
    ),
    PurposeRule(
        purpose="compaction",
        paths=("/responses/compact",),
        sources=("https://platform.openai.com/docs/api-reference/responses/compact",),
    ),
    PurposeRule(
        purpose="compaction",
        agents=_AGENTS,
        system=(
            "You are a helpful AI assistant tasked with summarizing conversations",
            "You are an anchored context summarization assistant",
            "You are the component that summarizes internal chat history into a given structure",
            "You are a specialized system component responsible for distilling chat history",
        ),
        last=(
            "Your task is to create a detailed summary of the conversation",
            "You are performing a CONTEXT CHECKPOINT COMPACTION",
        ),
        sources=(
            "Claude Code 2.1.156",
            "opencode src/agent/prompt/compaction.txt",
            "gemini-cli packages/core/src/core/prompts.ts and prompts/snippets.ts",
            "codex-rs/core/templates/compact/prompt.md",
        ),
    ),
    PurposeRule(
        purpose="compaction",
        agents=_CODEX,
        headers=("x-openai-subagent",),
        values=frozenset(("compact",)),
        sources=("codex-rs, the header x-openai-subagent",),
    ),
    PurposeRule(
        purpose="title",
        agents=_AGENTS,
        system=(
            "Analyze if this message indicates a new conversation topic",
            "Summarize this coding conversation in under 50 characters",
            "Please write a 5-10 word title for the following conversation",
            "Generate a concise, sentence-case title",
            "You are a title generator",
        ),
        last=("Summarize the user's primary intent or goal in this conversation in ONE sentence",),
        sources=(
            "Claude Code 1.0 to 2.1",
            "opencode src/agent/prompt/title.txt",
            "gemini-cli packages/core/src/services/sessionSummaryService.ts",
        ),
    ),
    PurposeRule(
        purpose="safety check",
        agents=_AGENTS,
        system=(
            "Your task is to process Bash commands that an AI coding agent wants to run",
            "Extract any file paths that this command reads or modifies",
            "You are a sophisticated AI diagnostic agent",
        ),
        last=("You are a sophisticated AI diagnostic agent",),
        sources=(
            "Claude Code 1.0 to 2.1",
            "gemini-cli packages/core/src/services/loopDetectionService.ts, until 0.8 in `last`",
        ),
    ),
    PurposeRule(
        purpose="probe",
        agents=_AGENTS,
        last=("Analyze *only* the content and structure of your immediately preceding response",),
        sources=("gemini-cli packages/core/src/utils/nextSpeakerChecker.ts",),
    ),
    PurposeRule(
        purpose="probe",
        agents=_CLAUDE_CODE,
        max_tokens=1,
        sources=("Claude Code 2.1: its question for the quota asks for one token",),
    ),
    PurposeRule(
        purpose="retry",
        headers=("x-stainless-retry-count",),
        sources=("https://github.com/openai/openai-python and other SDKs that Stainless makes",),
    ),
    PurposeRule(
        purpose="subagent",
        agents=_AGENTS,
        headers=(
            "x-claude-code-agent-id",
            "x-openai-subagent",
            "x-codex-parent-thread-id",
            "x-parent-session-id",
        ),
        sources=("Claude Code 2.1", "codex-rs, its headers of a spawned thread", "opencode"),
    ),
)
"""In this order; the first that fits names the purpose."""
_OFF = ("", "0")
_OF_ANY = tuple(rule for rule in RULES if not rule.agents)
_OF_AGENT = {
    agent: tuple(rule for rule in RULES if not rule.agents or agent in rule.agents)
    for agent in _AGENTS
}


def purpose_of(
    agent: str | None, headers: Mapping[str, str], path: str, shape: Shape | None
) -> str | None:
    """What a request is for; None: nothing tells.

    `headers`: by lower-case name. `path`: without the query. `shape`: None if the body is not read;
    then a request of an agent need not be a turn.
    """
    rules = _OF_AGENT.get(agent or "")
    system, last, asked_tokens = shape or Shape()
    for rule in rules or _OF_ANY:
        if rule.paths and not path.endswith(rule.paths):
            continue
        if rule.headers:
            given = [headers[name] for name in rule.headers if headers.get(name, "0") not in _OFF]
            if not given or (rule.values and not rule.values.intersection(given)):
                continue
        if (rule.system or rule.last) and not (
            [text for text in system if text.startswith(rule.system)]
            or [word for text in last for word in rule.last if word in text]
        ):
            continue
        if not rule.max_tokens or 0 < (asked_tokens or 0) <= rule.max_tokens:
            return rule.purpose
    return TURN if rules and shape is not None else None


def shape_of(values: Mapping[str, Any]) -> Shape:
    """The shape of a chat request, in any wire format of `segments.py`."""
    messages = values.get("messages", values.get("contents", values.get("input")))
    if not isinstance(messages, list):
        messages = [messages]
    system: list[str] = []
    for name in ("system", "instructions", "systemInstruction", "system_instruction"):
        if name in values:
            system += _texts(values[name])
    for message in messages[:TEXTS_MAX]:
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            system += _texts(message)
    most = values.get("max_tokens", values.get("max_output_tokens"))
    return Shape(
        tuple(system[: 2 * TEXTS_MAX]),
        tuple(_texts(messages[-1], is_last=True)) if messages else (),
        most if type(most) is int else None,
    )


def _texts(value: Any, *, is_last: bool = False) -> list[str]:
    """The texts of a message, or of a system prompt."""
    if isinstance(value, dict):
        value = value.get("content", value.get("parts", value.get("text")))
    if isinstance(value, str):
        return [value[:TEXT_CHARACTERS].strip()]
    if not isinstance(value, list):
        return []
    parts = value[-TEXTS_MAX:] if is_last else value[:TEXTS_MAX]
    found = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return [text[:TEXT_CHARACTERS].strip() for text in found if isinstance(text, str)]
