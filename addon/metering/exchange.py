"""Pure. One exchange being metered, from its request to its reading.

    open_exchange   makes it from a request (`opening.py`)
    answer          the response's headers came: gives the tap that its body is to pass through
    settle          the exchange is over, whatever ended it: the two values that the ledger keeps

Live traffic, `mitmdump -nr`, replay, rebuild and verify all meter an exchange with these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any

from addon.dialects import shapes
from addon.dialects.facts import Facts
from addon.dialects.request import RequestFacts
from addon.dialects.routes import Route
from addon.metering.answers import estimate
from addon.metering.answers.decoding import Decoder
from addon.metering.answers.meter import Meter
from addon.metering.budget import Budget
from addon.metering.requests.messages import RecordedTimes, Response
from addon.metering.requests.redaction import redact
from addon.metering.settlement import (
    NOTHING_PASSED,
    End,
    Settled,
    as_fetched,
    result_of,
    result_without_reading,
)
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from addon.metering.whole import WholeAnswer
from addon.usage_opt_in.stripping import Stripper
from ledger.model.exchange import Exchange, Source
from ledger.model.records import changed

REQUEST_PIECES_MAX = 8_192
"""Steps of decoding a request: one of 32 MB takes as many, of 4 KB each. Empty members of gzip are
steps, too, of 2 µs."""
REQUEST_BYTES_MAX = 64 * 1024 * 1024
"""A request that decodes to more is not read: a compressed body can claim any size."""
REFUSAL_BYTES_MAX = 64 * 1024
"""An error answer longer than this is not held back to see whether it refuses our question."""
STREAM_TYPES = (
    "text/event-stream",
    "application/x-ndjson",
    "application/stream+json",
    "application/vnd.amazon.eventstream",
)
"""Content types that are streams, whatever the request said (Ollama streams unless told not to)."""


class MeteredExchange:
    """One exchange under way. Its opener owns it; it is not shared."""

    __slots__ = (
        "_body",
        "_budget",
        "_content_encoding",
        "_credentials",
        "_is_confirmed",
        "_whole",
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
        body: bytes,
        content_encoding: str,
        credentials: tuple[str, ...],
        is_handshake: bool,
        is_confirmed: bool = True,
        troubles: Troubles,
        budget: Budget | None = None,
    ) -> None:
        self.opened = opened
        """As the ledger knows it while it is open."""
        self.route = route
        self.request = request
        self.is_handshake = is_handshake
        """Whether it opens a WebSocket: then the responses of its session are billed."""
        self.troubles = troubles
        self.tap: Tap | None = None
        self.status: int | None = None
        """Of the response; None while no headers have come."""
        self._is_confirmed = is_confirmed
        self._whole: WholeAnswer | None = None
        self._body = body
        self._budget = budget
        self._content_encoding = content_encoding
        self._credentials = credentials

    @property
    def is_recorded(self) -> bool:
        """Whether it was read from a file and is not live."""
        return self.opened.source is not Source.LIVE

    @property
    def is_confirmed(self) -> bool:
        """Whether host, request or answer have confirmed that this is an LLM call. Until then it
        has no row, and nothing of it is edited."""
        answer = self.tap or self._whole
        return self._is_confirmed or (answer is not None and answer.meter.is_confirmed)

    def request_body(self) -> bytes:
        """The client's request body with its content-encoding undone."""
        return decoded_body(self._body, self._content_encoding, self.troubles)

    def without_secrets(self, exchange: Exchange, request_body: bytes) -> Exchange:
        """The exchange with error texts that repeat neither credentials nor the request."""
        texts = (exchange.error_type, exchange.error_code, exchange.error_message)
        if not any(texts):
            return exchange
        models = [name for name in (exchange.request_model, exchange.response_model) if name]
        redacted = self.troubles.attempt(
            lambda: [
                text and redact(text, credentials=self._credentials, body=request_body, keep=models)
                for text in texts
            ]
        )
        error_type, error_code, message = redacted or (None, None, None)
        return changed(
            exchange, error_type=error_type, error_code=error_code, error_message=message
        )

    def mark_injected(self) -> None:
        """Usage was asked for in the client's name."""
        self.opened = changed(self.opened, usage_injected=True)

    def revert_injection(self) -> None:
        """Note that the question was refused and that the client's own request is sent again."""
        self.opened = changed(self.opened, usage_injected=False, resent=True)
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
        """The tap for a response whose headers have come.

        `edits`: usage that was asked for in the client's name may be taken out as the body
        passes. `clock` gives seconds since the epoch. `capture` is given each chunk.
        `on_confirmed` is called once, when the answer confirms what the request did not.
        """
        self._see_headers(response)
        content_type = response.headers.get("content-type", "")
        encoding = response.headers.get("content-encoding", "")
        edits = edits and self.opened.usage_injected and is_event_stream(content_type)
        decoder = None
        if edits:
            decoder = Decoder(encoding)
            if decoder.trouble is not None:
                self.troubles.add(f"usage that was asked for stays: {decoder.trouble}")
                edits, decoder = False, None
            elif decoder.is_identity:
                decoder = None
            else:
                encoding = ""  # what is metered is what was decoded
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

    def answer_whole(self, response: Response, body: bytes) -> None:
        """A response of which the whole body is there, and of which nothing is edited."""
        self._see_headers(response)
        encoding = response.headers.get("content-encoding", "")
        meter = self._meter(response, encoding, None)
        self._whole = WholeAnswer(meter, body, troubles=self.troubles)

    def _see_headers(self, response: Response) -> None:
        self.status = response.status
        content_type = response.headers.get("content-type", "")
        if content_type.lower().startswith(STREAM_TYPES) and not self.opened.streamed:
            self.opened = changed(self.opened, streamed=True)

    def _meter(
        self, response: Response, encoding: str, on_confirmed: Callable[[], object] | None
    ) -> Meter:
        return Meter(
            self.route.dialect,
            content_type=response.headers.get("content-type", ""),
            content_encoding=encoding,
            headers=response.headers,
            provider=self.opened.provider,
            status=response.status,
            path_model=self.route.path_model,
            request_units=self.request.units,
            confirms=None if self._is_confirmed else self._confirms,
            on_confirmed=on_confirmed,
        )

    def _confirms(self, facts: Facts, body: dict[str, Any]) -> bool:
        """Whether one frame or document is an answer of this exchange's dialect."""
        if self.route.is_fetch:
            return facts.usage is not None  # the result is there
        return shapes.fits(self.route.dialect.answer_shapes, body)

    def settle(
        self,
        end: End,
        *,
        cause: str | None,
        now: datetime,
        times: RecordedTimes | None = None,
        finish: Callable[[Settled], Settled] | None = None,
    ) -> Settled:
        """The exchange as it ended, and what was read from it. Never raises.

        `cause` names the error that broke the exchange; `times` are those of a recording.
        `finish` gets the result and returns the result to keep. The row's `degraded` is made last,
        so that it includes errors of `finish`.
        """
        settled = self.troubles.attempt(self._result, end, cause, now)
        if settled is None:
            settled = result_without_reading(self.opened, end=end, status=self.status, now=now)
        exchange, reading = settled
        if times is not None:
            began_at = times.first_byte_at
            exchange = changed(
                exchange,
                first_byte_at=began_at if began_at and began_at > exchange.opened_at else None,
                first_token_at=None,
                settled_at=times.ended_at or exchange.opened_at,
            )
        if finish is not None:
            finished = self.troubles.attempt(finish, Settled(exchange, reading))
            exchange, reading = finished or (exchange, reading)
        if self.troubles:
            exchange = changed(exchange, degraded=self.troubles.text)
        return Settled(exchange, reading)

    def _result(self, end: End, cause: str | None, now: datetime) -> Settled:
        answer = self.tap or self._whole
        if answer is not None:
            answer.end()
        settled = result_of(
            self.opened,
            end=end,
            status=self.status,
            meter=answer.meter if answer else None,
            passed=answer.passed() if answer else NOTHING_PASSED,
            estimate_input=lambda: estimate.input_tokens_of(self.request_body()),
            cause=cause,
            now=now,
        )
        if self.route.is_fetch:
            settled = as_fetched(settled)
        if answer is not None and (unread := answer.meter.trouble):
            self.troubles.add(unread)
        if settled.exchange.error_type is None and settled.exchange.error_message is None:
            return settled
        exchange = self.without_secrets(settled.exchange, self.request_body())
        return Settled(exchange, settled.reading)


def is_event_stream(content_type: str) -> bool:
    """Whether an answer is server-sent events, the one stream that usage is asked for in."""
    return content_type.lower().startswith("text/event-stream")


def is_stream(response: Response) -> bool:
    """Whether a content type promises a stream."""
    return response.headers.get("content-type", "").lower().startswith(STREAM_TYPES)


def may_refuse(response: Response, *, injected: bool) -> bool:
    """Whether an answer may refuse the question that was added, and is short enough to wait for."""
    if not injected or response.status < 400:
        return False
    length = response.headers.get("content-length", "")
    return not length.isdigit() or int(length) <= REFUSAL_BYTES_MAX


def decoded_body(body: bytes, content_encoding: str, troubles: Troubles) -> bytes:
    """A request body without its content-encoding; the part that cannot be decoded is noted and
    left out."""
    steps = decoded_body_in_steps(body, content_encoding, troubles)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            decoded: bytes = end.value
            return decoded


def decoded_body_in_steps(
    body: bytes, content_encoding: str, troubles: Troubles
) -> Generator[None, None, bytes]:
    """As `decoded_body`, with a pause after each piece."""
    if not body or not content_encoding:
        return body
    decoder = Decoder(content_encoding)
    if decoder.is_identity:
        return body
    pieces: list[bytes] = []
    size = 0
    for piece in decoder.decode(body):
        size += len(piece)
        if size > REQUEST_BYTES_MAX:
            troubles.add(f"a request that decodes to more than {REQUEST_BYTES_MAX} bytes")
            return b""
        if len(pieces) >= REQUEST_PIECES_MAX:
            troubles.add(f"a request encoded in more than {REQUEST_PIECES_MAX} pieces")
            return b""
        pieces.append(piece)
        yield
    if decoder.trouble is not None:
        troubles.add(f"request: {decoder.trouble}")
        return b""
    return b"".join(pieces)
