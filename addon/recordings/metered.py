"""Edge (the clock). Passes a recorded exchange through the one meter: values in, readings
out.

    meter    as if it passed now: for exchanges that the ledger does not have
    reread   as it was read when it passed: for exchanges that the ledger has. What a recording
             does not tell is in the ledger then: who the provider was, whether usage was asked for
             and therefore stripped, which side ended the exchange, and the counts in headers whose
             values were redacted

A WebSocket session gives one reading for each of its responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from addon.dialects.billing import SENT_KEY
from addon.framing.long_json import without_pauses
from addon.metering import attribution
from addon.metering.exchange import MeteredExchange, exchange_of
from addon.metering.messages import (
    TRANSPORT,
    End,
    RecordedTimes,
    Request,
    Response,
    header_map,
    recorded_body,
)
from addon.metering.opening import RunRules, Upstream
from addon.metering.session import MeteredSession
from addon.metering.settlement import Settled
from addon.recordings.formats.recorded import Recorded
from addon.usage_opt_in import asking
from ledger.model.door import admitted
from ledger.model.exchange import (
    SESSION_OPERATIONS,
    SESSION_REQUEST,
    Billing,
    Exchange,
    Outcome,
    Source,
)

TAP_BYTES = 16 * 1024 * 1024
"""Of a recorded answer, passed through the tap at once; its backlog may hold twice as many."""
_ENDS: Mapping[Outcome | None, End] = {
    Outcome.CLIENT_LEFT: End.CLIENT_LEFT,
    Outcome.LOST: End.STOPPED,
}
_TAG_HEADER = attribution.TAG_HEADER.encode()


def meter(item: Recorded, rules: RunRules) -> list[Settled] | None:
    """The reading of one recorded exchange; None if it is not an LLM call."""
    exchange = _opened(item, rules, is_llm=item.is_llm, is_injected=item.usage_injected)
    if exchange is None:
        return None
    if item.usage_injected:
        exchange.mark_injected()
        if client_body(item, is_injected=True) is None:
            exchange.opened = replace(exchange.opened, usage_asked=None)
    if item.is_session:
        return _session(item, exchange)
    _read_answer(item, exchange, edits=item.usage_injected, reached_end=item.end is End.FINISHED)
    settled = _settled(item, exchange, item.end, item.cause)
    return [*exchange.stated(settled), *([settled] if exchange.is_confirmed else [])] or None


def reread(
    item: Recorded,
    booked: Exchange,
    *,
    reached_end: bool = True,
    billing: Callable[[Exchange], Billing | None] | None = None,
) -> Settled | None:
    """The result of today's tap and meter for the answer; None if they see no LLM call.

    `reached_end`: the end of the body came, so the
    stripper flushed its buffer. For a session, `booked` names the response. `billing`: the
    operator's own word on how an exchange is billed.
    """
    upstream = Upstream(host=item.origin.host, port=item.origin.port, provider=booked.provider)
    # The ledger has the key's fingerprint; the recording does not, so no secret is needed.
    # The ledger knows the key, too, by which the operator tells a plan.
    told = billing and billing(booked)
    rules = RunRules(node="", upstreams=(upstream,), billing=(lambda _: told) if told else None)
    if booked.key_fingerprint is not None:
        sent = item.redacted_request_headers | {SENT_KEY}
        item = replace(item, redacted_request_headers=sent)
    exchange = _opened(item, rules, is_llm=True, is_injected=booked.usage_injected)
    if exchange is None:
        return None
    if item.is_session:
        found = (one for one in _session(item, exchange) if one.exchange.id == booked.id)
        one = next(found, None)
        return None if one is None else _as_stored(one)
    if booked.usage_injected:
        exchange.mark_injected()
        exchange.opened = replace(exchange.opened, usage_asked=booked.usage_asked)
    _read_answer(item, exchange, edits=booked.usage_injected, reached_end=reached_end)
    if booked.operation == SESSION_REQUEST:
        stated = exchange.stated(_settled(item, exchange, item.end, item.cause))
        return next((_as_stored(one) for one in stated if one.exchange.id == booked.id), None)
    end = item.end
    if not item.is_end_certain:
        # A cut that neither side caused is visible in the answer itself, and the meter detects it.
        end = _ENDS.get(booked.outcome, End.FINISHED)
        if booked.outcome is Outcome.UPSTREAM_CUT and booked.error_type == TRANSPORT:
            end = End.UPSTREAM_BROKE
    return _as_stored(_settled(item, exchange, end, item.cause))


def statements(item: Recorded) -> list[Exchange]:
    """What an answer states of sessions of hosted agents. Its provider does not stand in a
    recording, and may be the operator's word; but each id names one statement of one origin."""
    if "/sessions" not in item.path or item.is_session:
        return []
    provider = "openai" if "/agents/sessions" in item.path else "anthropic"
    upstream = Upstream(host=item.origin.host, port=item.origin.port, provider=provider)
    found = meter(item, RunRules(node="", upstreams=(upstream,))) or ()
    return [one.exchange for one in found if one.exchange.operation in SESSION_OPERATIONS]


def client_body(item: Recorded, *, is_injected: bool) -> bytes | None:
    """The client's own request body; None if it is not known. `is_injected`: we asked for usage."""
    if item.client_body is not None or not is_injected:
        return item.client_body if is_injected else item.request_body
    return asking.without_usage_option(item.request_body)


def _opened(
    item: Recorded, rules: RunRules, *, is_llm: bool, is_injected: bool
) -> MeteredExchange | None:
    headers = header_map(item.request_headers)
    if item.messages is not None:
        headers["upgrade"] = "websocket"  # HTTP/2 begins a WebSocket without it
    body = client_body(item, is_injected=is_injected)
    request = Request(
        method=item.method,
        scheme=item.origin.scheme,
        host=item.origin.host,
        port=item.origin.port,
        path=item.path,
        headers=headers,
        redacted=item.redacted_request_headers,
        tag_headers=tuple(
            value.decode("utf-8", "replace")
            for name, value in item.request_headers
            if name.lower() == _TAG_HEADER
        ),
        body=recorded_body(item.request_body if body is None else body, item.method),
        began_at=item.opened_at,
    )
    exchange = exchange_of(request, rules, exchange_id=item.id, source=Source.REPLAY, is_llm=is_llm)
    if exchange is not None:
        without_pauses(exchange.read_request(request))
    return exchange


def _read_answer(
    item: Recorded, exchange: MeteredExchange, *, edits: bool, reached_end: bool
) -> None:
    if item.status is None:
        return
    response = Response(status=item.status, headers=header_map(item.response_headers))
    # The body is read at once: its times come from the recording or are unknown.
    passes = exchange.answer(response, edits=edits, clock=lambda: 0.0).callable
    for at in range(0, len(item.response_body), TAP_BYTES):
        passes(item.response_body[at : at + TAP_BYTES])
    if reached_end:
        passes(b"")


def _settled(item: Recorded, exchange: MeteredExchange, end: End, cause: str | None) -> Settled:
    times = RecordedTimes(first_byte_at=item.responded_at, ended_at=item.ended_at)
    settled = exchange.settle(end, cause=cause, now=datetime.now(UTC), times=times)
    if item.is_exact:
        return settled
    return Settled(without_upstream_bytes(settled.exchange), settled.reading)


def without_upstream_bytes(exchange: Exchange) -> Exchange:
    """The exchange of a body that was decoded before it was recorded, without facts about the bytes
    that upstream sent."""
    sides = ("response_bytes", "client_bytes", "removed_bytes")
    digests = ("upstream_digest", "client_digest", "removed_digest")
    return replace(exchange, **dict.fromkeys((*sides, *digests)))


def _as_stored(settled: Settled) -> Settled:
    """As the ledger stores it: without control characters in error texts."""
    exchange, reading = admitted(*settled)
    assert reading is not None, "there was one"
    return Settled(exchange, reading)


def _session(item: Recorded, handshake: MeteredExchange) -> list[Settled]:
    assert item.status is not None  # 101
    headers = header_map(item.response_headers)
    handshake.keep_response(Response(status=item.status, headers=headers))
    session = MeteredSession(handshake)
    found: list[Exchange | Settled] = []
    at = item.opened_at
    for message in item.messages or ():
        at = message.at
        found += session.message(message.content, from_client=message.from_client, at=at)
    found += session.end(item.end, at=max(at, item.ended_at or at))
    return [one for one in found if isinstance(one, Settled)]
