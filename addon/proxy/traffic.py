"""Edge. mitmproxy's hooks of exchanges that are under way, from the answer's headers to its end.

    responseheaders   the tap is set into the stream
    response, error   settled: by whichever comes first, once; the end goes on to the client after
                      the commit
    websocket_message, websocket_end   the responses of a session

The recorder has these hooks while the script is loaded, and `lifecycle.Leaving` after that, for
the exchanges that the script left.
"""

from __future__ import annotations

from collections.abc import Generator

from mitmproxy import ctx, http

from addon.metering.exchange import Event, Stage, is_stream
from addon.metering.messages import End
from addon.metering.troubles import Troubles
from addon.proxy import answers, flows
from addon.proxy.event_loop import guarded, in_turns, wait_for_commit
from addon.proxy.live import Live
from addon.proxy.recording import Recording
from addon.proxy.sessions import LiveSession
from ledger.model.exchange import CAP_ERROR


class Traffic:
    """The hooks, on one recording."""

    def __init__(self) -> None:
        self._recording: Recording | None = None

    def failed(self, flow: http.HTTPFlow, failure: Exception) -> None:
        """A hook raised: note it, and take the exchange on as far as its flow is."""
        recording = self._recording
        troubles = recording.troubles_of(flow) if recording is not None else Troubles()
        troubles.add_failure(failure, "the traffic goes on")
        live = recording.live.get(flow.id) if recording is not None else None
        if recording is None or live is None:
            return
        if live.stage is Stage.OPENING:
            if recording.authoriser.refuses_failed(recording, live):
                return
            recording.send(live)
        is_over = flow.error is not None or (flow.response and flow.response.timestamp_end)
        if is_over:
            if live.moves(Event.STOPPED):
                end = flows.end_of(flow, broken_by_client=live.broken_by_client)
                recording.settle(live, end if flow.error is not None else End.FINISHED, None)
            recording.live.pop(flow.id, None)

    @guarded
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: decide how the body is read, before any of it arrives."""
        recording, live = self._recording, self._live(flow)
        if recording is None or live is None or flow.response is None:
            return
        if flow.response.status_code == 101 or live.is_recorded:
            return  # no stream will pass
        if live.route.needs_stream and not is_stream(flows.response_of(flow.response)):
            del recording.live[flow.id]  # it is no call
            return
        # Set first: an exception before this would make mitmproxy buffer the whole answer.
        flow.response.stream = True
        answers.begin(recording, live, flow.response)

    @guarded
    async def response(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: settle an exchange whose response is over. What the client sees of the
        end waits for this."""
        recording, live = self._recording, self._live(flow)
        if recording is None or live is None or flow.response is None:
            return
        if live.is_recorded and flow.error is not None:
            return  # it ended in an error, whose hook comes next
        if live.status != flow.response.status_code:  # another addon has changed it
            live.keep_response(flows.response_of(flow.response))
        answers.read_trailers(live, flow.response)
        if flow.websocket is not None:
            live.moves(Event.ANSWERED)
            live.begin_capture(recording.captures)
            del recording.live[flow.id]
            recording.sessions[flow.id] = LiveSession(
                live, ledger=recording.ledger, caps=recording.authoriser.socket(live, recording)
            )
            return
        if not flow.response.stream:
            answers.read_whole(recording, live, flow.response)
        else:
            answers.note_if_unread(live, flow.response)
        end, cause = End.FINISHED, None
        if live.broken_by_client is False:
            end, cause = End.UPSTREAM_BROKE, "upstream reset its connection"
        await self._end(recording, live, end, cause)

    @guarded
    async def error(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: settle an exchange that broke off. Its client, if it is there, sees
        that after this."""
        recording, live = self._recording, self._live(flow)
        if recording is not None:
            recording.heads.pop(flow.id, None)
        if recording is None or live is None:
            return
        if live.is_recorded and flow.response is not None:
            answers.read_whole(recording, live, flow.response)
        elif flow.response is not None:
            answers.note_if_unread(live, flow.response)
        message = flow.error.msg if flow.error else ""
        # In mitmproxy's messages the text after a bytes literal comes from upstream.
        cause = message.split("b'")[0].split('b"')[0]
        end = flows.end_of(flow, broken_by_client=live.broken_by_client)
        await self._end(recording, live, end, cause)

    async def _end(self, recording: Recording, live: Live, end: End, cause: str | None) -> None:
        """Take an exchange from its end to its commit."""
        live.end = end, cause
        live.moves(Event.ENDED)
        if live.tap is not None and live.tap.read_some():
            await in_turns(_rest_of(live))
        if not live.moves(Event.READ):
            return  # the proxy stopped meanwhile, and settled it
        receipt = recording.settle(live, end, cause)
        if live.flow.response is not None:
            answers.release(live, live.flow.response)
        try:
            # A client that has left sees no end.
            if receipt and recording.settings.commit_before_end and end is not End.CLIENT_LEFT:
                await wait_for_commit(receipt)
        finally:
            live.moves(Event.COMMITTED)
            recording.live.pop(live.flow.id, None)

    def _live(self, flow: http.HTTPFlow) -> Live | None:
        """The exchange of a flow, if its end has not come."""
        live = self._recording.live.get(flow.id) if self._recording is not None else None
        is_running = live is not None and live.stage in (Stage.ASKING, Stage.ANSWERING)
        return live if is_running else None

    @guarded
    async def websocket_message(self, flow: http.HTTPFlow) -> None:
        """A message that ends a response goes on when the response's reading is on disk."""
        recording = self._recording
        session = recording.sessions.get(flow.id) if recording else None
        if recording is None or session is None or flow.websocket is None:
            return
        message = flow.websocket.messages[-1]
        if message.injected and CAP_ERROR.encode() in message.content:
            return  # our own
        refusal = await session.caps.refusal_of(message)
        if session.is_over:  # it was closed meanwhile
            return
        if refusal is not None:
            message.drop()
            ctx.master.commands.call("inject.websocket", flow, True, refusal, True)
            return
        session.messages_under_way += 1
        try:
            receipts = session.receive(message)
            has_reader = not recording.process.is_ours or recording.bodies.are_wanted
            if not session.handshake.is_recorded and not has_reader:
                # mitmproxy keeps every message until the connection ends (#6620): hours of audio.
                del flow.websocket.messages[:-1]
            if recording.settings.commit_before_end:
                for receipt in receipts:
                    await wait_for_commit(receipt)
        finally:
            session.messages_under_way -= 1

    @guarded
    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: end a WebSocket session and settle its open responses."""
        recording = self._recording
        session = recording.sessions.pop(flow.id, None) if recording else None
        if recording is None or session is None or flow.websocket is None:
            return
        how = End.CLIENT_LEFT if flow.websocket.closed_by_client else End.UPSTREAM_BROKE
        session.close(how, flow.websocket.timestamp_end, recording.captures)


def _rest_of(live: Live) -> Generator[None]:
    """Read the rest of a long answer, with a pause after each piece."""
    while live.tap is not None and live.tap.read_some():
        yield
