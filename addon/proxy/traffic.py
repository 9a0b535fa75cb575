"""Edge. mitmproxy's hooks of exchanges that are under way, from the answer's headers to its end.

    responseheaders   the tap is set into the stream
    response, error   settled: by whichever comes first, once; the end goes on to the client after
                      the commit
    websocket_message, websocket_end   the responses of a session

The recorder has these hooks while the script is loaded, and `lifecycle.Leaving` after that, for
the exchanges that the script left.
"""

from __future__ import annotations

from datetime import UTC, datetime

from mitmproxy import http, websocket

from addon.metering.requests.messages import End
from addon.metering.session import MeteredSession
from addon.metering.troubles import Troubles
from addon.metering.websocket import short_message_in_steps
from addon.proxy import answers, capturing, exchanges, flows
from addon.proxy.event_loop import guarded, in_turns, wait_for_commit
from addon.proxy.running import Live, Phase, Running, Session


class Traffic:
    """The hooks, on the state of one recording."""

    def __init__(self) -> None:
        self._running: Running | None = None

    def failed(self, flow: http.HTTPFlow, failure: Exception) -> None:
        """A hook raised: note it, and settle the exchange if it is over."""
        running = self._running
        live = running.live.get(flow.id) if running is not None else None
        troubles = live.exchange.troubles if live is not None else Troubles()
        troubles.add_failure(failure, "the traffic goes on")
        is_over = flow.error is not None or (flow.response and flow.response.timestamp_end)
        if running is None or live is None or not is_over:
            return
        end = flows.end_of(flow, broken_by_client=live.broken_by_client)
        exchanges.settle(running, live, end if flow.error is not None else End.FINISHED, None)
        running.live.pop(flow.id, None)

    @guarded
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: decide how the body is read, before any of it arrives."""
        running = self._running
        live = self._live(flow)
        if running is None or live is None or flow.response is None:
            return
        exchange = live.exchange
        exchange.status = flow.response.status_code
        if exchange.status == 101:
            return
        if exchange.is_recorded:
            return  # its body is there, and no stream will pass
        # Set first: an exception before this would make mitmproxy buffer the whole answer.
        flow.response.stream = True
        exchange.troubles.attempt(answers.begin, running, live, flow.response)

    @guarded
    async def response(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: settle an exchange whose response is over. What the client sees of the
        end waits for this."""
        running, live = self._running, self._live(flow)
        if running is None or live is None or flow.response is None:
            return
        exchange = live.exchange
        if exchange.is_recorded and flow.error is not None:
            return  # it ended in an error, whose hook comes next
        if flow.websocket is not None:
            del running.live[flow.id]
            exchange.status = flow.response.status_code
            metered = exchange.troubles.attempt(MeteredSession, exchange)
            if metered is not None:
                capture = exchange.troubles.attempt(capturing.begin, running, live)
                running.sessions[flow.id] = Session(flow, metered, capture)
            return
        if not flow.response.stream:
            exchange.troubles.attempt(answers.read_whole, running, live, flow.response)
        else:
            answers.note_if_unread(live, flow.response)
        end, cause = End.FINISHED, None
        if live.broken_by_client is False:
            end, cause = End.UPSTREAM_BROKE, "upstream reset its connection"
        await self._end(running, live, end, cause)

    @guarded
    async def error(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: settle an exchange that broke off. Its client, if it is there, sees
        that after this."""
        running, live = self._running, self._live(flow)
        if running is not None:
            running.own_headers.pop(flow.id, None)
        if running is None or live is None:
            return
        if live.exchange.is_recorded and flow.response is not None:
            live.exchange.troubles.attempt(answers.read_whole, running, live, flow.response)
        elif flow.response is not None:
            answers.note_if_unread(live, flow.response)
        message = flow.error.msg if flow.error else ""
        # In mitmproxy's messages the text after a bytes literal comes from upstream.
        cause = message.split("b'")[0].split('b"')[0]
        end = flows.end_of(flow, broken_by_client=live.broken_by_client)
        await self._end(running, live, end, cause)

    async def _end(self, running: Running, live: Live, end: End, cause: str | None) -> None:
        """Take an exchange from running to settled."""
        live.phase, live.end = Phase.ENDING, (end, cause)
        troubles = live.exchange.troubles
        await in_turns(exchanges.read_rest(live.exchange), troubles)
        receipt = exchanges.settle(running, live, end, cause)
        if live.flow.response is not None:
            troubles.attempt(answers.release, live, live.flow.response)
        try:
            # A client that has left sees no end.
            if receipt and running.settings.commit_before_end and end is not End.CLIENT_LEFT:
                await wait_for_commit(receipt)
        finally:
            running.live.pop(live.flow.id, None)

    def _live(self, flow: http.HTTPFlow) -> Live | None:
        """The exchange of a flow, if it is running."""
        live = self._running.live.get(flow.id) if self._running is not None else None
        return live if live is not None and live.phase is Phase.RUNNING else None

    @guarded
    async def websocket_message(self, flow: http.HTTPFlow) -> None:
        """A message that ends a response goes on when the response's reading is on disk."""
        running = self._running
        session = running.sessions.get(flow.id) if running else None
        if running is None or session is None or flow.websocket is None:
            return
        session.messages_under_way += 1
        try:
            await self._read_message(running, session, flow.websocket.messages[-1])
        finally:
            session.messages_under_way -= 1

    async def _read_message(
        self, running: Running, session: Session, message: websocket.WebSocketMessage
    ) -> None:
        metered = session.metered
        troubles = metered.handshake.troubles
        steps = short_message_in_steps(message.content)
        short = await in_turns(steps, troubles) or b""
        read = exchanges.read_message
        receipts = troubles.attempt(read, running.ledger, metered, message, short) or []
        if not metered.handshake.is_recorded:
            if session.capture is not None:
                at = datetime.fromtimestamp(message.timestamp, UTC)
                troubles.attempt(capturing.add_message, session.capture, message, at)
            has_reader = not running.is_ours or running.bodies.are_wanted
            if session.flow.websocket is not None and not has_reader:
                # mitmproxy keeps every message until the connection ends (#6620): hours of audio.
                del session.flow.websocket.messages[:-1]
        if running.settings.commit_before_end:
            for receipt in receipts:
                await wait_for_commit(receipt)

    @guarded
    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: end a WebSocket session and settle its open responses."""
        running = self._running
        session = running.sessions.pop(flow.id, None) if running else None
        if running is None or session is None or flow.websocket is None:
            return
        ended = flow.websocket.timestamp_end
        at = datetime.fromtimestamp(ended, UTC) if ended else flows.now()
        how = End.CLIENT_LEFT if flow.websocket.closed_by_client else End.UPSTREAM_BROKE
        exchanges.end_session(running, session, how, at)
