"""Edge. How much mitmproxy reads from a connection at once.

Why: mitmproxy passes on all that one read brings in one turn of the event loop, and asyncio reads
256 KB. Those are 25 000 frames of HTTP/2 with one byte each, which take mitmproxy 2 s (measured);
nobody else is served meanwhile. Here each connection begins with reads of 16 KB. A read that takes
long halves the next ones and ends the turn, and two full reads in a row that take little time
double the next ones, up to what asyncio reads. (One alone may be the cheap part of a TLS record,
whose frames mitmproxy sees when it is whole.) No byte is changed: only how many arrive together.

It saves no CPU, and costs none (`tests/bench`: within 2 % of without). A connection that is no
socket of asyncio's own loop is read as mitmproxy reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any
from weakref import WeakSet

from mitmproxy.connection import Connection
from mitmproxy.proxy import events
from mitmproxy.proxy.server import ConnectionHandler

from addon.proxy.sources import replace_methods

READ_BYTES_FIRST = 16 * 1024
"""Of a connection that nothing is known of yet: at most 1 800 frames of HTTP/2."""
READ_BYTES_MIN = 1024
"""About 100 of the smallest frames, which mitmproxy passes on in 10 ms."""
READ_BYTES_MAX = 256 * 1024
"""As asyncio. With 64 KB, long bodies take up to 5 % more CPU (measured)."""
PIECE_BYTES = 65_535
"""As much of one read mitmproxy hands to its layers at once."""
TURN_SECONDS_MAX = 0.020
"""A read that takes longer halves the next ones."""
TURN_SECONDS_LOW = 0.005
"""Two full reads that take less double the next ones: twice as long is still far from the limit."""


RELIES_ON = {
    "mitmproxy.proxy.server:ConnectionHandler.handle_connection": "95c3f93e9824e527",
    "mitmproxy.proxy.server:ConnectionHandler.server_event": "a2b42657ebe8bf6d",
    "mitmproxy.proxy.server:ConnectionHandler.drain_writers": "6b57434604561e3e",
}
"""The functions that are replaced."""


def install(_: object) -> Callable[[], None]:
    """Put the wrappers on; returns what takes them off."""
    handle_connection = ConnectionHandler.handle_connection
    server_event = ConnectionHandler.server_event
    drain_writers = ConnectionHandler.drain_writers
    long_turns: set[ConnectionHandler] = set()
    """Whose last read took long; mitmproxy drains the writers after each read."""
    cheap: WeakSet[Connection] = WeakSet()
    """Whose last full read took little."""

    def begin(handler: ConnectionHandler, connection: Connection) -> Coroutine[Any, Any, None]:
        transport = _transport_of(handler, connection)
        if getattr(transport, "max_size", 0) > READ_BYTES_FIRST:
            transport.max_size = READ_BYTES_FIRST
        return handle_connection(handler, connection)

    def pass_on(handler: ConnectionHandler, event: events.Event) -> Coroutine[Any, Any, None]:
        if type(event) is events.DataReceived:
            return timed(handler, event)
        return server_event(handler, event)

    async def timed(handler: ConnectionHandler, event: events.DataReceived) -> None:
        began = monotonic()
        await server_event(handler, event)
        seconds = monotonic() - began
        if len(event.data) >= READ_BYTES_MIN or seconds > TURN_SECONDS_MAX:
            adapt(_transport_of(handler, event.connection), event, seconds)
        if seconds > TURN_SECONDS_MAX:
            long_turns.add(handler)

    def adapt(transport: Any, event: events.DataReceived, seconds: float) -> None:
        """Change the size of the next reads by what this one took."""
        size = getattr(transport, "max_size", 0)
        was_cheap = event.connection in cheap
        cheap.discard(event.connection)
        if seconds > TURN_SECONDS_MAX:
            if size > READ_BYTES_MIN:
                transport.max_size = max(READ_BYTES_MIN, size // 2)
        elif seconds < TURN_SECONDS_LOW and 0 < min(size, PIECE_BYTES) <= len(event.data):
            if was_cheap:
                transport.max_size = min(READ_BYTES_MAX, size * 2)
            else:
                cheap.add(event.connection)

    def drain(handler: ConnectionHandler) -> Coroutine[Any, Any, None]:
        if handler in long_turns:
            return end_turn(handler)
        return drain_writers(handler)  # type: ignore[no-untyped-call]

    async def end_turn(handler: ConnectionHandler) -> None:
        """Let others have their turn; here mitmproxy is prepared for being cancelled."""
        long_turns.discard(handler)
        await asyncio.sleep(0)
        await drain_writers(handler)  # type: ignore[no-untyped-call]

    return replace_methods(
        ConnectionHandler, handle_connection=begin, server_event=pass_on, drain_writers=drain
    )


def _transport_of(handler: ConnectionHandler, connection: Connection) -> Any:
    """What a connection is read from; None where it is not known."""
    return getattr(getattr(handler.transports.get(connection), "reader", None), "_transport", None)
