"""Pure. One answer of a model in an agent's log, and its exchange."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from addon.dialects.facts import Facts
from addon.framing import json_values
from ledger.model.duplicates import content_digest
from ledger.model.exchange import (
    Billing,
    Exchange,
    Outcome,
    Quota,
    Reading,
    Source,
    State,
    UsageSource,
)
from ledger.model.provider_table import provider_of
from ledger.model.usage import BESIDE, NO_USAGE, Usage

LOG_METER_VERSION = "log-4"
"""The version of the log readers; it is raised when one of them reads a log differently."""
FOLDER_NAME_MAX = 100
UNKNOWN_SERVER = "unknown"
"""The server, the provider and the wire format of an answer whose log does not state them."""
REGION_UNKNOWN = {BESIDE + "region": UNKNOWN_SERVER}
"""Beside the usage of a cloud whose regions have prices of their own: the cost is known in part."""
SESSION_SUM = {BESIDE + "request_mode": "sum of a session"}
"""Beside figures of a whole session: a price that depends on the size of a request is not known."""

THREAD_COUNTS, THREADS = BESIDE + "thread_counts", BESIDE + "threads"
"""Beside the usage of Codex: a digest of usage and sum of the thread, by which a copy is known; and
the threads of which one made the call, if a fork's log does not tell which."""

type Booked = tuple[Exchange, Reading]


class LoggedCall(Struct, frozen=True, kw_only=True):
    """One answer. None: the log does not state it."""

    agent: str
    """The value of `exchanges.agent`."""
    key: tuple[str, ...]
    """What identifies the answer among all of its agent."""
    at: datetime
    """The time of its first line, UTC."""
    ended_at: datetime
    """The time of its last line."""
    completed_at: datetime | None = None
    """The stated time of its end."""
    session_id: str
    usage: Usage
    usage_object: Mapping[str, Any] | None
    """The usage as the log has it; None: the log counts the answer without its tokens."""
    is_final: bool = True
    """False: the figures are those of an answer that ran, or a placeholder."""
    is_sum: bool = False
    """The figures are those of a session and a model: what its answers have is part of them."""
    is_alone: bool = False
    """The log has no answers beside its sums."""
    copies_renew_ids: bool = False
    """A copy in a forked session has another id, but the same time and figures."""
    counts: str | None = None
    """Codex: a digest of usage and sum of the thread."""
    threads: tuple[str, ...] = ()
    """Codex: one of these made the call."""
    copied_until: datetime | None = None
    """Codex: the time until which a fork's log may repeat what its parents did; None: its own."""
    is_copied: bool = False
    """Codex: the log says that a parent made the call."""
    log_session_id: str | None = None
    """Codex: the thread of the log, if another one made the call."""
    server: str = UNKNOWN_SERVER
    """The host that served it."""
    path: str = "/"
    dialect: str = UNKNOWN_SERVER
    beside: Mapping[str, Any] = field(default_factory=dict)
    """Billing fields that belong to the usage."""
    model: str | None = None
    response_id: str | None = None
    """The provider's id."""
    request_id: str | None = None
    finish_reason: str | None = None
    parent_session_id: str | None = None
    project: str | None = None
    """The name of the folder that the agent worked in."""
    git_branch: str | None = None
    user_agent: str | None = None
    tool_calls: int | None = None
    service_tier: str | None = None
    quotas: tuple[Quota, ...] = ()
    billing: Billing | None = None

    @property
    def exchange_id(self) -> str:
        """An id derived from what identifies the answer, so that a second import finds it."""
        return _id_of(self.agent, self.key)

    @property
    def figures(self) -> tuple[int | None, ...]:
        """What a copy has, too. No word on the cache is none read from it."""
        cached = self.usage.cache_read_tokens or 0
        return (self.usage.input_tokens, self.usage.output_tokens, cached)

    @property
    def usage_source(self) -> UsageSource:
        """`partial` before the end of the answer was logged."""
        if self.usage_object is None:
            return UsageSource.NONE
        return UsageSource.REPORTED if self.is_final else UsageSource.PARTIAL

    @property
    def fullness(self) -> tuple[int, ...]:
        """Of several readings of one answer the greatest is right: its counts only grow."""
        return fullness(self.usage_source, self.usage.output_tokens, self.usage.input_tokens)


@lru_cache(maxsize=2_048)  # each of a batch is asked for six times
def _id_of(agent: str, key: tuple[str, ...]) -> str:
    text = json_values.dumps([agent, *key])
    return f"log-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


def fullness(source: UsageSource, output: int | None, inputs: int | None) -> tuple[int, ...]:
    """How much of an answer a reading has."""
    none = -1  # less than a count of 0
    return (
        source is UsageSource.REPORTED,
        none if output is None else output,
        none if inputs is None else inputs,
    )


def booked(call: LoggedCall, *, now: datetime, capture: str, tags: Mapping[str, str]) -> Booked:
    """The exchange and the reading of a call.

    `now`: the time of reading; `capture`: the log file. The key and the bytes of the answer are not
    known.
    """
    usage = None if call.usage_object is None else Facts().plain_usage(dict(call.usage_object))
    usage_json = None if usage is None else json_values.dumps(usage)
    exchange = Exchange(
        id=call.exchange_id,
        origin=UNKNOWN_SERVER if call.server == UNKNOWN_SERVER else f"https://{call.server}:443",
        provider=provider_of(call.server, call.path),
        dialect=call.dialect,
        operation="chat",
        path=call.path,
        opened_at=call.at,
        state=State.SETTLED,
        outcome=Outcome.COMPLETE,
        request_model=call.model,
        response_model=call.model,
        response_id=call.response_id,
        finish_reason=call.finish_reason,
        service_tier=call.service_tier,
        streamed=True,
        settled_at=call.completed_at or call.at,
        session_id=call.session_id,
        parent_session_id=call.parent_session_id,
        project=call.project,
        git_branch=call.git_branch,
        agent=call.agent,
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
        meter_version=LOG_METER_VERSION,
        usage_source=call.usage_source,
        usage=NO_USAGE if call.usage_object is None else call.usage,
        usage_json=json_values.dumps({**usage, **call.beside})
        if usage is not None and call.beside
        else usage_json,
        read_at=now,
        billing=call.billing,
    )
    return exchange, reading


def folder_name(path: object) -> str | None:
    """The last part of a folder's path, of either kind of system; None if there is none."""
    if not isinstance(path, str):
        return None
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2][:FOLDER_NAME_MAX] or None


_MILLISECONDS_MIN = 10**11
"""A number from here on counts milliseconds, below it seconds: the year 5138, and 1973."""


def moment(stated: object) -> datetime | None:
    """A time in UTC: an ISO text with an offset, or seconds or milliseconds since 1970. None if it
    is none, or outside of 1970 to 9999."""
    try:
        if isinstance(stated, str):
            found = datetime.fromisoformat(stated)
        elif type(stated) in (int, float):
            seconds = float(stated)  # type: ignore[arg-type]  # a number, by the line before
            seconds = seconds / 1000 if seconds >= _MILLISECONDS_MIN else seconds
            found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        else:
            return None
        return found.astimezone(UTC) if found.tzinfo and 1970 <= found.year < 9999 else None
    except (ValueError, OverflowError):
        return None
