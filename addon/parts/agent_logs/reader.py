"""Pure. The one reader of agents' logs: a format is a table of paths, and this follows them.

A path begins with what it looks in: `line` (one JSON object of the log: a line, a document, a row
of a database), `record` (the object of one answer in it), `session` (what other lines stated and
the format keeps) or `file` (the file's name, then its folders, the nearest first).

An answer may have several lines, each with the counts so far, interleaved with other answers, and
some are repeated: they are one call, with the greatest counts.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from addon.dialects.counts import Counts, lookup
from addon.dialects.facts import id_of, name_of, text_of, token_of
from addon.dialects.openai.usage import PICOUSD_PER_TICK
from addon.parts.agent_logs.call import (
    REGION_UNKNOWN,
    SESSION_SUM,
    UNKNOWN_SERVER,
    LoggedCall,
    folder_name,
    moment,
)
from addon.parts.agent_logs.servers import REGIONAL, server_of
from ledger.maintenance.same_answer import FIGURES
from ledger.model.provider_table import provider_of
from ledger.model.usage import NO_USAGE, Usage, count_of, sum_of

OPEN_ANSWERS_MAX = 256
"""Answers whose lines may be interleaved (subagents); an older one counts as complete."""
ANSWER_MAX = timedelta(hours=1)
"""The longest time between two lines of one answer. Servers that number their answers anew after a
restart give a later one the same id."""

SESSIONS_MAX, MODELS_MAX = 10_000, 100
"""Sessions of one log, and models of one session, whose sums are read."""

UNITS = "units."

type Lines = Iterable[dict[str, Any]]
type Condition = Mapping[str, tuple[str, ...]]
"""Path -> its possible values; an empty one: it may be missing."""


class SessionMembers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a format keeps of a line for the answers behind it."""

    when: Condition
    keep: Mapping[str, str]
    """Name -> path."""


class SessionSums(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a log states what a session used by model, beside its answers or without them."""

    when: Condition
    session: tuple[str, ...]
    """Its paths, the best first."""
    at: tuple[str, ...] = ()
    """Paths of the time; none: that of the answer before."""
    models: str = ""
    """The path of an object by model; empty: a line is of the one model that `model` leads to."""
    model: str = ""
    usage: str = ""
    """The path of the counts, in the object of a model."""
    counts: Mapping[str, tuple[str, ...]]
    are_added: bool = False
    """Each statement begins anew; else the last one has those before."""
    ticks: str = ""
    """The path of the cost among the counts, in xAI's ticks."""
    partial_ticks: str = ""
    """The path of a flag: they are not all of the cost."""


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
    marks: tuple[str, ...] = ()
    """Texts of which one is in each line that counts: others are not parsed. None: all are."""
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
    end: str = ""
    """A member of each answer that a server ended, in versions that write it at all: an answer
    without it is one of a broken attempt."""
    is_session_sum: bool = False
    """A record has the sums of a session."""
    sums: tuple[SessionSums, ...] = ()
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


@dataclass(slots=True)
class Reached:
    """What the lines of a log leave for later ones, so that these can be read alone."""

    open_keys: list[int] = field(default_factory=list)
    """Digests of the keys of the answers that a later line may be of."""
    stated_ends: set[str | None] = field(default_factory=set)
    """Versions that state the end of an answer."""
    needs_whole: bool = False
    """What was read needs the lines before it, or later lines need it."""


def calls_of(
    agent: LoggedAgent, lines: Lines, file: PurePath, reached: Reached | None = None
) -> Iterator[LoggedCall]:
    """The answers of one log, then the sums of its sessions. `reached`: what the lines before left,
    which then has what these leave."""
    reached = reached or Reached()
    reached.needs_whole = agent.calls is not None or bool(agent.session)
    if agent.calls is not None:
        yield from agent.calls(lines)
        return
    names = [file.name.partition(".")[0], *(folder.name for folder in file.parents)]
    scope: dict[str, Any] = {"session": {}, "file": names}
    members = [
        (name, [(first, steps) for first, *steps in (path.split(".") for path in paths)])
        for name, paths in agent.members.items()
    ]
    open_answers: dict[tuple[str, ...], _Answer] = {}
    sums = _Sums(agent) if agent.sums else None
    stated_ends, earlier = reached.stated_ends, set(reached.open_keys)
    for line in lines:
        scope["line"] = line
        if sums is not None:
            sums.read(scope)
        for kept in agent.session:
            if _holds(kept.when, scope):
                found = {name: lookup(scope, path) for name, path in kept.keep.items()}
                scope["session"].update((k, v) for k, v in found.items() if v is not None)
        for path in agent.records:
            listed = lookup(scope, path)
            for record in listed if isinstance(listed, list) else [listed]:
                scope["record"] = record
                if not _holds(agent.where, scope):
                    continue
                call = _call(agent, _stated(members, scope), scope, open_answers)
                if call is None:
                    continue
                if sums is not None:
                    sums.saw(call.session_id, call.at)
                has_end = bool(agent.end) and agent.end in record
                if has_end:
                    stated_ends.add(call.user_agent)
                before = open_answers.pop(call.key, None)
                if earlier and _digest(call.key) in earlier:
                    reached.needs_whole = True
                if before is not None and not before.goes_on_with(call):
                    yield before.call(agent, stated_ends)
                    before = None
                open_answers[call.key] = before = before or _Answer(call, call.at, call.ended_at)
                path_of_tools, kind = agent.tools
                items = lookup(scope, path_of_tools)
                tools = {
                    str(item.get("id") or place)
                    for place, item in enumerate(items if isinstance(items, list) else [])
                    if isinstance(item, dict) and kind in ("", item.get("type"))
                }
                before.add(call, tools, has_end=has_end)
                if len(open_answers) > OPEN_ANSWERS_MAX:
                    yield open_answers.pop(next(iter(open_answers))).call(agent, stated_ends)
    for answer in open_answers.values():
        yield answer.call(agent, stated_ends)
    reached.open_keys += map(_digest, open_answers)
    del reached.open_keys[:-OPEN_ANSWERS_MAX]
    if sums is not None:
        reached.needs_whole |= bool(sums.counts)
        yield from sums.calls()


def _digest(key: tuple[str, ...]) -> int:
    """Of two keys with one digest the log is read whole."""
    return zlib.crc32("\0".join(key).encode("utf-8", "replace"))


@dataclass(slots=True)
class _Answer:
    """The lines of one answer so far."""

    best: LoggedCall
    first: datetime
    last: datetime
    has_end: bool = False
    """A line of it has the member that shows that a server ended it."""
    tools: set[str] = field(default_factory=set)

    def goes_on_with(self, call: LoggedCall) -> bool:
        """Whether a line with the same id is of the same answer.

        A server's id does not tell without the request's: some servers give it to every answer.
        Then the input does, which is known from an answer's start or not yet.
        """
        if not self.first - ANSWER_MAX <= call.at <= self.last + ANSWER_MAX:
            return False
        inputs = self.best.usage.input_tokens, call.usage.input_tokens
        has_own_id = call.request_id is not None or call.response_id is None
        return has_own_id or inputs[0] == inputs[1] or not all(inputs)

    def add(self, call: LoggedCall, tools: set[str], *, has_end: bool) -> None:
        self.first, self.last = min(self.first, call.at), max(self.last, call.ended_at)
        self.has_end = self.has_end or has_end
        if call is not self.best and call.fullness >= self.best.fullness:
            self.best = call
        self.tools |= tools

    def call(self, agent: LoggedAgent, stated_ends: set[str | None]) -> LoggedCall:
        best, count = self.best, len(self.tools) if agent.tools[0] else None
        is_broken = best.user_agent in stated_ends and not self.has_end
        return replace(
            best,
            tool_calls=count,
            key=(*best.key, self.first.isoformat()),
            at=self.first,
            ended_at=self.last,
            is_final=best.is_final and not is_broken,
        )


@dataclass(slots=True)
class _Sums:
    """The sums that a log states."""

    agent: LoggedAgent
    times: dict[str, list[datetime]] = field(default_factory=dict)
    """Session -> the first and the last time of it."""
    counts: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """Session and model -> figure -> its sum."""
    ticks: dict[tuple[str, str], int | None] = field(default_factory=dict)
    """Session and model -> the cost; None: a statement has none, or not all of it."""

    def saw(self, session: str, at: datetime) -> None:
        times = self.times.setdefault(session, [at, at])
        if not times[0] <= at <= times[1]:
            times[:] = min(times[0], at), max(times[1], at)

    def read(self, scope: dict[str, Any]) -> None:
        for of in self.agent.sums:
            if _holds(of.when, scope):
                self._read(of, scope)

    def _read(self, of: SessionSums, scope: dict[str, Any]) -> None:
        session = next(filter(None, (text_of(lookup(scope, path)) for path in of.session)), None)
        if session is None or (session not in self.times and len(self.times) >= SESSIONS_MAX):
            return
        for at in filter(None, (moment(lookup(scope, path)) for path in of.at)):
            self.saw(session, at)
        models = lookup(scope, of.models) if of.models else {lookup(scope, of.model): scope["line"]}
        if session not in self.times or not isinstance(models, dict):
            return
        stated: dict[str, dict[str, int]] = {}
        for word, held in list(models.items())[:MODELS_MAX]:
            # Claude Code names a model with a long context `claude-opus-5[1m]`.
            name = name_of(str(word or "").partition("[")[0])
            usage = lookup(held, of.usage) if of.usage and isinstance(held, dict) else held
            if name and isinstance(usage, dict):
                values = {p: lookup(usage, p) for paths in of.counts.values() for p in paths}
                figures = usage_of(
                    of.counts, {p: v for p, v in values.items() if count_of(v) is not None}
                )
                found = {each: getattr(figures, each) for each in FIGURES}
                stated[name] = _together(stated.get(name, {}), found)
                if of.ticks:
                    is_part = lookup(usage, of.partial_ticks) not in (None, False)
                    ticks = None if is_part else count_of(lookup(usage, of.ticks))
                    before = self.ticks.get((session, name), 0)
                    known = None if None in (before, ticks) else sum_of(before, ticks)
                    self.ticks[session, name] = known
        for name, figures_of in stated.items():
            counts = self.counts.get((session, name), {}) if of.are_added else {}
            self.counts[session, name] = _together(counts, figures_of)

    def calls(self) -> Iterator[LoggedCall]:
        agent = self.agent
        for (session, model), figures in self.counts.items():
            first, last = self.times[session]
            ticks = self.ticks.get((session, model))
            cost = None if ticks is None else ticks * PICOUSD_PER_TICK
            usage = Usage(**figures, reported_cost_picousd=cost)  # type: ignore[arg-type]  # counts
            if figures.get("input_tokens") or figures.get("output_tokens"):
                yield LoggedCall(
                    agent=agent.name,
                    key=(session, "sum", model),
                    at=first,
                    ended_at=last,
                    session_id=session,
                    usage=usage,
                    usage_object=figures,
                    is_sum=True,
                    is_alone=not agent.usage,
                    server=server_of(agent.server, agent.models, model=model),
                    path=agent.path,
                    dialect=agent.dialect,
                    beside=SESSION_SUM,
                    model=model,
                )


def _together(one: Mapping[str, int], other: Mapping[str, int | None]) -> dict[str, int]:
    return {
        name: total
        for name in FIGURES
        if (total := sum_of(one.get(name), other.get(name))) is not None
    }


def _holds(condition: Condition, scope: dict[str, Any]) -> bool:
    for path, words in condition.items():
        value = lookup(scope, path)
        word = "an object" if isinstance(value, dict) else value or ""
        if not isinstance(word, str) or word not in words:
            return False
    return True


type _Members = Sequence[tuple[str, Sequence[tuple[str, Sequence[str]]]]]
"""Fact of a call, and its paths: what each looks in, and its further steps."""


def _stated(members: _Members, scope: dict[str, Any]) -> dict[str, Any]:
    """What a record states: of each member's paths the first that leads to a value."""
    stated = {}
    for name, paths in members:
        for first, steps in paths:
            value = scope.get(first)
            for step in steps:
                # Nearly always an object; a step into a list is a place in it.
                value = value.get(step) if type(value) is dict else lookup({"": value}, f".{step}")
            if value is not None and value != "":
                stated[name] = value
                break
    return stated


def _call(
    agent: LoggedAgent,
    stated: Mapping[str, Any],
    scope: dict[str, Any],
    open_answers: Mapping[tuple[str, ...], _Answer],
) -> LoggedCall | None:
    """The call of a record that states these members; None if it is none, or not yet one with
    counts."""

    def text(member: str) -> str | None:
        value = stated.get(member)
        return None if value is None else text_of(str(value) if type(value) is int else value)

    at, session, usage = moment(stated.get("at")), text("session"), lookup(scope, agent.usage)
    model, response_id = name_of(stated.get("model")), id_of(stated.get("response_id"))
    word, own_id = text("server"), text("id")
    known_by = (response_id or own_id or str(at), text("request_id") or "")
    if session is None:
        return None
    if at is None and (session, *known_by) in open_answers:
        at = open_answers[session, *known_by].first  # one object has its time, one its counts
    if at is None:
        return None
    if str(stated.get("model")).startswith("<"):
        return None  # `<synthetic>`: a message that the agent wrote itself, without a call
    server = server_of(agent.server, agent.models, word=word, response_id=response_id, model=model)
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
    if response_id is None and own_id is None:
        # Two agents of a session may log an answer in the same millisecond.
        known_by = (f"{at} {figures.input_tokens} {figures.output_tokens}", known_by[1])
    completed_at = moment(stated.get("ended_at"))
    is_side, subagent = stated.get("is_side") is True, text("subagent")
    version = text("version")
    beside = REGION_UNKNOWN if server in REGIONAL else {}
    return LoggedCall(
        agent=agent.name,
        key=(session, *known_by),
        at=at,
        ended_at=max(at, completed_at or at) if agent.is_session_sum else at,
        completed_at=completed_at,
        session_id=f"{session}/{subagent}" if is_side and subagent else session,
        usage=figures,
        usage_object=usage if agent.usage else None,
        is_final=not agent.final or any(lookup(scope, path) for path in agent.final),
        copies_renew_ids=agent.copies_renew_ids,
        server=server,
        path=agent.path,
        dialect=agent.dialect,
        beside=SESSION_SUM if agent.is_session_sum else beside,
        is_sum=agent.is_session_sum,
        is_alone=agent.is_session_sum,
        model=model,
        response_id=response_id,
        request_id=name_of(stated.get("request_id")),
        finish_reason=token_of(stated.get("finish_reason")),
        parent_session_id=session if is_side else text("parent"),
        project=folder_name(stated.get("folder")),
        git_branch=text("git_branch"),
        user_agent=text("user_agent")
        if version is None
        else f"{agent.client or agent.name}/{version}",
        # Billed at its own prices, whatever the tier.
        service_tier="fast"
        if stated.get("speed") == "fast"
        else token_of(stated.get("service_tier")),
    )
