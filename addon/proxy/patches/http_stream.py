"""Edge. Two things that mitmproxy's HTTP stream does not offer to an addon.

    who broke    the error hook's message blames the client for an upstream's RST_STREAM
                 (MITMPROXY.md); the event behind it says which side it came from
    ask again    a refused request is sent upstream once more within the same flow, so that its
                 answer streams to the client as any other

Both are wrappers around methods of `HttpStream`, put on by `install` and taken off again by what
it returns. They hold for mitmproxy 12 (`mitmproxy>=12.2.3,<13`); where a method is missing,
`install` says so and the rest of the addon works without.
"""

from collections.abc import Callable, Generator
from typing import Any, Protocol

from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    ResponseProtocolError,
)

type Commands = Generator[commands.Command, Any, None]


class Watcher(Protocol):
    """Who wants to know and decide."""

    def broke(self, flow: http.HTTPFlow, *, by_client: bool) -> None:
        """A side of the flow broke; called before the error hook."""

    def asks_again(self, flow: http.HTTPFlow) -> bool:
        """Whether a complete, unsent answer is to be thrown away and `flow.request` sent again."""


def install(watcher: Watcher) -> Callable[[], None]:
    """Put the wrappers on; returns what takes them off. Raises AttributeError for a mitmproxy
    whose HttpStream lacks these methods."""
    handle_protocol_error = HttpStream.handle_protocol_error
    send_response = HttpStream.send_response

    def watched_error(
        stream: HttpStream, event: RequestProtocolError | ResponseProtocolError
    ) -> Commands:
        flow = getattr(stream, "flow", None)
        if flow is not None:
            watcher.broke(flow, by_client=isinstance(event, RequestProtocolError))
        yield from handle_protocol_error(stream, event)

    def watched_response(stream: HttpStream, already_streamed: bool = False) -> Commands:
        if already_streamed or not watcher.asks_again(stream.flow):
            yield from send_response(stream, already_streamed)
        else:
            yield from _after_this_event(stream)

    # mypy takes a function assigned to a class for one that still wants its `self`.
    HttpStream.handle_protocol_error = watched_error  # type: ignore[method-assign, assignment]
    HttpStream.send_response = watched_response  # type: ignore[method-assign, assignment]

    def uninstall() -> None:
        HttpStream.handle_protocol_error = handle_protocol_error  # type: ignore[method-assign]
        HttpStream.send_response = send_response  # type: ignore[method-assign]

    return uninstall


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
        if not (yield from stream.check_killed(emit_error_hook=True)):
            yield from _send_again(stream)

    stream.flow.response = None
    stream._handle_event = resume
    yield commands.RequestWakeup(0)


def _send_again(stream: HttpStream) -> Commands:
    stream.server_state = stream.state_wait_for_response_headers
    if not (yield from stream.make_server_connection()):
        return
    server = stream.context.server
    for layer in stream.context.layers:
        _forget_stream(getattr(layer, "connections", {}).get(server), stream.stream_id)
    request = stream.flow.request
    content = request.raw_content
    yield SendHttp(RequestHeaders(stream.stream_id, request, end_stream=not content), server)
    if content:
        yield SendHttp(RequestData(stream.stream_id, content), server)
    yield SendHttp(RequestEndOfMessage(stream.stream_id), server)


def _forget_stream(layer: Any, stream_id: int) -> None:
    """An HTTP/2 upstream maps each stream of ours to one of its own, which is closed by now."""
    while layer is not None:  # TLS, then the client, then its protocol
        getattr(layer, "our_stream_id", {}).pop(stream_id, None)
        layer = getattr(layer, "child_layer", None)
