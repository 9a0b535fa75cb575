"""Pure. One answer of a model in a session log, and its exchange."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from addon.dialects.dialect import Dialect
from addon.dialects.facts import AnswerContext, Facts
from addon.framing import json_values
from ledger.model.duplicates import content_digest
from ledger.model.exchange import Exchange, Outcome, Quota, Reading, Source, State, UsageSource

METER_VERSION = "log-1"
"""The version of the log readers; it is raised when one of them reads a log differently."""
FOLDER_NAME_MAX = 100

type Booked = tuple[Exchange, Reading]

type Lines = Iterable[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAgent:
    """An agent, its default upstream, and its logs."""

    name: str
    """The value of `exchanges.agent`."""
    origin: str
    provider: str
    path: str
    dialect: Dialect
    home_variable: str
    """The environment variable that moves the agent's folder."""
    home: str
    """The agent's folder in the user's home."""
    patterns: tuple[str, ...]
    calls: Callable[[Lines], Iterator["LoggedCall"]]
    """The answers of one log, each once."""

    def folder(self, environment: Mapping[str, str], home: Path) -> Path:
        """The folder of this agent's files."""
        named = environment.get(self.home_variable)
        return Path(named) if named else home / self.home


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """One answer. None: not in the log."""

    agent: LoggedAgent
    at: datetime
    """The time of the answer in the log, UTC."""
    session_id: str
    number: int
    """Of this answer in its session, for logs that name no response."""
    model: str | None
    usage: Mapping[str, Any]
    """The usage object, with the keys of the vendor's API."""
    response_id: str | None = None
    finish_reason: str | None = None
    parent_session_id: str | None = None
    project: str | None = None
    """The name of the folder that the agent worked in."""
    git_branch: str | None = None
    user_agent: str | None = None
    tool_calls: int | None = None
    service_tier: str | None = None
    quotas: tuple[Quota, ...] = ()

    @property
    def exchange_id(self) -> str:
        """An id derived from the logged facts of the answer, so that a second import finds it."""
        named = self.response_id or f"{self.session_id}/{self.number}"
        text = f"{self.agent.name}\0{named}"
        return f"log-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


def booked(call: LoggedCall, *, now: datetime, capture: str, tags: Mapping[str, str]) -> Booked:
    """The exchange and the reading of a call.

    `now`: the time of reading; `capture`: the log file. The key and the bytes of the answer are not
    known.
    """
    facts = Facts(of=AnswerContext(provider=call.agent.provider))
    usage_json = json_values.dumps(dict(call.usage))
    usage = call.agent.dialect.usage_of(dict(call.usage), facts)
    exchange = Exchange(
        id=call.exchange_id,
        origin=call.agent.origin,
        provider=call.agent.provider,
        dialect=call.agent.dialect.name,
        operation=call.agent.dialect.operation,
        path=call.agent.path,
        opened_at=call.at,
        state=State.SETTLED,
        outcome=Outcome.COMPLETE,
        request_model=call.model,
        response_model=call.model,
        response_id=call.response_id,
        finish_reason=call.finish_reason,
        service_tier=call.service_tier,
        streamed=True,
        settled_at=call.at,
        session_id=call.session_id,
        parent_session_id=call.parent_session_id,
        project=call.project,
        git_branch=call.git_branch,
        agent=call.agent.name,
        user_agent=call.user_agent,
        tool_calls=call.tool_calls,
        quotas=call.quotas,
        source=Source.IMPORT,
        capture=capture,
        tags=dict(tags),
        content_digest=content_digest(
            response_model=call.model,
            created=None,
            finish_reason=call.finish_reason,
            usage_json=usage_json,
        )
        if call.response_id is not None
        else None,
    )
    reading = Reading(
        exchange_id=exchange.id,
        opened_at=call.at,
        meter_version=METER_VERSION,
        usage_source=UsageSource.REPORTED,
        usage=usage,
        usage_json=usage_json,
        read_at=now,
    )
    return exchange, reading


def folder_name(path: object) -> str | None:
    """The last part of a folder's path, of either kind of system; None if there is none."""
    if not isinstance(path, str):
        return None
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2][:FOLDER_NAME_MAX] or None


def moment(text: object) -> datetime | None:
    """An ISO time with an offset; None if it is none, or outside of 1970 to 9999."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is not None and 1970 <= found.year < 9999 else None
    except ValueError:
        return None


def text_or_none(value: object) -> str | None:
    """A text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None
