"""Pure. The exchanges of one WebSocket connection: one for each response; who opened it, and when
it ends.

A refused handshake is an ordinary exchange. An accepted handshake is not billed: each response of
the session becomes an exchange of its own, with the attribution of the handshake and the id
`<handshake id>/<number>`. It opens when the client requests the response or the server begins it
(`websocket.py`).
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from addon.dialects.dialect import SessionProtocol
from addon.framing import json_values
from addon.metering.exchange import MeteredExchange
from addon.metering.messages import End, is_within
from addon.metering.meter import Meter
from addon.metering.settlement import Settled, result_of, result_unread
from addon.metering.websocket import (
    CONNECTION,
    Closed,
    Connection,
    LiveTurns,
    Opened,
    SessionEvent,
    WebSocketSession,
)
from ledger.model.exchange import Exchange

RATE_LIMITS_BYTES_MAX = 16 * 1024
"""Of a message that states quotas; those seen are 400 bytes long."""

_SESSIONS: dict[SessionProtocol, type[WebSocketSession] | type[LiveTurns] | type[Connection]] = {
    SessionProtocol.RESPONSES: WebSocketSession,
    SessionProtocol.TURNS: LiveTurns,
    SessionProtocol.CONNECTION: Connection,
}


class MeteredSession:
    """Takes each message of either side; returns the exchanges that it opens and settles."""

    __slots__ = (
        "_has_ended",
        "_open",
        "_quota_event",
        "_rate_limits",
        "_wire",
        "handshake",
    )

    def __init__(self, handshake: MeteredExchange) -> None:
        self.handshake = handshake
        opened = handshake.opened
        route = handshake.routes.session or handshake.route
        protocol = route.dialect.session
        self._wire: LiveTurns | WebSocketSession | Connection = _SESSIONS[protocol](
            route, context=handshake.asked.context, model=opened.request_model
        )
        self._open: dict[int, tuple[Exchange, int | None]] = {}
        """Open responses with an estimate of their input, by the key from `_wire`."""
        if protocol is SessionProtocol.CONNECTION:
            self._open[CONNECTION] = replace(opened, streamed=True), None
        self._quota_event = route.dialect.quota_event
        self._has_ended = False
        """Whether a response has ended."""
        self._rate_limits: object = None
        """The last event that states quotas; the next response that ends has them."""

    @property
    def is_open(self) -> bool:
        """Whether a response is open. What is under way in an unknown protocol is not known."""
        return any(key != CONNECTION for key in self._open)

    def message(
        self, content: bytes, *, from_client: bool, at: datetime
    ) -> list[Exchange | Settled]:
        """Read one message; return the exchanges that it opens and settles."""
        event = self._quota_event
        if event and not from_client and len(content) <= RATE_LIMITS_BYTES_MAX and event in content:
            self._rate_limits = json_values.loads(content)
        read = self._wire.client_message if from_client else self._wire.server_message
        return self._exchanges(read(content), End.FINISHED, at)

    def end(self, how: End, *, at: datetime) -> list[Exchange | Settled]:
        """Settle the open responses when the connection ends."""
        return self._exchanges(self._wire.end(), how, at)

    def _exchanges(
        self, happenings: Iterable[SessionEvent], how: End, at: datetime
    ) -> list[Exchange | Settled]:
        handshake = self.handshake.opened
        exchanges: list[Exchange | Settled] = []
        for happening in happenings:
            match happening:
                case Opened(key=key, request=request, input_tokens=inputs):
                    opened = replace(
                        handshake,
                        id=f"{handshake.id}/{key}",
                        opened_at=at,
                        request_model=request.model or handshake.request_model,
                        streamed=True,
                        end_user=request.end_user or handshake.end_user,
                        session_id=handshake.session_id or request.session_id,
                    )
                    self._open[key] = opened, inputs
                    exchanges.append(opened)
                case Closed(key=key, meter=meter):  # pragma: no branch  # no third type
                    opened, inputs = self._open.pop(key)
                    exchanges.append(self._settled(opened, meter, inputs, how, at))
        return exchanges

    def _settled(
        self, opened: Exchange, meter: Meter, inputs: int | None, how: End, at: datetime
    ) -> Settled:
        handshake = self.handshake
        in_headers, self._has_ended = not self._has_ended, True
        event, self._rate_limits = self._rate_limits, None
        if handshake.is_recorded and not is_within(opened.opened_at, at):
            at = opened.opened_at
        try:
            settled = result_of(
                opened,
                end=how,
                status=handshake.status,
                meter=meter,
                estimate_input=lambda: inputs,
                now=at,
            )
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the row
            handshake.troubles.add_failure(failure, "a response of the session is not read")
            settled = result_unread(opened, end=how, status=handshake.status, now=at)
        settled = handshake.noted(handshake.beside(settled, event, at, in_headers=in_headers))
        if meter.trouble:
            said = [each for each in (settled.exchange.degraded, meter.trouble) if each]
            settled = settled._replace(exchange=replace(settled.exchange, degraded="; ".join(said)))
        return settled
