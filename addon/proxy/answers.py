"""Edge. Puts the tap into the stream of a flow's answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from mitmproxy import http

from addon.metering import exchange as metering
from addon.metering.messages import Response
from addon.metering.tap import Tap
from addon.proxy import capturing, flows
from addon.proxy.running import Live, Running

HELD_BODY_BYTES_MAX = 16 * 1024 * 1024
"""A plain answer up to here is held until its reading is committed; the client of a longer one
may see its end first."""


def begin(running: Running, live: Live, response: http.Response) -> None:
    """Set the tap for an answer whose headers have come; `response.stream` is True before."""
    values = flows.response_of(response)
    may_be_held = live.exchange.is_confirmed or live.exchange.route.host_is_known
    if may_be_held and is_held(values, injected=live.original is not None):
        response.stream = False
    tap = _tap(running, live, values, may_edit=bool(response.stream))
    if not response.stream:
        return
    if tap.edits and "content-length" in values.headers:
        del response.headers["content-length"]
        if live.flow.request.http_version == "HTTP/1.1":
            response.headers["transfer-encoding"] = "chunked"
    if tap.decodes:
        # Upstream compressed although identity was asked for; what goes on is identity.
        del response.headers["content-encoding"]
    response.stream = tap.callable


def read_whole(running: Running, live: Live, response: http.Response) -> None:
    """Meter an answer that mitmproxy held until it was complete, or that was flows."""
    tap = live.exchange.tap or _tap(running, live, flows.response_of(response), may_edit=False)
    if body := flows.answer_of(live.flow):
        tap.callable(body)


def is_held(response: Response, *, injected: bool) -> bool:
    """Whether mitmproxy is to hold an answer until it is complete, and its reading committed.

    A body under a content-length is over for the client with its last byte, before any hook could
    wait for the ledger; so a plain one is held (it is of no use to a client before it is whole),
    while a stream never is. And where we asked for usage, an error answer is held to see whether
    it refuses the question.
    """
    if injected and response.status >= 400:
        return metering.may_refuse(response, injected=injected)
    if metering.is_stream(response):
        return False
    length = response.headers.get("content-length", "")
    return length.isdigit() and int(length) <= HELD_BODY_BYTES_MAX


def _opener(running: Running, live: Live) -> Callable[[], object] | None:
    """Opens the row of an exchange that its answer confirms. A fetched result is settled at once
    or not at all, because it may be booked already."""
    if live.exchange.route.is_fetch:
        return None
    return lambda: running.ledger.open(live.exchange.opened)


def _tap(running: Running, live: Live, response: Response, *, may_edit: bool) -> Tap:
    live.capture = capturing.begin(running, live)
    listener: Callable[[bytes], None] | None = (
        live.capture.add if live.capture is not None else None
    )
    if running.notes is not None:
        listener = running.notes.listener(live.flow, listener)
    return live.exchange.answer(
        response,
        edits=may_edit,
        clock=time.time,
        capture=listener,
        on_confirmed=_opener(running, live),
    )
