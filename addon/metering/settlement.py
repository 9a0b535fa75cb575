"""Pure. The result of an exchange, as the two values that the ledger keeps: exchange and reading.

An exchange opens when its request goes upstream. The first event that ends it settles it, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from addon.dialects.agents import refused_status_of
from addon.dialects.dialect import UNEXPLAINED
from addon.dialects.facts import AnswerError, Ending, Facts
from addon.framing import json_values
from addon.metering.messages import End
from addon.metering.meter import Meter
from ledger.model.duplicates import content_digest
from ledger.model.exchange import (
    CAP_ERROR,
    ERROR_STATUS_MIN,
    Billing,
    Exchange,
    Outcome,
    Reading,
    Source,
    State,
    UsageSource,
)
from ledger.model.usage import NO_USAGE, Usage

METER_VERSION = "8"
"""Version of framing and dialects together. A fix that changes how they read a recorded answer
raises it, so that `tokentee rebuild` finds the readings to redo."""

ZEROS = "zeros for an answer with text"
"""The remark on usage that is no figure: it counts as not reported, and is asked for next time."""
NO_OUTPUT = "no output tokens for an answer with text"
"""The remark on usage that leaves out what was generated, or states zero: it is partial."""
_GENERATES = ("chat", "text_completion", "generate_content")
"""Operations whose answers have input and output tokens."""
_ESTIMATE_KEY = re.compile(r"(is_|usage_)?(estimated?|approximate)")
_ESTIMATE_WORDS = ("estimated", "estimate", "approximate")
"""By such a member with `true`, or such a text, a usage object calls itself an estimate (9router's
is `estimated`)."""
HIDDEN_OUTPUT = "output that cannot be read is not in the estimate"
"""The remark on a stream that ended early behind encrypted reasoning, pictures or sound."""


class Transfer(Struct, frozen=True, kw_only=True):
    """Lengths and digests of the bytes that passed the tap. None: unknown."""

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
    """False: a part of the answer passed unread, so that its own end may have been missed."""


NO_TRANSFER = Transfer()


class Settled(NamedTuple):
    """One exchange that is over."""

    exchange: Exchange
    reading: Reading

    def remarked(self, remarks: tuple[str, ...]) -> Settled:
        """The same with further remarks on its usage."""
        if not remarks:
            return self
        usage = self.reading.usage
        usage = replace(usage, remarks=(*usage.remarks, *remarks))
        return Settled(self.exchange, replace(self.reading, usage=usage))


def result_of(
    opened: Exchange,
    *,
    end: End,
    status: int | None,
    meter: Meter | None,
    now: datetime,
    request_units: Mapping[str, int] = MappingProxyType({}),
    transfer: Transfer = NO_TRANSFER,
    estimate_input: Callable[[], int | None] = lambda: None,
    cause: AnswerError | None = None,
) -> Settled:
    """An exchange as it ended, and its reading.

    `status` is None if no response headers arrived. `meter` is None if there was nothing to read;
    otherwise the caller has called its `end`. `request_units` count if the answer reports nothing.
    `estimate_input` is called only if the provider reported nothing. `cause` is the
    error that broke the exchange, if any.
    """
    assert opened.state is State.OPEN, opened.state
    facts = meter.facts if meter else Facts()
    read_all = meter is not None and transfer.is_whole
    outcome = outcome_of(end, facts, status=status, streamed=opened.streamed and read_all)
    if outcome not in (Outcome.UPSTREAM_CUT, Outcome.LOST):
        cause = None  # prefer the provider's own error, or there is no error
    error = facts.error or cause or AnswerError()
    exchange = replace(
        opened,
        state=State.LOST if outcome is Outcome.LOST else State.SETTLED,
        outcome=outcome,
        http_status=status,
        response_id=facts.response_id,
        id_unstable=facts.rare.id_unstable,
        response_model=facts.response_model,
        finish_reason=facts.finish_reason,
        error_type=error.type,
        error_code=error.code,
        error_message=error.message,
        service_tier=facts.service_tier,
        cache_diagnosis=facts.rare.cache_diagnosis,
        first_byte_at=transfer.first_byte_at,
        first_token_at=transfer.first_token_at,
        settled_at=now,
        response_bytes=transfer.response_bytes,
        client_bytes=transfer.client_bytes,
        removed_bytes=transfer.removed_bytes,
        upstream_digest=transfer.upstream_digest,
        client_digest=transfer.client_digest,
        removed_digest=transfer.removed_digest,
        events=meter.frames if meter else None,
        usage_stripped=transfer.stripped,
        content_digest=content_digest(
            response_model=facts.response_model,
            created=facts.created,
            finish_reason=facts.finish_reason,
            usage_json=None if facts.usage is None else json_values.dumps(facts.usage),
        )
        if facts.response_id is not None
        else None,
    )
    # The reading.
    usage, source, estimated = NO_USAGE, UsageSource.NONE, None
    if meter is not None:
        usage = meter.usage()
        has_usage = facts.usage is not None
        is_lacking = False
        if has_usage and facts.token_seen and not usage.output_tokens and _has_only_zeros(usage):
            has_usage, usage = False, replace(NO_USAGE, remarks=(*usage.remarks, ZEROS))
        elif has_usage and facts.token_seen and not usage.output_tokens:
            is_lacking = (
                opened.operation in _GENERATES
                # A bill, other units, or another model explain that there are no tokens.
                and not (usage.tool_units or usage.further or usage.reported_cost_picousd)
                and not _is_echo(opened, facts.usage or {})
            )
        is_unsure = facts.ending is Ending.UNSURE and not facts.is_document
        is_final = facts.usage_final and not is_unsure
        if has_usage and not meter.has_route:
            is_read = replace(usage, remarks=()) != NO_USAGE
            source = UsageSource.PARTIAL if is_read else UsageSource.NONE
        elif has_usage and usage.remarks and _is_disputed(usage):
            source = UsageSource.PARTIAL
        elif has_usage and (outcome is Outcome.COMPLETE or is_final) and not is_lacking:
            is_estimate = _calls_itself_estimate(facts.usage or {})
            source = UsageSource.ESTIMATED if is_estimate else UsageSource.REPORTED
        else:
            if is_lacking and outcome is Outcome.COMPLETE:
                usage = replace(usage, remarks=(*usage.remarks, NO_OUTPUT))
            estimated = meter.estimated_output_tokens() if opened.streamed else None
            if has_usage:
                source = UsageSource.PARTIAL
            elif outcome is Outcome.COMPLETE and request_units:
                source, usage = UsageSource.ESTIMATED, replace(usage, tool_units=request_units)
            elif outcome is not Outcome.COMPLETE and opened.streamed and meter.has_output:
                inputs = estimate_input()
                if inputs is not None or estimated:
                    source = UsageSource.ESTIMATED
                    usage = replace(usage, input_tokens=inputs, output_tokens=estimated)
            if opened.streamed and outcome is not Outcome.COMPLETE and meter.has_hidden_output:
                usage = replace(usage, remarks=(*usage.remarks, HIDDEN_OUTPUT))
    reading = _reading(
        exchange,
        now,
        usage_source=source,
        usage=usage,
        usage_json=meter.usage_json if meter is not None else None,
        estimated_output_tokens=estimated,
    )
    return Settled(exchange, reading)


def _has_only_zeros(usage: Usage) -> bool:
    """Whether a usage object states zeros alone: gateways write them, also for long answers."""
    counts = (usage.input_tokens, usage.output_tokens, *usage.tool_units.values())
    costs = (usage.reported_cost_picousd, usage.reported_upstream_cost_picousd)
    return 0 in counts and not any(counts) and not any(costs) and not usage.further


def _is_disputed(usage: Usage) -> bool:
    """Whether the provider's total disagrees with its parts, and no bill of its own decides."""
    is_billed = usage.reported_cost_picousd is not None
    return not is_billed and any(each.endswith(UNEXPLAINED) for each in usage.remarks)


def _is_echo(opened: Exchange, stated: Mapping[str, Any]) -> bool:
    """Whether the text is the prompt's, whose tokens are all (`echo` with `max_tokens` 0:
    https://platform.openai.com/docs/api-reference/completions/create)."""
    prompt = stated.get("prompt_tokens")
    is_all = prompt is not None and prompt == stated.get("total_tokens")
    return opened.operation == "text_completion" and is_all


def _calls_itself_estimate(stated: Mapping[str, Any]) -> bool:
    """Whether a usage object says that its figures are no count."""
    return any(
        value in _ESTIMATE_WORDS
        if isinstance(value, str) and value != "true"
        else value in (True, "true") and _ESTIMATE_KEY.fullmatch(key) is not None
        for key, value in stated.items()
        if isinstance(value, str | bool)
    )


def refused(opened: Exchange, cap: str, *, now: datetime, status: int | None = None) -> Settled:
    """The result of a request that a cap refused: nothing of it went upstream. `status`: of our
    answer, if it is not that of HTTP."""
    exchange = replace(
        opened,
        state=State.SETTLED,
        outcome=Outcome.REFUSED,
        http_status=status or refused_status_of(opened.agent),
        error_type=CAP_ERROR,
        error_code=cap,
        settled_at=now,
        hold_picousd=None,
        hold_list_value_picousd=None,
        hold_tokens=None,
    )
    return Settled(exchange, _reading(exchange, now))


def result_unread(opened: Exchange, *, end: End, status: int | None, now: datetime) -> Settled:
    """The exchange as it ended, with an empty reading, where `result_of` failed: of what may have
    failed there it calls `outcome_of` alone."""
    facts = Facts(ended=end is End.FINISHED)
    outcome = outcome_of(end, facts, status=status, streamed=opened.streamed)
    settled = replace(
        opened,
        state=State.LOST if outcome is Outcome.LOST else State.SETTLED,
        outcome=outcome,
        http_status=status,
        settled_at=now,
    )
    return Settled(settled, _reading(settled, now))


def _reading(
    exchange: Exchange,
    now: datetime,
    *,
    usage_source: UsageSource = UsageSource.NONE,
    **figures: Any,
) -> Reading:
    """Of a lost exchange it is below any other, because its end may become known later."""
    return Reading(
        exchange_id=exchange.id,
        opened_at=exchange.opened_at,
        revision=0 if exchange.state is State.LOST else 1,
        meter_version=METER_VERSION,
        usage_source=usage_source,
        read_at=now,
        **figures,
    )


def with_figures(settled: Settled, *, billing: Billing | None, **figures: Any) -> Settled:
    """The result with how it is billed, and with further columns of the exchange."""
    return Settled(replace(settled.exchange, **figures), replace(settled.reading, billing=billing))


def as_fetched(settled: Settled) -> Settled:
    """A fetched result as dedupe compares it: like a recording of its answer without bytes.

    The request that ordered the result may have a row of its own. A fetch has no request body, and
    its response bytes differ from those of a stream. So dedupe compares only origin, response id,
    key, model, created, finish reason and usage.
    """
    exchange = replace(
        settled.exchange, source=Source.REPLAY, request_digest=None, upstream_digest=None
    )
    return Settled(exchange, settled.reading)


def outcome_of(end: End, facts: Facts, *, status: int | None, streamed: bool) -> Outcome:
    """How an exchange ended, for the ledger.

    The HTTP end of a body does not prove a complete answer: if closing the connection ends the
    body, a reset looks like success. So a stream must also have sent its own end mark, and a JSON
    document must be one. A client that leaves after that has missed nothing. A document has no end
    mark of its own: if upstream breaks while its framing promises more, its client gets an error
    (RFC 9112 section 8), and the document is cut however much of it came. `streamed`: a stream that
    was read to its end; of one that was not, the HTTP end is all that is known.
    """
    if status is not None and status >= ERROR_STATUS_MIN:
        return Outcome.HTTP_ERROR
    if facts.error is not None:
        return Outcome.ERROR_FRAME
    if end is End.FINISHED:
        is_whole = facts.is_whole() if streamed else not facts.is_cut_inside
        return Outcome.COMPLETE if is_whole else Outcome.UPSTREAM_CUT
    is_open = facts.is_document or facts.ending is Ending.UNSURE
    if facts.ended and not (is_open and end is End.UPSTREAM_BROKE):
        return Outcome.COMPLETE
    return {
        End.CLIENT_LEFT: Outcome.CLIENT_LEFT,
        End.UPSTREAM_BROKE: Outcome.UPSTREAM_CUT,
        End.STOPPED: Outcome.LOST,
    }[end]
