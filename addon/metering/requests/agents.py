"""Pure. Which agent made a request, and the session that its headers name.

The User-Agent identifies the agent. A header of an agent counts for that agent alone, since other
clients may use the same name for something else. The names come from the published packages of
Claude Code, Codex, Gemini CLI and OpenCode (November 2026), which `tests/clients` runs.
`dialects/request.py` reads facts from the body (Anthropic's `metadata.user_id`).
"""

from collections.abc import Mapping
from dataclasses import dataclass


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
    return _facts(agent, headers)


def _facts(agent: Agent, headers: Mapping[str, str]) -> AgentFacts:
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
