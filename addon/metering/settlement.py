"""Pure. The result of an exchange, as the two values that the ledger keeps: exchange and reading.

An exchange opens when its request goes upstream. It is settled once, by the first event that ends
it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from addon.dialects.facts import Facts, clean
from addon.metering.answers.meter import Meter
from ledger.model.duplicates import content_digest
from ledger.model.exchange import Exchange, Outcome, Source, State
from ledger.model.reading import Reading, UsageSource
from ledger.model.records import changed

METER_VERSION = "2"
"""Of framing and dialects together; raised when a fix makes them read a recorded answer
differently, so that `tokentee rebuild` can tell which readings to make again."""


TRANSPORT = "transport"
"""`error_type` of errors that no provider reported: a connection refused, reset or cut."""


class End(Enum):
    """The event that ended an exchange, as far as the proxy can tell."""

    FINISHED = "finished"
    """The body came to an end that its HTTP framing allows."""
    CLIENT_LEFT = "client_left"
    UPSTREAM_BROKE = "upstream_broke"
    """Reset, refused, cut inside a framed body, timed out."""
    STOPPED = "stopped"
    """The proxy ended it: shut down, or the flow was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Lengths and digests of the bytes that passed the tap. None: not known."""

    response_bytes: int | None = None
    client_bytes: int | None = None
    removed_bytes: int | None = None
    upstream_digest: str | None = None
    client_digest: str | None = None
    removed_digest: str | None = None
    first_byte_at: datetime | None = None
    first_token_at: datetime | None = None
    stripped: bool = False
    is_whole: bool = True
    """False: a failure of ours ended the reading, and the rest passed unread."""


NOTHING_PASSED = Passed()


class Settled(NamedTuple):
    """One exchange that is over."""

    exchange: Exchange
    reading: Reading


def result_of(
    opened: Exchange,
    *,
    end: End,
    status: int | None,
    meter: Meter | None,
    passed: Passed,
    estimate_input: Callable[[], int | None],
    cause: str | None,
    now: datetime,
) -> Settled:
    """An exchange as it ended, and what was read from it.

    `status` is None when no response headers came; `meter` is None when there was nothing to
    read, and has been ended otherwise; `estimate_input` is called only where nothing was reported;
    `cause` says in words what broke the exchange, if anything did.
    """
    assert opened.state is State.OPEN, opened.state
    facts = meter.facts if meter else Facts()
    # A meter that failed may have missed the answer's own end: use the end of the HTTP body.
    read_all = meter is not None and passed.is_whole
    outcome = outcome_of(end, facts, status=status, streamed=opened.streamed and read_all)
    if outcome not in (Outcome.UPSTREAM_CUT, Outcome.LOST):
        cause = None  # the provider's own error is the better reason, or there is none
    reading = _reading(opened, outcome, meter, estimate_input, now)
    settled = changed(
        opened,
        state=State.LOST if outcome is Outcome.LOST else State.SETTLED,
        outcome=outcome,
        http_status=status,
        response_id=facts.response_id,
        id_unstable=facts.id_unstable,
        response_model=facts.response_model,
        finish_reason=facts.finish_reason,
        error_type=facts.error_type or (TRANSPORT if cause else None),
        error_code=facts.error_code,
        error_message=facts.error_message or (clean(cause, 1000) if cause else None),
        service_tier=facts.service_tier,
        first_byte_at=passed.first_byte_at,
        first_token_at=passed.first_token_at,
        settled_at=now,
        response_bytes=passed.response_bytes,
        client_bytes=passed.client_bytes,
        removed_bytes=passed.removed_bytes,
        upstream_digest=passed.upstream_digest,
        client_digest=passed.client_digest,
        removed_digest=passed.removed_digest,
        events=meter.frames if meter else None,
        usage_stripped=passed.stripped,
        content_digest=content_digest(
            response_model=facts.response_model,
            created=facts.created,
            finish_reason=facts.finish_reason,
            usage_json=meter.usage_compact if meter is not None else None,
        )
        if facts.response_id is not None
        else None,
    )
    return Settled(settled, reading)


def as_fetched(settled: Settled) -> Settled:
    """A result that was fetched, as the rule of duplicates compares it: a recording of its answer.

    The request that ordered it may have a row of its own. A fetch asks with no body, and gets the
    result in other bytes than a stream had. So only what a recording without its bytes has is
    compared: origin, response id, key, and model, created, finish reason and usage.
    """
    exchange = changed(
        settled.exchange, source=Source.REPLAY, request_digest=None, upstream_digest=None
    )
    return Settled(exchange, settled.reading)


def result_without_reading(
    opened: Exchange, *, end: End, status: int | None, now: datetime
) -> Settled:
    """The exchange as it ended, for when its reading failed."""
    read = Facts(ended=end is End.FINISHED)
    outcome = outcome_of(end, read, status=status, streamed=opened.streamed)
    settled = changed(
        opened,
        state=State.LOST if outcome is Outcome.LOST else State.SETTLED,
        outcome=outcome,
        http_status=status,
        settled_at=now,
    )
    return Settled(settled, _nothing_read(opened, now))


def outcome_of(end: End, facts: Facts, *, status: int | None, streamed: bool) -> Outcome:
    """How an exchange ended, for the ledger.

    A body's end at HTTP level is not the answer's: a reset of a connection whose close is the
    end of the body looks like success, so a stream must also have said its own
    end. And a client that leaves after that end has missed nothing.
    """
    if status is not None and status >= 400:
        return Outcome.HTTP_ERROR
    if facts.failed:
        return Outcome.ERROR_FRAME
    if end is End.FINISHED:
        return Outcome.COMPLETE if not streamed or facts.is_whole() else Outcome.UPSTREAM_CUT
    if facts.ended:
        return Outcome.COMPLETE
    return {
        End.CLIENT_LEFT: Outcome.CLIENT_LEFT,
        End.UPSTREAM_BROKE: Outcome.UPSTREAM_CUT,
        End.STOPPED: Outcome.LOST,
    }[end]


def _reading(
    opened: Exchange,
    outcome: Outcome,
    meter: Meter | None,
    estimate_input: Callable[[], int | None],
    now: datetime,
) -> Reading:
    if meter is None:
        return _nothing_read(opened, now)
    usage = meter.usage()
    source, estimated = UsageSource.NONE, None
    reported = meter.facts.usage is not None
    if reported and (outcome is Outcome.COMPLETE or meter.facts.usage_final):
        source = UsageSource.REPORTED
    else:
        estimated = meter.estimated_output_tokens() if opened.streamed else None
        if reported:
            source = UsageSource.PARTIAL
        elif outcome is Outcome.COMPLETE and meter.request_units:
            source = UsageSource.ESTIMATED
            usage = changed(usage, tool_units=meter.request_units)
        elif estimated and outcome is not Outcome.COMPLETE:
            source = UsageSource.ESTIMATED
            usage = changed(usage, input_tokens=estimate_input(), output_tokens=estimated)
    return Reading(
        exchange_id=opened.id,
        opened_at=opened.opened_at,
        meter_version=METER_VERSION,
        usage_source=source,
        usage=usage,
        usage_json=meter.usage_json,
        estimated_output_tokens=estimated,
        read_at=now,
    )


def _nothing_read(opened: Exchange, now: datetime) -> Reading:
    return Reading(
        exchange_id=opened.id,
        opened_at=opened.opened_at,
        meter_version=METER_VERSION,
        usage_source=UsageSource.NONE,
        read_at=now,
    )
