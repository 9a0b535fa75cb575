"""Edge. What mitmproxy's HTTP stream does not offer to an addon.

    who broke     the error hook's message blames the client for an upstream's RST_STREAM; the
                  event behind it says which side it came from
    held too long an answer that may refuse our question is held; one that grows beyond the bound
                  goes on
    ask again     a refused request is sent upstream once more within the same flow, so that its
                  answer streams to the client as any other
    reset         the end of a body that ends by closing looks the same after a reset; at that
                  moment the connection still knows
    held end      a body under a content-length is over for the client with its last byte, before
                  a hook could wait for anything; what completes it is sent after the hook. It
                  belongs to the stream, so it stays when the wrappers come off
    cut short     the client of a body that we could not give whole must not take its end for a
                  good one: its connection is closed, or its HTTP/2 stream reset
    a broken WebSocket  mitmproxy tells the other side that it was closed as agreed (1000); in our
                  own process the other side's connection ends without a close frame, too
    early answer  a request that was refused at its headers is answered then: its client may wait
                  for that before it ends its side
    first message under a cap, a gRPC call is decided when the first message of its request is
                  whole; the rest goes on as it comes
    the stream    what `flow.response.stream` is when the stream begins, after all addons
    lost end      a reset that another task meets first cancels the task that was about to tell of
                  it: the client waited for ever, and the row stayed open

All are wrappers around methods of `HttpStream`, `WebsocketLayer` and `ConnectionHandler`, put on by
the first `install`
and taken off again by what the last returns, in every process unless `tee_wrap=no`. Where a method
has another source, `install` raises and nothing is wrapped: `process.WITHOUT_WRAPPING` says what is
not kept then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import wraps
from typing import Any

from mitmproxy import ctx, http
from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import (
    ErrorCode,
    HttpErrorHook,
    HttpRequestHook,
    HttpResponseHook,
    HttpStream,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseProtocolError,
    SendHttp,
)
from mitmproxy.proxy.layers.websocket import WebsocketLayer
from mitmproxy.proxy.server import ConnectionHandler
from mitmproxy.proxy.utils import ReceiveBuffer

from addon.framing.grpc import has_first_message, is_grpc
from addon.proxy import answers, opt_in, sources
from addon.proxy.event_loop import guarded
from addon.proxy.recording import Recording
from addon.usage_opt_in import asking

type Commands = Generator[commands.Command, Any, None]

RELIES_ON = {
    "mitmproxy.proxy.layers.http:HttpStream.handle_protocol_error": "59fc3b2eeeabf63a",
    "mitmproxy.proxy.layers.http:HttpStream.send_response": "d581bc106152e369",
    "mitmproxy.proxy.layers.http:HttpStream.start_response_stream": "b0de9e9a5ee27276",
    "mitmproxy.proxy.layers.http:HttpStream.start_request_stream": "46f03368a2a54362",
    "mitmproxy.proxy.layers.http:HttpStream.flow_done": "ad9969744785c572",
    "mitmproxy.proxy.layers.http:HttpStream.check_body_size": "236ca0a7b9fd4f69",
    "mitmproxy.proxy.layers.http:HttpStream.check_killed": "368cad352d1e82b6",
    "mitmproxy.proxy.layers.http:HttpStream.make_server_connection": "ddc7bc72f4d2fbc7",
    "mitmproxy.proxy.layers.http:HttpStream._handle_event": "e3cbfef7310ae81f",
    "mitmproxy.proxy.layers.http:HttpStream.state_wait_for_response_headers": "10e32e91b2948164",
    "mitmproxy.proxy.layers.http:HttpStream.state_consume_request_body": "45459c1bbd8bdb1a",
    "mitmproxy.proxy.layers.http:HttpStream.state_stream_request_body": "c98f7f715cef7cfa",
    "mitmproxy.proxy.layers.http:HttpStream.state_stream_response_body": "3fb6320300d3ddd5",
    "mitmproxy.proxy.layers.http:HttpStream.state_consume_response_body": "5323db61dfc7e2e1",
    "mitmproxy.proxy.layers.http:HttpStream.state_errored": "3e7a286f27b15880",
    "mitmproxy.proxy.layers.websocket:WebsocketLayer.relay_messages": "2d451252c7287da0",
    "mitmproxy.proxy.server:ConnectionHandler.handle_connection": "95c3f93e9824e527",
}
"""Methods that are wrapped or called, or on whose order of commands the wrappers rely."""


class StreamEvents:
    """Answers the questions of the wrappers, from the exchanges under way of one recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def failed(self, flow: http.HTTPFlow, failure: Exception) -> None:
        """One of these raised: note it for the flow's row."""
        self._recording.troubles_of(flow).add_failure(failure, "the traffic goes on")

    @guarded
    def broke(self, flow: http.HTTPFlow, *, by_client: bool) -> None:
        """Note which side broke the connection first."""
        live = self._recording.live.get(flow.id)
        if live is not None and live.broken_by_client is None:
            live.broken_by_client = by_client

    @guarded
    def sends_again(self, flow: http.HTTPFlow) -> bool:
        """Whether the request goes upstream again, without the usage that we asked for."""
        live = self._recording.live.get(flow.id)
        return (
            live is not None
            and live.original is not None
            and opt_in.revert_if_refused(live, self._recording.seen.proven)
        )

    @guarded
    def is_asked(self, flow: http.HTTPFlow, held: ReceiveBuffer) -> bool:
        """Whether a request that is held for its caps has said what it asks for."""
        is_held = flow.id in self._recording.heads and not flow.request.stream
        kind = flow.request.headers.get("content-type", "") if is_held else ""
        return is_grpc(kind) and has_first_message(bytes(held))

    @guarded
    def passes_on(self, flow: http.HTTPFlow, held_bytes: int) -> bool:
        """Whether an answer is too long to be held as a refusal of our question."""
        live = self._recording.live.get(flow.id)
        return (
            live is not None
            and live.original is not None
            and flow.response is not None
            and asking.may_refuse(flow.response.status_code)
            and held_bytes > asking.REFUSAL_BYTES_MAX
        )

    @guarded
    def stream_begins(self, flow: http.HTTPFlow) -> None:
        """Put the tap back where another addon replaced it by plain streaming."""
        live = self._recording.live.get(flow.id)
        if live is not None and flow.response is not None:
            answers.restore(live, flow.response)

    @guarded
    def upstream_ended(self, flow: http.HTTPFlow) -> None:
        """Note that a body which ends by closing was ended by a reset."""
        live = self._recording.live.get(flow.id)
        if live is None or flow.response is None or not answers.ends_by_closing(flow.response):
            return
        # The end of the body has come, and nothing was closed yet. mitmproxy reads a connection to
        # its end and forgets the error that was the end; the reader still has it.
        connections = getattr(ctx.master.addons.get("proxyserver"), "connections", {})
        transports = getattr(connections.get(flow.client_conn.id), "transports", {})
        reader = getattr(transports.get(flow.server_conn), "reader", None)
        if isinstance(reader, asyncio.StreamReader) and isinstance(reader.exception(), OSError):
            live.broken_by_client = False

    @guarded
    def is_cut_short(self, flow: http.HTTPFlow) -> bool:
        """Whether the client's body must end in an error."""
        live = self._recording.live.get(flow.id)
        return live is not None and answers.is_cut_short(live)

    @guarded
    def leaves_broken(self, flow: http.HTTPFlow) -> bool:
        """Whether a WebSocket that one side broke is broken for the other side, too."""
        return self._recording.process.is_ours and flow.id in self._recording.sessions

    @guarded
    def held_length(self, flow: http.HTTPFlow) -> int:
        """The content-length of a body whose end waits for its commit; 0: it does not."""
        live = self._recording.live.get(flow.id)
        return answers.held_length(self._recording, live) if live is not None else 0


_watchers: list[StreamEvents] = []
"""Of the recordings in this process: a program may run several masters."""
_undo: list[Callable[[], None]] = []


def install(watcher: StreamEvents) -> Callable[[], None]:
    """Put the wrappers on, or join; returns what takes them off. Raises UnknownSourceError."""
    if not _watchers:
        _undo.append(_put_on())
    _watchers.append(watcher)

    def leave() -> None:
        _watchers.remove(watcher)
        if not _watchers:
            _undo.pop()()

    return leave


def _put_on() -> Callable[[], None]:
    """All recordings are asked: one that does not know the flow has nothing to say."""
    sources.check(RELIES_ON)
    handle_protocol_error = HttpStream.handle_protocol_error
    send_response = HttpStream.send_response
    start_request_stream = HttpStream.start_request_stream
    start_response_stream = HttpStream.start_response_stream
    check_body_size = HttpStream.check_body_size

    def watched_error(
        stream: HttpStream, event: RequestProtocolError | ResponseProtocolError
    ) -> Commands:
        flow = getattr(stream, "flow", None)
        if flow is not None:
            for each in _watchers:
                each.broke(flow, by_client=isinstance(event, RequestProtocolError))
        yield from handle_protocol_error(stream, event)

    def watched_response(stream: HttpStream, already_streamed: bool = False) -> Commands:
        for each in _watchers:
            each.upstream_ended(stream.flow)
        if not already_streamed and any(each.sends_again(stream.flow) for each in _watchers):
            yield from _after_this_event(stream)
            return
        sending = send_response(stream, already_streamed)
        if not (already_streamed and any(each.is_cut_short(stream.flow) for each in _watchers)):
            yield from sending
            return
        for command in sending:
            is_end = isinstance(command, SendHttp) and type(command.event) is ResponseEndOfMessage
            if is_end:
                message = "the answer could not be decoded to its end"
                error = ResponseProtocolError(
                    stream.stream_id, message, ErrorCode.GENERIC_SERVER_ERROR
                )
                command = SendHttp(error, stream.context.client)  # noqa: PLW2901
            yield command

    def watched_request(stream: HttpStream) -> Commands:
        if stream.flow.response is None:
            yield from start_request_stream(stream)
            return
        stream.client_state = stream.state_done
        yield from stream.send_response()
        stream.client_state = stream.state_errored  # which takes whatever the client still sends

    def watched_start(stream: HttpStream) -> Commands:
        for each in _watchers:
            each.stream_begins(stream.flow)
        yield from start_response_stream(stream)
        # A question that failed has None for an answer.
        if length := sum(each.held_length(stream.flow) or 0 for each in _watchers):
            _HeldEnd(stream, length)

    def watched_size(stream: HttpStream, request: bool) -> Generator[commands.Command, Any, bool]:
        stops: bool = yield from check_body_size(stream, request)
        if request:
            held = stream.request_body_buf
            if held and not stops and any(each.is_asked(stream.flow, held) for each in _watchers):
                yield from _decide(stream, bytes(held))
            return stops
        held = stream.response_body_buf
        is_held = bool(held) and not stops
        if is_held and any(each.passes_on(stream.flow, len(held)) for each in _watchers):
            # Stream an answer that was held, as mitmproxy does it for `stream_large_bodies`.
            body = bytes(held)
            held.clear()
            assert stream.flow.response is not None
            stream.flow.response.stream = True
            yield from stream.start_response_stream()
            yield from stream.handle_event(ResponseData(stream.stream_id, body))
        return stops

    telling = _telling_its_end(ConnectionHandler.handle_connection)
    restore_connection = sources.replace_methods(ConnectionHandler, handle_connection=telling)
    relaying = _leaving_broken(WebsocketLayer.relay_messages)
    restore_relay = sources.replace_methods(WebsocketLayer, relay_messages=relaying)
    restore_stream = sources.replace_methods(
        HttpStream,
        check_body_size=watched_size,
        handle_protocol_error=watched_error,
        send_response=watched_response,
        start_request_stream=watched_request,
        start_response_stream=watched_start,
    )

    def restore() -> None:
        restore_connection()
        restore_relay()
        restore_stream()

    return restore


type _Relay = Callable[[WebsocketLayer, events.Event], Commands]


def _leaving_broken(relay_messages: _Relay) -> _Relay:
    def relay(layer: WebsocketLayer, event: events.Event) -> Commands:
        relaying = relay_messages(layer, event)
        is_broken = isinstance(event, events.ConnectionClosed)
        if not (is_broken and any(each.leaves_broken(layer.flow) for each in _watchers)):
            yield from relaying
            return
        for command in relaying:  # hooks, a close frame for the other side, and both closes
            if not isinstance(command, commands.SendData):
                yield command

    return relay


type _Handle = Callable[[ConnectionHandler, Connection], Awaitable[None]]


def _telling_its_end(handle_connection: _Handle) -> _Handle:
    @wraps(handle_connection)  # by whose source others know it
    async def handle(handler: ConnectionHandler, connection: Connection) -> None:
        try:
            await handle_connection(handler, connection)
        except asyncio.CancelledError:
            if (transport := handler.transports.get(connection)) is not None:
                connection.state = ConnectionState.CLOSED
                await handler.server_event(events.ConnectionClosed(connection))
                if transport.writer is not None:
                    transport.writer.close()
                handler.transports.pop(connection)
            raise

    return handle


def _decide(stream: HttpStream, body: bytes) -> Commands:
    """Ask for a request whose first message has come, as mitmproxy does at its end."""
    request = stream.flow.request
    request.data.content = body
    stream.request_body_buf.clear()
    yield HttpRequestHook(stream.flow)
    if (yield from stream.check_killed(emit_error_hook=True)):
        return
    request.stream = True
    yield from stream.start_request_stream()
    if stream.client_state == stream.state_stream_request_body:
        yield from stream.handle_event(RequestData(stream.stream_id, body))


class _HeldEnd:
    """Holds what completes the body of one stream, until the hook of its end is over."""

    def __init__(self, stream: HttpStream, length: int) -> None:
        self._stream = stream
        self._left_bytes = length
        self._held: SendHttp | None = None
        stream.server_state = self._body
        stream.handle_protocol_error = self._error  # type: ignore[method-assign]

    def _body(self, event: events.Event) -> Commands:
        return self._hold(HttpStream.state_stream_response_body(self._stream, event))

    def _error(self, event: RequestProtocolError | ResponseProtocolError) -> Commands:
        return self._hold(HttpStream.handle_protocol_error(self._stream, event))

    def _hold(self, sending: Commands) -> Commands:
        """mitmproxy's own commands. Those of a body and of an error want no reply."""
        for command in sending:
            if not isinstance(command, SendHttp) or type(command.event) is not ResponseData:
                yield command
                if isinstance(command, HttpResponseHook | HttpErrorHook):
                    yield from self._release()
                continue
            yield from self._release()  # more than the length: mitmproxy reports that
            self._left_bytes -= len(command.event.data)
            if self._left_bytes == 0:
                self._held = command
            else:
                yield command

    def _release(self) -> Commands:
        held, self._held = self._held, None
        if held is not None:
            yield held


def _after_this_event(stream: HttpStream) -> Commands:
    """Come back when the upstream connection has put the refused exchange behind it.

    Within the event that ended the answer it still counts the old request as under way. The way
    back is a wake-up, which `HttpStream` itself does not expect.
    """

    def resume(event: events.Event) -> Commands:
        if not isinstance(event, events.Wakeup):  # the client has left meanwhile
            yield from HttpStream._handle_event(stream, event)
            return
        del stream._handle_event
        if stream.state_errored in (stream.client_state, stream.server_state):
            return
        if (yield from stream.check_killed(emit_error_hook=True)):
            return
        stream.server_state = stream.state_wait_for_response_headers
        if not (yield from stream.make_server_connection()):
            return
        server = stream.context.server
        for layer in stream.context.layers:
            # An HTTP/2 upstream maps each stream of ours to one of its own, which is closed by now.
            inner = getattr(layer, "connections", {}).get(server)
            while inner is not None:  # TLS, then the client, then its protocol
                getattr(inner, "our_stream_id", {}).pop(stream.stream_id, None)
                inner = getattr(inner, "child_layer", None)
        request = stream.flow.request
        content = request.raw_content
        yield SendHttp(RequestHeaders(stream.stream_id, request, end_stream=not content), server)
        if content:
            yield SendHttp(RequestData(stream.stream_id, content), server)
        yield SendHttp(RequestEndOfMessage(stream.stream_id), server)

    stream.flow.response = None
    stream._handle_event = resume
    yield commands.RequestWakeup(0)
