"""Pure. The answers in a log of Codex, whose forks repeat the history of their parent.

`session_meta` names session, folder, branch and who serves the models, `turn_context` the model.
`thread_settings_applied` states the tier of what follows it: a fast turn has `priority`.
The usage of an answer stands in a `token_usage_record` (new versions), in an `event_msg` of type
`token_count` (all), or in both; the call that compacts a thread stands in the record alone. A count
has the answer's usage (`last_token_usage`), the thread's sum (`total_token_usage`) and what its
answer stated of limits (`rate_limits`). An unchanged sum is a repeated event.

A fork, and a subagent that gets its parent's history, has that history at the start of its log:
with the times of the parent or all with the time of the fork, with or without the parent's
`session_meta`, without its `token_usage_record`s (ccusage/ccusage#950 and #1460, tokscale#679,
codeburn#1383). Others name a parent and start from nothing (CodexBar#2193). So what is as old as
the fork, or older, belongs to one of its ancestors, and a little later what an ancestor is known to
have; usage and sum together tell which call it is. Two forks of one parent may make calls of one
size: those are their own.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from addon.dialects.counts import added, lookup
from addon.dialects.facts import id_of, name_of, text_of, token_of
from addon.dialects.limits import quotas_of_event
from addon.dialects.openai.responses import RATE_LIMITS, RESPONSES
from addon.framing import json_values
from addon.parts.agent_logs.call import (
    REGION_UNKNOWN,
    THREAD_COUNTS,
    THREADS,
    UNKNOWN_SERVER,
    LoggedCall,
    folder_name,
    moment,
)
from addon.parts.agent_logs.reader import usage_of
from addon.parts.agent_logs.servers import REGIONAL, SERVERS
from ledger.model.exchange import Billing
from ledger.model.usage import count_of

CODEX_COUNTS = {
    "input_tokens": ("input_tokens",),
    "cache_read_tokens": ("cached_input_tokens",),
    "cache_write_tokens": ("cache_write_input_tokens",),
    "output_tokens": ("output_tokens",),
    "reasoning_tokens": ("reasoning_output_tokens",),
}
"""Input includes cached tokens, output includes reasoning."""
COPIED_WITHIN = timedelta(seconds=3)
"""How long after the start of a fork the last line of a copied history is written."""
ANSWERED_AFTER = timedelta(seconds=1)
"""The shortest time from the start of a fork to an answer of its own."""
UNPAIRED_MAX = 4
"""Records that wait for their count, and counts for their record: these are neighbours."""
_PARENTS = ("forked_from_id", "source.subagent.thread_spawn.parent_thread_id", "parent_thread_id")
_FIRST_OWN = "subagent_history_start_ordinal"
"""In `session_meta` of new versions: the number of the first line that is not its parent's."""
_TOOLS = ("function_call", "custom_tool_call", "local_shell_call")


@dataclass(slots=True)
class _CodexLog:
    """What a log has stated so far."""

    meta: dict[str, Any] = field(default_factory=dict)
    started: datetime | None = None
    copied: list[str] = field(default_factory=list)
    """The threads whose `session_meta` follows its own."""
    model: str | None = None
    service_tier: str | None = None
    plan: str | None = None
    tools: int = 0
    total: dict[str, Any] | None = None

    def parents(self) -> list[str]:
        """The threads that this one may have a history from, the nearest first."""
        named = [token_of(lookup(self.meta, path)) for path in _PARENTS]
        return list(dict.fromkeys(name for name in (*named, *self.copied) if name))


def codex_calls(lines: Iterable[dict[str, Any]]) -> Iterator[LoggedCall]:
    """The answers of one log, each once."""
    log = _CodexLog()
    for call, counts in _paired(_stated(lines, log)):
        parents, started = log.parents(), log.started or call.at
        own = text_of(log.meta.get("id")) or call.session_id
        owner, copied_until = call.session_id, None  # a record names its thread itself
        if parents and (call.is_copied or call.at <= started + COPIED_WITHIN):
            copied_until = started + COPIED_WITHIN
            if owner == own and (call.is_copied or call.at <= started + ANSWERED_AFTER):
                owner = parents[-1]
        beside: dict[str, Any] = {THREAD_COUNTS: counts} if counts else {}
        if owner != own and counts:
            beside[THREADS] = parents
        yield replace(
            call,
            key=(owner, counts or call.response_id or str(call.at)),
            session_id=owner,
            log_session_id=own,
            parent_session_id=next(iter(parents), None) if owner == own else None,
            beside={**call.beside, **beside},
            counts=counts,
            threads=(*parents, owner) if copied_until else (owner,),
            copied_until=copied_until,
        )


type _Stated = tuple[LoggedCall, str | None, bool]
"""A call; a digest of usage and sum, of a record of those that its count will have; is it one."""


def _stated(lines: Iterable[dict[str, Any]], log: _CodexLog) -> Iterator[_Stated]:
    """Each usage in a log; repeated counts are left out."""
    for line in lines:
        payload, at = line.get("payload"), moment(line.get("timestamp"))
        if not isinstance(payload, dict):
            continue
        kind, is_record = line.get("type"), line.get("type") == "token_usage_record"
        if kind == "session_meta" and log.meta:
            log.copied.append(token_of(payload.get("id")) or "")
        elif kind == "session_meta":
            log.meta, log.started = payload, at or moment(payload.get("timestamp"))
        elif kind == "turn_context":
            log.model = name_of(payload.get("model")) or log.model
        elif kind == "event_msg" and payload.get("type") == "thread_settings_applied":
            log.model = name_of(lookup(payload, "thread_settings.model")) or log.model
            tier = token_of(lookup(payload, "thread_settings.service_tier"))
            log.service_tier = "priority" if tier == "fast" else tier
        elif kind == "response_item" and payload.get("type") in _TOOLS:
            log.tools += 1
        elif is_record or (kind == "event_msg" and payload.get("type") == "token_count"):
            log.plan = token_of(lookup(payload, "rate_limits.plan_type")) or log.plan
            usage = lookup(payload, "usage" if is_record else "info.last_token_usage")
            total = lookup(payload, "info.total_token_usage")
            total = total if isinstance(total, dict) else None
            session_id = text_of(payload.get("thread_id")) or text_of(log.meta.get("id"))
            is_repeated = total is not None and total == log.total
            if at is None or session_id is None or not isinstance(usage, dict) or is_repeated:
                continue
            figures = usage_of(CODEX_COUNTS, usage)
            ordinal, first_own = line.get("ordinal"), log.meta.get(_FIRST_OWN)
            total = total or added(log.total or {}, usage)
            log.total = log.total if is_record else total
            if not (figures.input_tokens or figures.output_tokens):
                continue
            client, version = (text_of(log.meta.get(n)) for n in ("originator", "cli_version"))
            # A digest of the counts in one order: a copy may have another.
            both = [
                [count_of(u.get(path)) for path, *_ in CODEX_COUNTS.values()]
                for u in (usage, total)
            ]
            digest = hashlib.sha256(json_values.dumps(both).encode()).hexdigest()[:32]
            word = text_of(log.meta.get("model_provider"))
            server = SERVERS.get(word.lower(), UNKNOWN_SERVER) if word else "api.openai.com"
            # What stands beside the usage of limits (`RateLimitSnapshot`), as an event of the wire.
            name = lookup(payload, "rate_limits.limit_id")
            event = {**payload, "type": RATE_LIMITS, "metered_limit_name": name}
            yield (
                LoggedCall(
                    agent="codex",
                    key=(),
                    at=at,
                    ended_at=at,
                    session_id=session_id,
                    usage=figures,
                    usage_object=usage,
                    server=server,
                    path="/v1/responses",
                    dialect=RESPONSES.name,
                    beside=REGION_UNKNOWN if server in REGIONAL else {},
                    model=log.model,
                    response_id=id_of(payload.get("response_id")),
                    project=folder_name(log.meta.get("cwd")),
                    git_branch=text_of(lookup(log.meta, "git.branch")),
                    user_agent=f"{client}/{version}" if client and version else client,
                    tool_calls=log.tools,
                    service_tier=log.service_tier,
                    quotas=quotas_of_event(event, arrived_at=at),
                    billing=Billing.PLAN if log.plan else None,
                    is_copied=(type(ordinal) is type(first_own) is int and ordinal < first_own),
                ),
                digest,
                is_record,
            )
            log.tools = 0


def _paired(stated: Iterable[_Stated]) -> Iterator[tuple[LoggedCall, str | None]]:
    """The calls: a record and a count of one usage are one. The last record of a log may have its
    count to come."""
    records: deque[LoggedCall] = deque()
    expected = None
    alone: deque[tuple[int | None, ...]] = deque(maxlen=UNPAIRED_MAX)
    for call, counts, is_record in stated:
        if is_record and call.figures in alone:
            alone.remove(call.figures)  # its count came first
        elif is_record:
            records.append(call)
            expected = counts
            if len(records) > UNPAIRED_MAX:
                yield records.popleft(), None
        elif all(record.figures != call.figures for record in records):
            alone.append(call.figures)
            yield call, counts
        else:
            while (record := records.popleft()).figures != call.figures:
                yield record, None  # the call that compacted the thread
            yield (
                replace(
                    call,
                    at=min(record.at, call.at),
                    ended_at=max(record.at, call.at),
                    response_id=record.response_id,
                    tool_calls=record.tool_calls,
                ),
                counts,
            )
    yield from ((record, expected if len(records) == 1 else None) for record in records)
