"""Pure. Which messages of a WebSocket begin and end a response, by protocol.

Responses over WebSocket (Codex) and Realtime have one protocol: the client sends `response.create`,
the server sends `response.created`, then deltas, then a message that ends the response and has its
usage. With voice detection the server begins responses itself. In Realtime several may be open at
once, with different ids. One response is one exchange.

    waiting     requested by the client, not yet created by the server; first in, first out; beyond
                `WAITING_MAX` a request is not noted
    open        created; found by the id that the server gave it
    closed      its last message has arrived, or the session is over

A session may last for hours and carry audio, so only messages that may have facts are parsed, and
nothing is kept of a closed response.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from addon.dialects.counts import added, beside, fallen, lookup, object_at
from addon.dialects.facts import NO_CONTEXT, AnswerContext, has_figure, text_of
from addon.dialects.request import RequestFacts, read_request
from addon.dialects.routes import Route, answer_keys
from addon.framing import json_values, long_json
from addon.framing.long_json import LONG_BYTES
from addon.metering.estimate import input_tokens_of
from addon.metering.meter import Meter

OPEN_MAX = 64
"""Realtime runs a handful of responses at a time; beyond this bound the oldest counts as cut."""
WAITING_MAX = 8
"""Client requests that the server has not answered yet. A request beyond this bound gets its
exchange when the server creates its response, so that a client alone cannot fill the ledger."""
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event: messages with usage are far smaller, so a longer one is not parsed."""
FALLS_MAX = 16
"""Running totals of a session whose fall is said."""
RUNNING_MAX = 64
"""Answers at the same time on a WebSocket of an unknown protocol; of more, the first are over."""
ADDED_UP = "the usage of {} answers of the connection is added up"
CONNECTION = 0
"""The key of an exchange that is a whole connection; those of responses begin at 1."""
_TELLING = (
    *(b'"response"', b'"error"', b'"session"', b"_transcription.completed", b'"decision"'),
    *(b'"session.usage.updated"', b'.output_item.done"'),
)
"""A message of the server is parsed if it has one of these."""
_WRAPPERS = ("response.event", "decision.event")
"""Messages of OpenAI Live that carry an event of the Responses or a decision that it delegated to
(`openai.types.live` of the SDK)."""
_BEGINNINGS = (b'"serverContent"', b'"toolCall"', b'"usageMetadata"', b'"error"')
"""A message of Gemini Live is parsed if it has one of these, until the open turn has content."""
_FIGURES = (
    *(b'"usageMetadata"', b'"turnComplete"', b'"interrupted"', b'"error"', b'"groundingMetadata"'),
    *(b'"urlContextMetadata"', b'"executableCode"'),
)
"""The same for the rest of the turn: other messages carry audio and no figures."""
_USERS_WORDS = b'"inputTranscription"'
"""A message with text of the user, not of the model."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The client has requested a response, or the server has begun one."""

    key: int
    """The number of this response in its session; `Closed` has the same one."""
    request: RequestFacts
    input_tokens: int | None = None
    """An estimate from what the client sent; None where the session has the input."""


@dataclass(frozen=True, slots=True)
class Closed:
    """A response is over, and its meter has read all of its messages."""

    key: int
    meter: Meter


SessionEvent = Opened | Closed


@dataclass(slots=True)
class _Response:
    key: int
    meter: Meter
    event_id: str | None = None
    """The client's id for its own message, which an error refers to."""


def _body_of(message: bytes) -> dict[str, Any] | None:
    """What a message says; None for what is no JSON object."""
    if len(message) > LONG_BYTES:
        return long_json.read(message, answer_keys())[0]
    return json_values.loads(message)


def _said(how: str, answer: dict[str, Any]) -> bytes:
    """What OpenAI Live says of its own, as a message of Responses."""
    return json_values.dumps({"type": f"response.{how}", "response": answer}).encode()


class WebSocketSession:
    """Takes each message of either side; returns the responses that it opens and closes."""

    def __init__(
        self, route: Route, *, context: AnswerContext = NO_CONTEXT, model: str | None = None
    ) -> None:
        self._route = route
        self._context = context
        self._model = text_of(model)
        """From the URL or the server's session; Realtime's responses do not name it."""
        self._transcriber: str | None = None
        self._running: dict[str, Any] | None = {}
        """What OpenAI Live has billed so far; None once its last message told the whole."""
        self._fell: dict[str, None] = {}
        """Which of that was more before."""
        self._waiting: list[_Response] = []
        self._open_responses: dict[str, _Response] = {}
        self._keys = 0

    @property
    def open_count(self) -> int:
        """How many responses are waiting or open."""
        return len(self._waiting) + len(self._open_responses)

    def client_message(self, message: bytes) -> list[SessionEvent]:
        """The responses that a client's message opens."""
        if len(message) > MESSAGE_BYTES_MAX:
            return []
        if b"response.create" not in message and not json_values.has_escaped_key(message):
            return []
        if len(self._waiting) >= WAITING_MAX:
            return []
        body = _body_of(message)
        if body is None or body.get("type") != "response.create":
            return []
        # Realtime wraps the parameters; Responses puts them beside the type.
        parameters = object_at(body, "response") or body
        data = json_values.dumps(parameters).encode()
        request = read_request(self._route, data, secrets=self._context.secrets)
        request = replace(request, model=request.model or self._model, streamed=True)
        response = self._open(request.model, request.billing)
        response.event_id = text_of(body.get("event_id"))
        self._waiting.append(response)
        inputs = input_tokens_of(data) if "input" in parameters else None
        return [Opened(response.key, request, inputs), *self._overflow()]

    def server_message(self, message: bytes) -> list[SessionEvent]:
        """The responses that a server's message opens and closes."""
        # Deltas (nearly all messages) matter only until the first.
        unspoken = any(not one.meter.facts.token_seen for one in self._open_responses.values())
        telling = (*_TELLING, b'.delta"') if unspoken else _TELLING
        if len(message) > MESSAGE_BYTES_MAX:
            return []
        if not (any(mark in message for mark in telling) or json_values.has_escaped_key(message)):
            is_alone = len(self._open_responses) == 1
            for response_id, response in self._open_responses.items():
                if is_alone or response_id.encode() in message:
                    response.meter.keep_message(message)
            return []
        body = _body_of(message)
        if body is None:
            return []
        session = object_at(body, "session") or {}
        self._model = text_of(session.get("model")) or self._model
        for path in ("audio.input.transcription.model", "input_audio_transcription.model"):
            self._transcriber = text_of(lookup(session, path)) or self._transcriber
        return list(self._events_in(body, message))

    def end(self) -> list[SessionEvent]:
        """End the session; close all open responses."""
        cut = [*self._waiting, *self._open_responses.values()]
        self._waiting.clear()
        self._open_responses.clear()
        running, self._running = self._running, None
        said = _said("in_progress", {"usage": running})
        alone = self._alone(self._model, said, self._fell) if running else ()
        return [*(Closed(response.key, response.meter) for response in cut), *alone]

    def _events_in(self, body: dict[str, Any], message: bytes) -> Iterator[SessionEvent]:
        kind = body.get("type")
        if kind in self._route.dialect.billed_alone:
            if body.get("status") != "in_progress":  # xAI repeats it while speech goes on
                yield from self._alone(self._transcriber, message)
        elif kind in _WRAPPERS:
            inner = object_at(body, "event") or {}
            if inner.get("type") not in _WRAPPERS:
                yield from self._events_in(inner, json_values.dumps(inner).encode())
        elif kind == "decision.completed":
            decision = object_at(body, "decision") or {}
            yield from self._alone(text_of(decision.get("model")), _said("completed", decision))
        elif kind in ("session.usage.updated", "session.closed"):
            if self._running is None:
                return
            running = object_at(body, "usage") or self._running
            self._fell |= dict.fromkeys(
                fallen(self._running, running)[: FALLS_MAX - len(self._fell)]
            )
            self._running = running
            if kind == "session.closed":
                said = {"id": lookup(body, "session.id"), "usage": self._running or None}
                self._running = None
                yield from self._alone(self._model, _said("completed", said), self._fell)
        elif kind == "error":
            yield from self._refused(body, message)
        elif kind == "response.created" or self._is_whole(body):
            yield from self._created(body, message)
        else:
            yield from self._continued(body, message)

    def _alone(
        self, model: str | None, message: bytes, fell: Iterable[str] = ()
    ) -> Iterator[SessionEvent]:
        """An exchange of what is billed beside the responses: a transcript, or of OpenAI Live the
        seconds of a session, a decision. `fell`: of its running totals."""
        response = self._open(model)
        response.meter.read_message(message)
        response.meter.facts.record_falls(fell)
        request = RequestFacts(model=model, streamed=True)
        yield from (Opened(response.key, request), Closed(response.key, response.meter))

    def _is_whole(self, body: dict[str, Any]) -> bool:
        """Whether a message has all of a response of which no other has come."""
        response_id = text_of(lookup(body, "response.id"))
        is_new = response_id is not None and response_id not in self._open_responses
        has_usage = isinstance(lookup(body, "response.usage"), dict)
        # One that was created without an id may get it now.
        return is_new and has_usage and not any(key[0] == "\0" for key in self._open_responses)

    def _created(self, body: dict[str, Any], message: bytes) -> Iterator[SessionEvent]:
        response_id = text_of(lookup(body, "response.id"))
        if response_id in self._open_responses:
            return
        if self._waiting:
            response = self._waiting.pop(0)
        else:
            response = self._open(self._model)
            yield Opened(response.key, RequestFacts(model=self._model, streamed=True))
        # A response without an id is matched if it is the only open one.
        self._open_responses[response_id or f"\0{response.key}"] = response
        response.meter.read_message(message)
        if response.meter.facts.ended:
            self._open_responses.popitem()
            yield Closed(response.key, response.meter)
        yield from self._overflow()

    def _continued(self, body: dict[str, Any], message: bytes) -> Iterator[SessionEvent]:
        response_id = text_of(body.get("response_id")) or text_of(lookup(body, "response.id"))
        if response_id is None or response_id not in self._open_responses:
            if len(self._open_responses) != 1:
                return
            # Deltas of the Responses API name no response: it is the only one.
            response_id = next(iter(self._open_responses))
        response = self._open_responses[response_id]
        response.meter.read_message(message)
        if response.meter.facts.ended:
            del self._open_responses[response_id]
            yield Closed(response.key, response.meter)

    def _refused(self, body: dict[str, Any], message: bytes) -> Iterator[SessionEvent]:
        """Assign an error to the request it names, or else to the one that waits longest.

        An open response notes the error; it still gets its own last message.
        """
        named = text_of(lookup(body, "error.event_id")) or text_of(body.get("event_id"))
        refused = next((one for one in self._waiting if named and one.event_id == named), None)
        if refused is None and self._waiting and not lookup(body, "error.event_id"):
            refused = self._waiting[0]
        if refused is not None:
            self._waiting.remove(refused)
            refused.meter.read_message(message)
            yield Closed(refused.key, refused.meter)
        elif len(self._open_responses) == 1:
            next(iter(self._open_responses.values())).meter.read_message(message)

    def _open(self, model: str | None, asked: Mapping[str, str] | None = None) -> _Response:
        self._keys += 1
        meter = Meter(self._route.dialect, context=self._context, requested=asked or {})
        meter.facts.record_model(model or self._model)
        return _Response(self._keys, meter)

    def _overflow(self) -> Iterator[Closed]:
        while self.open_count > OPEN_MAX:
            if self._waiting:
                oldest = self._waiting.pop(0)
            else:
                oldest = self._open_responses.pop(next(iter(self._open_responses)))
            yield Closed(oldest.key, oldest.meter)


class LiveTurns:
    """A Gemini Live session (https://ai.google.dev/api/live): takes each message of either side;
    returns the turns that it opens and closes.

    The client begins with `setup`, which names the model, and then sends text, audio or video at
    any time. The server answers in turns: content until `turnComplete`, usually with usage beside
    it. One turn is one exchange; at most one turn is open.

        idle         no turn; content, a tool call or an error of the server begins one
        open         until `turnComplete`, or the end of the session

    Usage that arrives while no turn is open is an exchange of its own, so that none is lost.
    """

    def __init__(
        self, route: Route, *, context: AnswerContext = NO_CONTEXT, model: str | None = None
    ) -> None:
        self._route = route
        self._context = context
        self._model = model
        self._turns = 0
        self._meter: Meter | None = None
        """Of the open turn."""

    def client_message(self, message: bytes) -> list[SessionEvent]:
        """Read a client's message: it opens and closes no turn, but it may name the model."""
        if b'"setup"' in message and len(message) <= MESSAGE_BYTES_MAX:
            model = lookup(_body_of(message) or {}, "setup.model")
            if isinstance(model, str):
                self._model = model[:256]
        return []

    def server_message(self, message: bytes) -> list[SessionEvent]:
        """The turns that a server's message opens and closes."""
        has_content = self._meter is not None and self._meter.facts.token_seen
        telling = _FIGURES if has_content else _BEGINNINGS
        if len(message) > MESSAGE_BYTES_MAX:
            return []
        if not any(mark in message for mark in telling):
            if self._meter is not None and _USERS_WORDS not in message:
                self._meter.keep_message(message)
            return []
        body = _body_of(message)
        if body is None:
            return []
        happenings: list[SessionEvent] = []
        if self._meter is None:
            self._turns += 1
            self._meter = Meter(self._route.dialect, context=self._context)
            self._meter.facts.record_model(self._model)
            happenings.append(Opened(self._turns, RequestFacts(model=self._model, streamed=True)))
        self._meter.read_message(message)
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


class Connection:
    """A WebSocket of an unknown protocol: the whole connection is one exchange, that of its
    handshake. Each answer's usage counts. What the messages of one answer state is a running
    figure, the last of which counts; another id, or a count that falls, is another answer's.
    Answers with ids may run at the same time."""

    open_count = 1

    def __init__(
        self, route: Route, *, context: AnswerContext = NO_CONTEXT, model: str | None = None
    ) -> None:
        self._meter = Meter(route.dialect, context=context)
        self._meter.facts.record_model(model)
        self._marks = route.dialect.marks
        self._running: dict[str | None, dict[str, Any]] = {}
        """Id of an answer -> its usage so far; the latest answer is the last."""
        self._over: dict[str, Any] = {}
        """The sum of the answers that are over."""
        self._over_count = 0
        self._latest_id: str | None = None

    def client_message(self, _message: bytes) -> list[SessionEvent]:
        """Nothing: what a client's message asks for is not known."""
        return []

    def server_message(self, message: bytes) -> list[SessionEvent]:
        """Read a server's message, which opens and closes nothing."""
        facts = self._meter.facts
        # A protocol that is not known has no end of its own that could be missing.
        facts.ended = True
        if len(message) <= MESSAGE_BYTES_MAX and any(mark.matches(message) for mark in self._marks):
            first_id = facts.response_id
            facts.usage = facts.response_id = None
            self._meter.read_message(message)
            self._count()
            if first_id is not None:
                facts.rare.id_unstable |= facts.response_id not in (None, first_id)
                facts.response_id = first_id
        else:
            self._meter.frames += 1
        return []

    def _count(self) -> None:
        """Put what a message states alone, which the facts have, beside what was stated before."""
        facts, running = self._meter.facts, self._running
        stated = {key: each for key, each in (facts.usage or {}).items() if each is not None}
        self._latest_id = facts.response_id or self._latest_id
        if has_figure(stated):  # zeros alone are none
            # What came before the first id is of the first answer.
            before = running.pop(None, None) or running.pop(self._latest_id, {})
            if fallen(before, stated):
                self._end_answer(before)
                before = {}
            running[self._latest_id] = beside(before, stated)
            if len(running) > RUNNING_MAX:
                self._end_answer(running.pop(next(iter(running))))
        facts.usage = running[next(reversed(running))] if running else None

    def _end_answer(self, usage: Mapping[str, Any]) -> None:
        self._over = added(self._over, usage)
        self._over_count += 1

    def end(self) -> list[SessionEvent]:
        """Close the exchange."""
        facts = self._meter.facts
        if self._over_count + len(self._running) > 1:
            for usage in self._running.values():
                self._end_answer(usage)
            facts.usage = self._over
            facts.remark(ADDED_UP.format(self._over_count))
        return [Closed(CONNECTION, self._meter)]
