"""Pure. One exchange being metered, from its request to its reading.

    open_exchange   makes it from a request (`opening.py`)
    answer          called with the response's headers: returns the tap for its body
    settle          called when the exchange is over: returns the two values that the ledger keeps

Live traffic, `mitmdump -nr`, replay, rebuild and verify all meter an exchange with these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from addon.dialects import billing as wire_billing
from addon.dialects import shapes
from addon.dialects.errors import broken_connection
from addon.dialects.facts import AnswerContext, Facts
from addon.dialects.limits import limits_of
from addon.dialects.request import RequestFacts
from addon.dialects.routes import Route
from addon.framing.large_json import without_pauses
from addon.metering.answers import estimate
from addon.metering.answers.decoding import decoder_of
from addon.metering.answers.meter import Meter
from addon.metering.memory_budget import MemoryBudget
from addon.metering.requests.messages import (
    NOT_KNOWN,
    TRANSPORT,
    Body,
    End,
    RecordedTimes,
    Response,
)
from addon.metering.segments import NOT_READ as NO_CHAT
from addon.metering.segments import ChatRequest
from addon.metering.settlement import (
    NOTHING_PASSED,
    Settled,
    as_fetched,
    result_of,
    result_unread,
)
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from addon.usage_opt_in.stripping import Stripper
from ledger.model.exchange import ERROR_STATUS_MIN, Billing, Exchange, Outcome, Source

REQUEST_PIECES_MAX = 8_192
"""Steps of decoding a request: a request of 32 MB takes as many, of 4 KB each. An empty gzip member
is also a step, of 2 µs."""
REQUEST_BYTES_MAX = 64 * 1024 * 1024
"""The decoder does not read a request that decodes to more: a compressed body can have any size."""
DECODED_AGAIN_BYTES_MAX = 2 * 1024 * 1024
"""An encoded request that decodes to more is not decoded again to edit it: decoding 1 MB takes 4 to
7 ms of the event loop."""
REFUSAL_BYTES_MAX = 64 * 1024
"""The proxy does not hold back a longer error answer to check if it refuses the injected option."""
STREAM_TYPES = (
    "text/event-stream",
    "application/x-ndjson",
    "application/stream+json",
    "application/vnd.amazon.eventstream",
)
"""Content types of streams, whatever the request asked for (Ollama streams by default)."""


class Readable(Struct, frozen=True, kw_only=True):
    """A request body in the form to parse: decoded, and shortened if it is long."""

    data: bytes
    """Empty if `chat` has it parsed."""
    decoded_bytes: int
    """Before it was shortened."""
    digest: str | None = None
    """Of the body as the client sent it; None: not known."""
    input_tokens: int | None = None
    """Estimate for an encoded body, which may be too long to be decoded again."""
    chat: ChatRequest = NO_CHAT
    """Of a chat request: its segments, and the shape that tells its purpose."""


NOT_READ = Readable(data=b"", decoded_bytes=0)


class MeteredExchange:
    """One open exchange. Only its opener holds it."""

    __slots__ = (
        "_account_of",
        "_answer_headers",
        "_billing",
        "_billing_of",
        "_body",
        "_budget",
        "_content_encoding",
        "_decoded_bytes",
        "_encoded_tokens",
        "_is_confirmed",
        "context",
        "is_handshake",
        "opened",
        "request",
        "route",
        "status",
        "tap",
        "troubles",
    )

    def __init__(
        self,
        opened: Exchange,
        *,
        route: Route,
        request: RequestFacts,
        body: Body,
        content_encoding: str,
        decoded_bytes: int,
        encoded_tokens: int | None,
        context: AnswerContext,
        is_handshake: bool,
        is_confirmed: bool = True,
        troubles: Troubles,
        budget: MemoryBudget | None = None,
        billing: Billing | None = None,
        billing_of: Callable[[Exchange], Billing | None] | None = None,
        account_of: Callable[[Mapping[str, str]], str | None] = lambda _: None,
    ) -> None:
        self.opened = opened
        """The exchange as the ledger stores it while it is open."""
        self.route = route
        self.request = request
        self.is_handshake = is_handshake
        """Whether it opens a WebSocket: then its session's responses are the billed exchanges."""
        self.troubles = troubles
        self.tap: Tap | None = None
        self.status: int | None = None
        """Of the response; None until its headers arrive."""
        self._is_confirmed = is_confirmed
        self._body = body
        self._budget = budget
        self._billing = billing
        """As the request says it; `_billing_of` is the operator's own word."""
        self._billing_of = billing_of
        self._account_of = account_of
        """The account that an answer's headers name, or that the request named."""
        self._answer_headers: Mapping[str, str] = {}
        self._content_encoding = content_encoding
        self._decoded_bytes = decoded_bytes
        self._encoded_tokens = encoded_tokens
        self.context = context
        """What is known of the answer before it comes, but for its headers."""

    @property
    def is_recorded(self) -> bool:
        """Whether it comes from a file, not from live traffic."""
        return self.opened.source is not Source.LIVE

    @property
    def is_confirmed(self) -> bool:
        """Whether host, request or answer have confirmed that this is an LLM call. Until then it
        has no row, and the proxy edits none of it. A fetched result is confirmed when it is
        settled: if it was cut, or was not ready, it will be fetched again."""
        return self._is_confirmed or (self.tap is not None and self.tap.meter.is_confirmed)

    def request_body(self) -> Body:
        """The client's decoded request body; not known if it could not be decoded, or is too long
        for that to be done again."""
        if not self._content_encoding or not self._body.data or not self._body.is_whole:
            return self._body
        if not 0 < self._decoded_bytes <= DECODED_AGAIN_BYTES_MAX:
            return NOT_KNOWN
        return decoded_body(self._body, self._content_encoding, self.troubles)

    def mark_injected(self) -> None:
        """Note that the proxy added the usage option to the client's request."""
        self.opened = replace(self.opened, usage_injected=True)

    def revert_injection(self) -> None:
        """Note that upstream refused the option and that the proxy resends the client's request."""
        self.opened = replace(self.opened, usage_injected=False, resent=True)
        self.tap = None

    def answer(
        self,
        response: Response,
        *,
        edits: bool,
        clock: Callable[[], float],
        capture: Callable[[bytes], None] | None = None,
        on_confirmed: Callable[[], object] | None = None,
    ) -> Tap:
        """The tap for a response, made when its headers arrive.

        `edits`: the tap may strip the injected usage from the body. `clock` returns seconds since
        the epoch. The tap calls `capture` with each chunk. It calls `on_confirmed` once, when the
        answer confirms an unconfirmed exchange.
        """
        self.status = response.status
        self._answer_headers = response.headers
        content_type = response.headers.get("content-type", "")
        if content_type.lower().startswith(STREAM_TYPES) and not self.opened.streamed:
            self.opened = replace(self.opened, streamed=True)
        encoding = response.headers.get("content-encoding", "")
        edits = edits and self.opened.usage_injected and is_event_stream(content_type)
        decoder = None
        if edits:
            decoder = decoder_of(encoding)
            if decoder is not None and decoder.trouble is not None:
                self.troubles.add(f"usage that was asked for stays: {decoder.trouble}")
                edits, decoder = False, None
            elif decoder is not None:
                encoding = ""  # the meter reads decoded bytes
        self.tap = Tap(
            self._meter(response, encoding, on_confirmed),
            stripper=Stripper() if edits else None,
            clock=clock,
            troubles=self.troubles,
            capture=capture,
            decoder=decoder,
            budget=self._budget,
        )
        return self.tap

    def _meter(
        self, response: Response, encoding: str, on_confirmed: Callable[[], object] | None
    ) -> Meter:
        return Meter(
            self.route.dialect,
            content_type=response.headers.get("content-type", ""),
            content_encoding=encoding,
            context=replace(self.context, headers=response.headers),
            status=response.status,
            request_units=self.request.units,
            requested=self.request.billing,
            confirms=None if self._is_confirmed else self._confirms,
            on_confirmed=on_confirmed,
        )

    def _confirms(self, _facts: Facts, body: dict[str, Any]) -> bool:
        """Whether one frame or document is an answer of this exchange's dialect."""
        if self.route.is_fetch:
            return False  # its end decides: a part of a result is no result
        return shapes.fits(self.route.dialect.answer_shapes, body)

    def billing_of(self, exchange: Exchange) -> Billing | None:
        """How this exchange is billed, or a response of its session; None: unknown."""
        billing, is_certain = wire_billing.of_answer(
            self._billing,
            self._answer_headers,
            provider=exchange.provider,
            models=(exchange.response_model, exchange.request_model),
        )
        if is_certain or self._billing_of is None:
            return billing
        return self.troubles.attempt(self._billing_of, exchange) or billing

    def with_limits(
        self, exchange: Exchange, event: object, arrived_at: datetime, *, in_headers: bool = True
    ) -> Exchange:
        """The exchange with what its answer's headers, and an event of its stream, say of limits
        and of the account that has them. Headers of a handshake belong to its first response."""
        headers = self._answer_headers if in_headers else {}
        limits = limits_of(headers, status=self.status, event=event, arrived_at=arrived_at)
        return replace(
            exchange,
            quotas=limits.quotas,
            retry_after_ms=limits.retry_after_ms,
            account=self._account_of(self._answer_headers),
        )

    def settle(
        self,
        end: End,
        *,
        cause: str | None,
        now: datetime,
        times: RecordedTimes | None = None,
        finish: Callable[[Settled], Settled] | None = None,
    ) -> Settled:
        """The exchange as it ended, and its reading. Never raises.

        `cause` names the error that broke the exchange; `times` come from a recording.
        `finish` gets the result and returns the result to keep. The row's `degraded` is set last,
        so that it includes errors of `finish`.
        """
        settled = self.troubles.attempt(self._result, end, cause, now)
        if settled is None:
            settled = result_unread(self.opened, end=end, status=self.status, now=now)
        attempt = self.troubles.attempt
        exchange, reading = settled
        reading = replace(reading, billing=attempt(self.billing_of, exchange))
        if times is not None:
            began_at = times.first_byte_at
            exchange = replace(
                exchange,
                first_byte_at=began_at if began_at and began_at > exchange.opened_at else None,
                first_token_at=None,
                settled_at=times.ended_at or exchange.opened_at,
            )
        arrived_at = exchange.first_byte_at or (now if times is None else exchange.opened_at)
        event = self.tap.meter.facts.rare.rate_limits if self.tap is not None else None
        exchange = attempt(self.with_limits, exchange, event, arrived_at) or exchange
        if finish is not None:
            exchange, reading = attempt(finish, Settled(exchange, reading)) or (exchange, reading)
        if self.troubles:
            exchange = replace(exchange, degraded=self.troubles.text)
        return Settled(exchange, reading)

    def _result(self, end: End, cause: str | None, now: datetime) -> Settled:
        tap = self.tap
        if tap is not None:
            tap.end()
        settled = result_of(
            self.opened,
            end=end,
            status=self.status,
            meter=tap.meter if tap else None,
            passed=tap.passed() if tap else NOTHING_PASSED,
            estimate_input=self._estimate_input,
            cause=broken_connection(TRANSPORT, cause, self.context) if cause else None,
            now=now,
        )
        if self.route.is_fetch:
            is_whole = settled.exchange.outcome is Outcome.COMPLETE
            self._is_confirmed = is_whole and settled.reading.usage_json is not None
            settled = as_fetched(settled)
        if tap is not None and (unread := tap.meter.trouble):
            self.troubles.add(unread)
        return settled

    def _estimate_input(self) -> int | None:
        if self._content_encoding:
            return self._encoded_tokens
        return estimate.input_tokens_of(self._body.data) if self._body.is_whole else None


def is_event_stream(content_type: str) -> bool:
    """Whether an answer is server-sent events, the only kind of stream with injected usage."""
    return content_type.lower().startswith("text/event-stream")


def is_stream(response: Response) -> bool:
    """Whether the content type is that of a stream."""
    return response.headers.get("content-type", "").lower().startswith(STREAM_TYPES)


def may_refuse(response: Response, *, injected: bool) -> bool:
    """Whether an answer may refuse the injected option, and is short enough to hold back."""
    if not injected or response.status < ERROR_STATUS_MIN:
        return False
    length = response.headers.get("content-length", "")
    return not length.isdigit() or int(length) <= REFUSAL_BYTES_MAX


def decoded_body(body: Body, content_encoding: str, troubles: Troubles) -> Body:
    """A decoded request body; not whole if its encoding has no end; not known, with a note, if it
    cannot be decoded."""
    return without_pauses(decoded_body_in_steps(body, content_encoding, troubles))


def decoded_body_in_steps(
    body: Body, content_encoding: str, troubles: Troubles
) -> Generator[None, None, Body]:
    """As `decoded_body`, with a pause after each piece."""
    decoder = decoder_of(content_encoding) if body.data else None
    if decoder is None or not body.is_whole:
        return body if decoder is None else NOT_KNOWN
    pieces: list[bytes] = []
    size = 0
    for piece in decoder.decode(body.data):
        size += len(piece)
        if size > REQUEST_BYTES_MAX:
            troubles.add(f"a request that decodes to more than {REQUEST_BYTES_MAX} bytes")
            return NOT_KNOWN
        if len(pieces) >= REQUEST_PIECES_MAX:
            troubles.add(f"a request encoded in more than {REQUEST_PIECES_MAX} pieces")
            return NOT_KNOWN
        pieces.append(piece)
        yield
    if decoder.trouble is not None:
        troubles.add(f"request: {decoder.trouble}")
        return NOT_KNOWN
    return Body(b"".join(pieces), is_whole=decoder.is_whole)
