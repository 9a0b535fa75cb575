"""Pure. One exchange, from its request to its reading: one object with one state.

    exchange_of     makes it from a request, or says that it is no LLM call (`opening.py`)
    read_request    reads the request: from then on `opened` is what the ledger stores
    answer          called with the response's headers: returns the tap for its body
    settle          called when the exchange is over: returns the two values that the ledger keeps

Live traffic, `mitmdump -nr`, replay, rebuild and verify all meter an exchange with these steps.
What moves it from state to state is the table `TRANSITIONS`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from msgspec.structs import replace

from addon.dialects import billing as wire_billing
from addon.dialects import shapes
from addon.dialects.agents import refused_status_of
from addon.dialects.errors import broken_connection
from addon.dialects.facts import Facts, token_of
from addon.dialects.grpc import REFUSED, STATUS
from addon.dialects.limits import limits_of
from addon.dialects.routes import Route
from addon.framing.choice import is_stream_type
from addon.framing.grpc import Grpc
from addon.framing.sse import SSE
from addon.metering import estimate, hosted, opening
from addon.metering.decoding import GRPC_WEB_TEXT, decoder_of
from addon.metering.messages import TRANSPORT, End, RecordedTimes, Request, Response, is_within
from addon.metering.meter import Meter
from addon.metering.opening import Routes, RunRules
from addon.metering.settlement import (
    NO_TRANSFER,
    Settled,
    as_fetched,
    refused,
    result_of,
    result_unread,
    with_figures,
)
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from ledger.model.exchange import CAP_HEADER, SESSION_CALL, Billing, Exchange, Outcome, Source

NO_WEBSOCKET = frozenset({404, 405, 426, 501})
"""Answers to a handshake by which a server says that it speaks HTTP there alone."""


class Stage(Enum):
    """Where an exchange is."""

    OPENING = "opening"
    """Its request is read; nothing of it has gone upstream."""
    ASKING = "asking"
    """Its request goes upstream; no answer yet."""
    ANSWERING = "answering"
    """The headers of its answer have come, and its body passes; or its WebSocket is open."""
    ENDING = "ending"
    """Its answer is over, and what came last is read in turns."""
    WAITING = "waiting"
    """Its row is handed over; the end of its answer waits for the commit."""
    SETTLED = "settled"
    """No more under way."""


class Event(Enum):
    """What moves an exchange."""

    SENT = "sent"
    """The request is read and goes upstream: its row is opened."""
    ANSWERED = "answered"
    """The headers of the answer are there: the tap is set."""
    REFUSED = "refused"
    """The answer refuses the usage that we asked for: the request is sent again without."""
    ENDED = "ended"
    """The body is over, or broke, or its WebSocket is closed."""
    READ = "read"
    """All of it is read: its row goes to the ledger."""
    STOPPED = "stopped"
    """The proxy stops: its row goes to the ledger with what is read. Of one that is opening nothing
    goes upstream, because the proxy stops, its client is gone, or a cap refuses."""
    COMMITTED = "committed"
    """The end of the answer goes on to the client."""


TRANSITIONS: Mapping[Stage, Mapping[Event, Stage]] = {
    Stage.OPENING: {Event.SENT: Stage.ASKING, Event.STOPPED: Stage.SETTLED},
    Stage.ASKING: {
        Event.ANSWERED: Stage.ANSWERING,
        Event.ENDED: Stage.ENDING,
        Event.STOPPED: Stage.WAITING,
    },
    Stage.ANSWERING: {
        Event.REFUSED: Stage.ASKING,
        Event.ENDED: Stage.ENDING,
        Event.STOPPED: Stage.WAITING,
    },
    Stage.ENDING: {Event.READ: Stage.WAITING, Event.STOPPED: Stage.WAITING},
    Stage.WAITING: {Event.COMMITTED: Stage.SETTLED},
    Stage.SETTLED: {},
}
"""Stage -> event -> next stage. Any other event changes nothing: mitmproxy may call `response` and
`error` for one exchange, and a stop comes at any time."""


class MeteredExchange:
    """One exchange. Only its opener holds it."""

    __slots__ = (
        "asked",
        "is_confirmed",
        "opened",
        "response",
        "routes",
        "stage",
        "tap",
        "troubles",
    )

    def __init__(self, routes: Routes, *, exchange_id: str, source: Source) -> None:
        self.stage = Stage.OPENING
        self.routes = routes
        """How its request and its answer are read."""
        self.opened = opening.unread(routes, exchange_id=exchange_id, source=source)
        """The exchange as the ledger stores it while it is open."""
        self.asked = opening.nothing_asked(routes)
        """What the request says that the ledger does not store."""
        self.is_confirmed = False
        """Whether it is an LLM call, by what is known now (`confirm`). Until then it has no row,
        and the proxy edits none of it."""
        self.response: Response | None = None
        """Status and headers of the answer; None until they arrive."""
        self.tap: Tap | None = None
        self.troubles = Troubles()
        self.confirm()

    def confirm(
        self,
        *,
        answer: Response | None = None,
        frame: dict[str, Any] | None = None,
        settled: Settled | None = None,
    ) -> bool:
        """Whether this is an LLM call: the one place that decides it, by what is known now.

            host and path   known, at a host that the operator has named or a table knows
            the request     looks like one of its dialect
            the answer      JSON or a stream, at a host that serves LLMs; a stream alone, if the
                            request asked for nothing
            a frame of it   looks like its dialect; at such a host, any

        A fetched result is one when it is settled whole, with a usage: if it was cut, or was not
        ready, it will be fetched again. So is an HTTP error of a hosted agent's session. A
        handshake is none if the server has no WebSocket there: the client asks over HTTP then.
        """
        routes = self.routes
        if routes.route.is_fetch:
            outcome = settled.exchange.outcome if settled is not None else None
            is_session = routes.route.dialect.operation == SESSION_CALL
            self.is_confirmed = (is_session and outcome is Outcome.HTTP_ERROR) or (
                settled is not None
                and outcome is Outcome.COMPLETE
                and settled.reading.usage_json is not None
            )
        elif routes.is_handshake and self.status in NO_WEBSOCKET:
            self.is_confirmed = False
        elif not self.is_confirmed:
            is_served, needs_stream = routes.is_served, routes.route.needs_stream
            kind = answer.headers.get("content-type", "") if answer is not None else ""
            self.is_confirmed = (
                routes.is_confirmed
                or self.asked.facts.is_confirmed
                or (
                    is_served and not needs_stream and (frame is not None or "json" in kind.lower())
                )
                or (is_served and is_stream_type(kind))
                or (frame is not None and shapes.fits(routes.route.dialect.answer_shapes, frame))
            )
        return self.is_confirmed

    def moves(self, event: Event) -> bool:
        """Move to the next stage; whether the event counts in this one."""
        stage = TRANSITIONS[self.stage].get(event)
        if stage is None:
            return False
        self.stage = stage
        return True

    @property
    def route(self) -> Route:
        """How the answer is read."""
        return self.routes.route

    @property
    def is_recorded(self) -> bool:
        """Whether it comes from a file, not from live traffic."""
        return self.opened.source is not Source.LIVE

    def keep_response(self, response: Response) -> None:
        """Keep status and headers, without those that repeat a credential of the request."""
        is_secret = self.asked.context.is_secret
        # One search in all of them: nearly always there is none.
        if is_secret("\n".join(response.headers.values())):
            kept = {name: each for name, each in response.headers.items() if not is_secret(each)}
            response = Response(status=response.status, headers=kept)
        self.response = response

    @property
    def status(self) -> int | None:
        """Of the answer; None until its headers arrive."""
        return self.response.status if self.response is not None else None

    def read_request(self, request: Request) -> Generator[None]:
        """Read the request, with pauses. What cannot be read is left out, and noted."""
        try:
            self.opened, self.asked = yield from opening.read(
                self.opened, request, self.routes, self.troubles
            )
            self.confirm()
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the traffic
            self.troubles.add_failure(failure, "its request is not read")

    def mark_injected(self) -> None:
        """Note that the proxy added the usage option to the client's request."""
        self.opened = replace(self.opened, usage_injected=True)

    def revert_injection(self) -> None:
        """Note that upstream refused the option and that the proxy resends the client's request."""
        self.opened = replace(self.opened, usage_injected=False, resent=True)
        self.tap = self.response = None
        self.moves(Event.REFUSED)

    def answer(
        self,
        response: Response,
        *,
        edits: bool,
        clock: Callable[[], float],
        on_confirmed: Callable[[], object] = lambda: None,
    ) -> Tap:
        """The tap for a response, made when its headers arrive.

        `edits`: the tap may cut the injected usage out of the body. `clock` returns seconds since
        the epoch. `on_confirmed` is called if the answer confirms that this is a call.
        """
        self.moves(Event.ANSWERED)
        self.keep_response(response)
        assert self.response is not None
        headers = self.response.headers
        content_type = headers.get("content-type", "")
        is_labelled = is_stream(response)
        if is_labelled and not self.opened.streamed:
            self.opened = replace(self.opened, streamed=True)
        was_confirmed = self.is_confirmed
        if self.confirm(answer=response) and not was_confirmed:
            on_confirmed()

        def confirms(frame: dict[str, Any]) -> bool:
            if self.confirm(frame=frame):
                on_confirmed()
            return self.is_confirmed

        encodings = [headers.get("content-encoding", "")]
        if GRPC_WEB_TEXT in content_type.lower():
            encodings.insert(0, GRPC_WEB_TEXT)
        decoder = decoder_of(",".join(encodings))
        # An answer of another status has no usage, and one without a body must not be chunked.
        is_success = response.status // 100 == 2 and response.status != 204
        edits = edits and self.opened.usage_injected and is_success
        if not content_type.lower().startswith("text/event-stream"):  # it may be one all the same
            edits = edits and decoder is None and "content-length" not in headers
        if edits and decoder is not None and decoder.trouble is not None:
            self.troubles.add(f"usage that was asked for stays: {decoder.trouble}")
            edits = False
        meter = Meter(
            self.routes.route.dialect,
            context=replace(self.asked.context, headers=headers),
            status=response.status,
            requested=self.asked.facts.billing,
            confirms=None if self.is_confirmed or self.routes.route.is_fetch else confirms,
        )
        self.tap = Tap(
            meter,
            content_type=content_type,
            edits=edits,
            clock=clock,
            troubles=self.troubles,
            decoder=decoder,
            budget=self.routes.rules.budget,
        )
        return self.tap

    def billing_of(self, exchange: Exchange) -> Billing | None:
        """How this exchange is billed, or a response of its session; None: unknown."""
        billing, is_certain = wire_billing.of_answer(
            self.asked.billing,
            self.response.headers if self.response is not None else {},
            provider=exchange.provider,
            models=(exchange.response_model, exchange.request_model),
            service_tier=exchange.service_tier,
        )
        if is_certain or self.routes.rules.billing is None:
            return billing
        try:
            return self.routes.rules.billing(exchange) or billing
        except Exception as failure:  # noqa: BLE001  # the operator's rule costs nothing else
            self.troubles.add_failure(failure, "a rule of billing is left out")
            return billing

    def beside(
        self, settled: Settled, event: object, arrived_at: datetime, *, in_headers: bool = True
    ) -> Settled:
        """The result with how it is billed, and with what its answer's headers, and an event of its
        stream, say of limits and of the account that has them. Headers of a handshake belong to its
        first response. Never raises."""
        headers = self.response.headers if self.response is not None else {}
        of_limits = headers if in_headers else {}
        try:
            limits = limits_of(of_limits, status=self.status, event=event, arrived_at=arrived_at)
            return with_figures(
                settled,
                billing=self.billing_of(settled.exchange),
                quotas=limits.quotas,
                retry_after_ms=limits.retry_after_ms,
                account=opening.account_of(headers, self.asked, self.opened, self.routes.rules),
            )
        except Exception as failure:  # noqa: BLE001  # beside the figures, which are kept
            self.troubles.add_failure(failure, "its limits are not read")
            return settled

    def settle(
        self, end: End, *, cause: str | None, now: datetime, times: RecordedTimes | None = None
    ) -> Settled:
        """The exchange as it ended, and its reading. Never raises.

        `cause` names the error that broke the exchange; `times` come from a recording.
        """
        tap = self.tap
        try:
            settled = self._result(end, cause, now)
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the row
            self.troubles.add_failure(failure, "its answer is not read")
            settled = result_unread(self.opened, end=end, status=self.status, now=now)
        began_at = settled.exchange.first_byte_at
        if times is not None:
            opened_at = now = self.opened.opened_at
            began_at, ended_at = [
                at if at is not None and is_within(opened_at, at) else None
                for at in (times.first_byte_at, times.ended_at)
            ]
            if began_at is not None and began_at > (ended_at or began_at):
                began_at = None
            exchange = replace(
                settled.exchange,
                first_byte_at=began_at,
                first_token_at=None,
                settled_at=ended_at or opened_at,
            )
            settled = Settled(exchange, settled.reading)
        event = tap.meter.facts.rare.rate_limits if tap is not None else None
        return self.noted(self.beside(settled, event, began_at or now))

    def stated(self, settled: Settled) -> list[Settled]:
        """The rows of what the answer states of sessions of hosted agents."""
        if self.tap is None or not self.tap.meter.facts.rare.stated:
            return []
        facts = self.tap.meter.facts
        return [*hosted.rows_of(as_fetched(settled), facts, self.route.dialect.usage_of)]

    def noted(self, settled: Settled) -> Settled:
        """The result, with what went wrong up to now."""
        if self.troubles.reasons is None:
            return settled
        return settled._replace(exchange=replace(settled.exchange, degraded=self.troubles.text))

    def _result(self, end: End, cause: str | None, now: datetime) -> Settled:
        response = self.response
        if (
            response is not None
            and (cap := token_of(response.headers.get(CAP_HEADER)))
            and (
                response.status == refused_status_of(self.opened.agent)
                or response.headers.get(STATUS) == REFUSED
            )
        ):  # a recording of ours, or a proxy behind this one
            return refused(self.opened, cap, now=now, status=response.status)
        tap = self.tap
        transfer, meter = NO_TRANSFER, None
        if tap is not None:
            tap.end()
            transfer, meter = tap.transfer(), tap.meter
            if unread := tap.trouble:
                self.troubles.add(unread)
                transfer = replace(transfer, is_whole=False)
            if isinstance(meter.framing, Grpc) and response is not None:
                meter.record_status(response.headers.get(STATUS))
            is_stream_unedited = isinstance(meter.framing, SSE) and not tap.edits
            if self.opened.usage_injected and is_stream_unedited and meter.facts.usage is not None:
                self.troubles.add("usage that was asked for stays: the stream is not labelled so")
        settled = result_of(
            self.opened,
            end=end,
            status=response.status if response is not None else None,
            meter=meter,
            request_units=self.asked.facts.units,
            transfer=transfer,
            estimate_input=self._estimate_input,
            cause=broken_connection(TRANSPORT, cause, self.asked.context) if cause else None,
            now=now,
        )
        if self.routes.route.is_fetch:
            self.confirm(settled=settled)
            settled = as_fetched(settled)
        if self.is_confirmed and self.route.dialect.operation == SESSION_CALL:
            settled = hosted.call_of(settled, meter.facts if meter is not None else Facts())
        return settled

    def _estimate_input(self) -> int | None:
        if self.asked.content_encoding:
            return self.asked.input_tokens
        body = self.asked.body
        return estimate.input_tokens_of(body.data) if body.is_whole else None


def is_stream(response: Response) -> bool:
    """Whether the content type is that of a stream. Ollama streams without being asked to."""
    return is_stream_type(response.headers.get("content-type", ""))


def exchange_of(
    request: Request, rules: RunRules, *, exchange_id: str, source: Source, is_llm: bool = False
) -> MeteredExchange | None:
    """The exchange of a request that may be an LLM call, not read yet; None for other traffic.

    `is_llm`: the caller knows that it is one.
    """
    routes = opening.routes_of(request, rules, is_llm=is_llm)
    if routes is None:
        return None
    return MeteredExchange(routes, exchange_id=exchange_id, source=source)
