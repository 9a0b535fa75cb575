"""Edge (a file of the package). The agents whose logs are read: `agents.toml`, and functions for
what paths cannot say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from addon.dialects.facts import AnswerContext, Facts
from addon.dialects.vendors.anthropic import MESSAGES
from addon.parts.agent_logs.codex import codex_calls
from addon.parts.agent_logs.reader import LoggedAgent
from ledger.model.usage import Usage

FORMATS_FILE = Path(__file__).with_name("agents.toml")


def messages_usage(usage: Mapping[str, Any], provider: str) -> Usage:
    """The figures of a usage object of the Messages API."""
    return MESSAGES.usage_of(usage, Facts(of=AnswerContext(provider=provider)))


_FUNCTIONS: Mapping[str, Mapping[str, Any]] = {
    "claude-code": {"usage_of": messages_usage},
    "codex": {"calls": codex_calls},
}
AGENTS: Mapping[str, LoggedAgent] = {
    name: msgspec.structs.replace(agent, name=name, **_FUNCTIONS.get(name, {}))
    for name, agent in msgspec.toml.decode(
        FORMATS_FILE.read_bytes(), type=dict[str, LoggedAgent]
    ).items()
}
