"""Pure. The one reader of agents' logs: a format is a table of paths, and this follows them.

A path begins with what it looks in: `line` (one JSON object of the log: a line, a document, a row
of a database), `record` (the object of one answer in it), `session` (what other lines stated and
the format keeps) or `file` (the file's name, then its folders, the nearest first).

An answer may have several lines, each with the counts so far, interleaved with other answers, and
some are repeated: they are one call, with the greatest counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from addon.dialects.counts import Counts, lookup
from addon.dialects.facts import id_of, name_of, text_of, token_of
from addon.parts.agent_logs.call import (
    REGION_UNKNOWN,
    SESSION_SUM,
    UNKNOWN_SERVER,
    LoggedCall,
    folder_name,
    moment,
)
from ledger.model.providers import provider_of
from ledger.model.usage import NO_USAGE, Usage, count_of, sum_of

OPEN_ANSWERS_MAX = 256
"""Answers whose lines may be interleaved (subagents); an older one counts as complete."""
ANSWER_MAX = timedelta(hours=1)
"""The longest time between two lines of one answer. Servers that number their answers anew after a
restart give a later one the same id."""

UNITS = "units."

type Lines = Iterable[dict[str, Any]]
type Condition = Mapping[str, tuple[str, ...]]
"""Path -> its possible values; an empty one: it may be missing."""

VERTEX, BEDROCK, LOCAL = "aiplatform.googleapis.com", "bedrock-runtime.amazonaws.com", "localhost"
REGIONAL = (VERTEX, BEDROCK, "openai.azure.com")
"""Hosts whose bill depends on a region, which no log states."""
SERVER_OF_ID = {"msg_vrtx_": VERTEX, "msg_bdrk_": BEDROCK, "gen-": "openrouter.ai"}
"""How an answer's id begins -> the host that served it, whatever the agent believes."""
SERVERS = {
    "anthropic": "api.anthropic.com",
    "openai": "api.openai.com",
    "openai-codex": "chatgpt.com",
    "google": "generativelanguage.googleapis.com",
    "gemini": "generativelanguage.googleapis.com",
    "google-vertex": VERTEX,
    "google-vertex-anthropic": VERTEX,
    "vertexai": VERTEX,
    "amazon-bedrock": BEDROCK,
    "bedrock": BEDROCK,
    "azure": "openai.azure.com",
    "openrouter": "openrouter.ai",
    "opencode": "opencode.ai",
    "github-copilot": "api.githubcopilot.com",
    "copilot": "api.githubcopilot.com",
    "deepseek": "api.deepseek.com",
    "groq": "api.groq.com",
    "xai": "api.x.ai",
    "mistral": "api.mistral.ai",
    "moonshotai": "api.moonshot.ai",
    "zai": "api.z.ai",
    "cerebras": "api.cerebras.ai",
    "fireworks-ai": "api.fireworks.ai",
    "togetherai": "api.together.xyz",
    "ollama": LOCAL,
    "oss": LOCAL,
    "lmstudio": LOCAL,
    "llama.cpp": LOCAL,
}
"""An agent's word for who serves it -> the host. Any other word is a server of the user's own."""


class SessionMembers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a format keeps of a line for the answers behind it."""

    when: Condition
    keep: Mapping[str, str]
    """Name -> path."""


class LoggedAgent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent and the format of its logs."""

    name: str = ""
    """The value of `exchanges.agent`."""
    title: str
    """What its makers call it."""
    client: str = ""
    """How its User-Agent names it, if not by the name."""
    homes: tuple[str, ...]
    """The agent's folders, below the user's home."""
    variable: tuple[str, str] = ("", "")
    """The environment variable that moves the folder, and the folder below its value."""
    patterns: tuple[str, ...]
    signs: tuple[str, ...] = ()
    """Paths of members by which a log without a known name is recognised."""
    statements: tuple[str, ...] = ()
    """Of a database: SELECTs whose rows are the lines; a column `data` is JSON. Versions have
    different tables, and all statements that a database can answer count."""
    server: str = UNKNOWN_SERVER
    """The host where nothing else is stated."""
    models: str = ""
    """How the names of that host's models begin; any other model was served elsewhere."""
    path: str = "/"
    dialect: str = UNKNOWN_SERVER
    session: tuple[SessionMembers, ...] = ()
    mark: str = ""
    """A text in each line of an answer: a line without it is not parsed. Empty: all lines are."""
    records: tuple[str, ...] = ("line",)
    """Where the objects of answers are, or lists of them."""
    where: Condition = {}
    """What an answer's object has."""
    members: Mapping[str, tuple[str, ...]] = {}
    """Fact of a call -> its paths, the best first."""
    tools: tuple[str, str] = ("", "")
    """The path of a list with the answer's tool calls, and their type if it has other items."""
    usage: str = ""
    """The path of the usage object; empty: the log has none."""
    counts: Mapping[str, tuple[str, ...]] = {}
    """As `usage_of` takes them."""
    usage_of: Callable[[Mapping[str, Any], str], Usage] | None = None
    """Instead of the counts: a function of the usage object and the provider."""
    final: tuple[str, ...] = ()
    """Paths of which one is there once an answer is complete; none: it is logged when it is."""
    is_session_sum: bool = False
    """A record has the sums of a session."""
    copies_renew_ids: bool = False
    """A fork copies answers under new ids."""
    calls: Callable[[Lines], Iterator[LoggedCall]] | None = None
    """Instead of the table, for a format that paths cannot describe."""


def usage_of(columns: Mapping[str, tuple[str, ...]], usage: Mapping[str, Any]) -> Usage:
    """The figures of a usage object whose columns are sums of counts; `total` is its own sum, and
    `units.NAME` counts units."""
    counts = Counts(usage)
    sums = {name: sum_of(*map(counts.first, paths)) for name, paths in columns.items()}
    total = sums.pop("total", None)
    visible = counts.first(columns["output_tokens"][0])
    if total is not None and total == sum_of(sums["input_tokens"], visible):
        sums["output_tokens"] = visible  # by its own total, the reasoning is part of it
    units = {name: sums.pop(name) for name in columns if name.startswith(UNITS)}
    return Usage(
        **sums,  # type: ignore[arg-type]  # columns of counts alone
        tool_units={name.removeprefix(UNITS): count for name, count in units.items() if count},
        remarks=counts.remarks,
    )


def calls_of(agent: LoggedAgent, lines: Lines, file: PurePath) -> Iterator[LoggedCall]:
    """The answers of one log."""
    if agent.calls is not None:
        yield from agent.calls(lines)
        return
    names = [file.name.partition(".")[0], *(folder.name for folder in file.parents)]
    scope: dict[str, Any] = {"session": {}, "file": names}
    open_answers: dict[tuple[str, ...], _Answer] = {}
    for line in lines:
        scope["line"] = line
        for kept in agent.session:
            if _holds(kept.when, scope):
                found = {name: lookup(scope, path) for name, path in kept.keep.items()}
                scope["session"].update((k, v) for k, v in found.items() if v is not None)
        for path in agent.records:
            listed = lookup(scope, path)
            for record in listed if isinstance(listed, list) else [listed]:
                scope["record"] = record
                call = _call(agent, scope, open_answers) if _holds(agent.where, scope) else None
                if call is None:
                    continue
                before = open_answers.pop(call.key, None)
                if before is not None and not before.goes_on_with(call):
                    yield before.call(agent)
                    before = None
                open_answers[call.key] = before or _Answer(call)
                path_of_tools, kind = agent.tools
                items = lookup(scope, path_of_tools)
                tools = {
                    str(item.get("id") or place)
                    for place, item in enumerate(items if isinstance(items, list) else [])
                    if isinstance(item, dict) and kind in ("", item.get("type"))
                }
                open_answers[call.key].add(call, tools)
                if len(open_answers) > OPEN_ANSWERS_MAX:
                    yield open_answers.pop(next(iter(open_answers))).call(agent)
    for answer in open_answers.values():
        yield answer.call(agent)


@dataclass(slots=True)
class _Answer:
    """The lines of one answer so far."""

    best: LoggedCall
    tools: set[str] = field(default_factory=set)

    def goes_on_with(self, call: LoggedCall) -> bool:
        """Whether a line with the same id is of the same answer.

        A server's id does not tell without the request's: some servers give it to every answer.
        Then the input does, which is known from an answer's start or not yet.
        """
        if not self.best.at - ANSWER_MAX <= call.at <= self.best.ended_at + ANSWER_MAX:
            return False
        inputs = self.best.usage.input_tokens, call.usage.input_tokens
        has_own_id = call.request_id is not None or call.response_id is None
        return has_own_id or inputs[0] == inputs[1] or not all(inputs)

    def add(self, call: LoggedCall, tools: set[str]) -> None:
        first, last = min(self.best.at, call.at), max(self.best.ended_at, call.ended_at)
        fuller = call if call.fullness >= self.best.fullness else self.best
        if (fuller.at, fuller.ended_at) != (first, last):
            fuller = replace(fuller, at=first, ended_at=last)
        self.best = fuller
        self.tools |= tools

    def call(self, agent: LoggedAgent) -> LoggedCall:
        count = len(self.tools) if agent.tools[0] else None
        return replace(self.best, tool_calls=count, key=(*self.best.key, self.best.at.isoformat()))


def _holds(condition: Condition, scope: dict[str, Any]) -> bool:
    if not condition:
        return True
    found = {path: lookup(scope, path) for path in condition}
    words = {path: "an object" if isinstance(v, dict) else v or "" for path, v in found.items()}
    return all(isinstance(words[p], str) and words[p] in v for p, v in condition.items())


def _call(
    agent: LoggedAgent, scope: dict[str, Any], open_answers: Mapping[tuple[str, ...], _Answer]
) -> LoggedCall | None:
    """The call of a record; None if it is none, or not yet one with counts."""

    def stated(member: str) -> Any:
        for path in agent.members.get(member, ()):
            value = lookup(scope, path)
            if value is not None and value != "":
                return value
        return None

    def text(member: str) -> str | None:
        value = stated(member)
        return text_of(str(value) if type(value) is int else value)

    at, session, usage = moment(stated("at")), text("session"), lookup(scope, agent.usage)
    model, response_id = name_of(stated("model")), id_of(stated("response_id"))
    word = text("server")
    known_by = (response_id or text("id") or str(at), text("request_id") or "")
    if session is None:
        return None
    if at is None and (session, *known_by) in open_answers:
        at = open_answers[session, *known_by].best.at  # one object has its time, one its counts
    if at is None:
        return None
    if str(stated("model")).startswith("<"):
        return None  # `<synthetic>`: a message that the agent wrote itself, without a call
    server = server_of(agent, word=word, response_id=response_id, model=model)
    figures = NO_USAGE
    if agent.usage:
        if not isinstance(usage, dict):
            return None
        if agent.usage_of is not None:
            figures = agent.usage_of(usage, provider_of(server, agent.path))
        else:  # the object may have texts beside its counts
            values = {p: lookup(usage, p) for paths in agent.counts.values() for p in paths}
            usage = {path: each for path, each in values.items() if count_of(each) is not None}
            figures = usage_of(agent.counts, usage)
        if not (figures.input_tokens or figures.output_tokens):
            return None
    if response_id is None and text("id") is None:
        # Two agents of a session may log an answer in the same millisecond.
        known_by = (f"{at} {figures.input_tokens} {figures.output_tokens}", known_by[1])
    is_side, subagent = stated("is_side") is True, text("subagent")
    version = text("version")
    beside = REGION_UNKNOWN if server in REGIONAL else {}
    return LoggedCall(
        agent=agent.name,
        key=(session, *known_by),
        at=at,
        ended_at=at,
        completed_at=moment(stated("ended_at")),
        session_id=f"{session}/{subagent}" if is_side and subagent else session,
        usage=figures,
        usage_object=usage if agent.usage else None,
        is_final=not agent.final or any(lookup(scope, path) for path in agent.final),
        copies_renew_ids=agent.copies_renew_ids,
        server=server,
        path=agent.path,
        dialect=agent.dialect,
        beside=SESSION_SUM if agent.is_session_sum else beside,
        model=model,
        response_id=response_id,
        request_id=name_of(stated("request_id")),
        finish_reason=token_of(stated("finish_reason")),
        parent_session_id=session if is_side else text("parent"),
        project=folder_name(stated("folder")),
        git_branch=text("git_branch"),
        user_agent=text("user_agent")
        if version is None
        else f"{agent.client or agent.name}/{version}",
        # Billed at its own prices, whatever the tier.
        service_tier="fast" if stated("speed") == "fast" else token_of(stated("service_tier")),
    )


def server_of(
    agent: LoggedAgent, *, word: str | None, response_id: str | None, model: str | None
) -> str:
    """The host that served an answer: by its id, by the agent's word, by its model."""
    for beginning, host in SERVER_OF_ID.items():
        if response_id is not None and response_id.startswith(beginning):
            return host
    if word is not None:
        return SERVERS.get(word.lower(), UNKNOWN_SERVER)
    return agent.server if model is None or model.startswith(agent.models) else UNKNOWN_SERVER
