"""Pure. The rows of requests to hosted agents: of one that starts work, or fails, and of what an
answer states that sessions used: one for each model request, and one for each running total.

A row's id is a digest of what it is a row of, so that the same statement, read again, is the same
row. The session of a row is the hosted one; the client's own is its parent.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from addon.dialects.facts import FELL, Facts, Stated, id_of
from addon.framing import json_values
from addon.metering.settlement import METER_VERSION, Settled
from ledger.model.exchange import (
    ORDERED,
    SESSION_REQUEST,
    SESSION_TOTAL,
    Exchange,
    Outcome,
    Reading,
    State,
    UsageSource,
)
from ledger.model.usage import NO_USAGE, Usage

_SESSION = re.compile("/sessions/([^/?]+)")
_AHEAD = timedelta(days=1)
"""A provider's clock may be ahead by so much; a moment beyond is none."""
_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)


def call_of(settled: Settled, facts: Facts) -> Settled:
    """The row of a request that starts work or failed. What the work used is stated later; the rows
    of the session's totals have the same response id, so that the order counts as fetched."""
    wire = settled.exchange
    stated = [one.session_id for one in facts.rare.stated if one.session_id]
    session_id = stated[-1] if stated else _session_in(wire.path)
    failed = wire.http_status is None or wire.outcome in (Outcome.HTTP_ERROR, Outcome.ERROR_FRAME)
    exchange = replace(
        wire,
        session_id=session_id or wire.session_id,
        parent_session_id=_parent(wire, session_id),
        response_id=None if failed else session_id,
        finish_reason=None if failed else ORDERED[0],
        # Two equal orders of one session are two: they are not compared as one billed response.
        upstream_digest=None,
        content_digest=None,
    )
    # A stream that broke off has no text to estimate.
    reading = replace(
        settled.reading,
        usage_source=UsageSource.NONE,
        usage=NO_USAGE,
        estimated_output_tokens=None,
    )
    return Settled(exchange, reading)


def rows_of(
    settled: Settled, facts: Facts, usage_of: Callable[[Mapping[str, Any], Facts], Usage]
) -> Iterator[Settled]:
    """The rows of what an answer states, in its order. `settled`: the answer itself."""
    wire = settled.exchange
    latest = ended_at = wire.settled_at or wire.opened_at
    for one in facts.rare.stated:
        session_id = one.session_id or _session_in(wire.path)
        if session_id is None:
            continue
        usage_json = json_values.dumps(one.usage)
        is_total = one.request_id is None
        at = _moment(one, ended_at)
        latest = max(latest, at or latest)
        key = "\0".join((wire.origin, session_id, one.request_id or usage_json))
        digest = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16)
        exchange = replace(
            wire,
            id=f"agent.{digest.hexdigest()}",
            operation=SESSION_TOTAL if is_total else SESSION_REQUEST,
            opened_at=at or (wire.opened_at if is_total else ended_at),
            # A total is stated behind the requests before it, whatever our clock says.
            settled_at=at or latest,
            state=State.SETTLED,
            outcome=Outcome.COMPLETE,
            session_id=session_id,
            parent_session_id=_parent(wire, session_id),
            response_id=one.request_id or session_id,
            request_model=one.model,
            response_model=None,
            service_tier="fast" if one.usage.get("speed") == "fast" else None,
            # Of the answer, and not of what it states.
            **dict.fromkeys(
                (
                    *("request_bytes", "response_bytes", "client_bytes", "removed_bytes"),
                    *("request_digest", "upstream_digest", "client_digest", "removed_digest"),
                    *("content_digest", "first_byte_at", "first_token_at", "events"),
                    *("error_type", "error_code", "error_message", "finish_reason"),
                    *("hold_picousd", "hold_list_value_picousd", "hold_tokens"),
                )
            ),
            quotas=(),
        )
        usage = usage_of(one.usage, facts)
        usage = replace(usage, remarks=(*usage.remarks, *map(FELL.format, one.fell)))
        reading = Reading(
            exchange_id=exchange.id,
            opened_at=exchange.opened_at,
            revision=1,
            meter_version=METER_VERSION,
            usage_source=UsageSource.REPORTED if one.usage else UsageSource.NONE,
            usage=usage,
            usage_json=usage_json if one.usage else None,
            read_at=settled.reading.read_at,
            billing=settled.reading.billing,
        )
        yield Settled(exchange, reading)


def _session_in(path: str) -> str | None:
    found = _SESSION.search(path)
    return id_of(found[1]) if found else None


def _parent(wire: Exchange, session_id: str | None) -> str | None:
    """The client's own session."""
    own = wire.session_id if session_id not in (None, wire.session_id) else None
    return wire.parent_session_id or own


def _moment(one: Stated, ended_at: datetime) -> datetime | None:
    """When the provider states it; None: it does not, or no clock could say so."""
    try:
        if isinstance(one.at, str):
            at = datetime.fromisoformat(one.at)
        elif isinstance(one.at, int) and not isinstance(one.at, bool):
            at = datetime.fromtimestamp(one.at, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    at = at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return at if _EARLIEST <= at <= ended_at + _AHEAD else None
