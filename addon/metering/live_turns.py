"""Pure. A Gemini Live session as a sequence of turns: when each begins and ends.

https://ai.google.dev/api/live

The client begins with `setup`, which names the model, and then sends text, audio or video at any
time. The server answers in turns: content until `turnComplete`, usually with usage beside it.
One turn is one exchange; at most one turn is open.

    idle         no turn; content, a tool call or an error of the server begins one
    open         until `turnComplete`, or the end of the session

Usage that arrives while no turn is open is an exchange of its own, so that none is lost.
"""

from addon.dialects.counts import lookup
from addon.dialects.request import RequestFacts
from addon.dialects.routes import Route
from addon.framing import json_values
from addon.metering.answers.meter import Meter
from addon.metering.websocket import MESSAGE_BYTES_MAX, Closed, Opened, SessionEvent, short_message

_BEGINNINGS = (b'"serverContent"', b'"toolCall"', b'"usageMetadata"', b'"error"')
"""A message is parsed if it has one of these, until the open turn has content."""
_FIGURES = (b'"usageMetadata"', b'"turnComplete"', b'"interrupted"', b'"error"')
"""The same for the rest of the turn: other messages carry audio and no figures."""


class LiveTurns:
    """Takes each message of either side; returns the turns that it opens and closes."""

    def __init__(self, route: Route, *, provider: str = "", model: str | None = None) -> None:
        self._route = route
        self._provider = provider
        self._model = model
        self._turns = 0
        self._meter: Meter | None = None
        """Of the open turn."""

    def client_message(self, message: bytes) -> list[SessionEvent]:
        """Read a client's message: it opens and closes no turn, but it may name the model."""
        if b'"setup"' in message and len(message) <= MESSAGE_BYTES_MAX:
            model = lookup(json_values.loads(short_message(message)) or {}, "setup.model")
            if isinstance(model, str):
                self._model = model[:256]
        return []

    def server_message(self, message: bytes) -> list[SessionEvent]:
        """The turns that a server's message opens and closes."""
        has_content = self._meter is not None and self._meter.token_seen
        telling = _FIGURES if has_content else _BEGINNINGS
        if len(message) > MESSAGE_BYTES_MAX or not any(mark in message for mark in telling):
            return []
        message = short_message(message)
        body = json_values.loads(message)
        if body is None:
            return []
        happenings: list[SessionEvent] = []
        if self._meter is None:
            self._turns += 1
            self._meter = Meter(self._route.dialect, content_type="", provider=self._provider)
            self._meter.facts.record_model(self._model)
            happenings.append(Opened(self._turns, RequestFacts(model=self._model, streamed=True)))
        self._meter.feed_message(message)
        is_alone = bool(happenings) and "serverContent" not in body and "toolCall" not in body
        if is_alone:
            self._meter.facts.ended = True
        if self._meter.facts.ended:
            happenings += self.end()
        return happenings

    def end(self) -> list[Closed]:
        """Close the open turn."""
        meter, self._meter = self._meter, None
        return [Closed(self._turns, meter)] if meter is not None else []
