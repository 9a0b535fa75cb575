"""Edge. Puts the tap into the stream of a flow's answer.

A body passes at once, except for the part that waits for the commit of its reading:

    any other framing      nothing waits: the response hook waits before the stream ends
    under a content-length what completes it, until the reading is committed (`before_end` only)
    an error answer to a request in which we asked for usage: all of it, if it is short, to see
                           whether it refuses the question

A plain answer that another addon needs whole (`wanted_bodies.py`) is buffered by mitmproxy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mitmproxy import http

from addon.metering import exchange as metering
from addon.metering.requests.messages import Response
from addon.metering.tap import Tap
from addon.proxy import capturing, flows
from addon.proxy.host.chunk_run import ChunkRun, chunks_of
from addon.proxy.running import Live, Running, StreamCallable

HELD_BODY_BYTES_MAX = 16 * 1024 * 1024
"""Without the patch of mitmproxy's stream: a plain answer up to here is held until its reading is
committed; the client of a longer one, or of a stream, may see its end first."""
NOT_HELD = "its end may have reached the client before it was on disk"
"""What the row of such an answer says."""


def begin(running: Running, live: Live, response: http.Response) -> None:
    """Set the tap for an answer whose headers have arrived; `response.stream` is True before."""
    values = flows.response_of(response)
    length = _length_of(values) if running.settings.commit_before_end else 0
    is_plain = not metering.is_stream(values) and not live.exchange.opened.streamed
    is_buffered = is_plain and running.bodies.are_wanted
    if (
        is_buffered
        or metering.may_refuse(values, injected=live.original is not None)
        or (
            0 < length <= HELD_BODY_BYTES_MAX
            and not running.can_hold_end
            and not metering.is_stream(values)
            and (live.exchange.is_confirmed or live.exchange.route.host_is_known)
        )
    ):
        response.stream = False
    tap = _tap(running, live, values, may_edit=bool(response.stream))
    live.held_length = 0 if tap.edits else length
    if not response.stream:
        # mitmproxy streams it all the same where it is larger than `stream_large_bodies`.
        live.stream = tap.callable
        return
    if live.held_length and not running.can_hold_end:
        live.exchange.troubles.add(NOT_HELD)
    if tap.edits and "content-length" in values.headers:
        del response.headers["content-length"]
        if live.flow.request.http_version == "HTTP/1.1":
            response.headers["transfer-encoding"] = "chunked"
    if tap.decodes:
        # Upstream compressed although identity was requested; the client gets identity.
        del response.headers["content-encoding"]
    live.stream = response.stream = _run_by_run(tap) if tap.edits else tap.callable


def restore(live: Live, response: http.Response) -> None:
    """Put the tap back where an addon behind this one, or mitmproxy, chose plain streaming.

    A callable of another addon stays: it may call the tap, and may change the stream.
    """
    if live.stream is not None and response.stream is True:
        response.stream = live.stream


def is_cut_short(live: Live) -> bool:
    """Whether the client's body must not end as if it were whole.

    Upstream compressed a stream that is edited, and its bytes cannot be decoded to the end. The
    headers told the client identity, so the rest cannot be sent as it arrived.
    """
    tap = live.exchange.tap
    return tap is not None and tap.is_cut_short


def ends_by_closing(response: http.Response) -> bool:
    """Whether the end of the body is the end of upstream's connection."""
    return (
        response.http_version in ("HTTP/1.0", "HTTP/1.1")
        and "content-length" not in response.headers
        and "transfer-encoding" not in response.headers
    )


def note_if_unread(live: Live, response: http.Response) -> None:
    """Note on the row if another addon removed the tap from the stream."""
    tap = live.exchange.tap
    if tap is None or live.stream is None or response.stream is live.stream:
        return
    if response.stream and not tap.received_bytes:
        live.exchange.troubles.add_failure(
            StreamReplacedError(), "another script set flow.response.stream; nothing was read"
        )


class StreamReplacedError(Exception):
    """The callable of another addon replaced the tap and does not call it."""


def read_whole(running: Running, live: Live, response: http.Response) -> None:
    """Meter an answer that mitmproxy held until it was complete, or that was saved."""
    tap = live.exchange.tap or _tap(running, live, flows.response_of(response), may_edit=False)
    body = flows.answer_of(live.flow)
    if not body:
        return
    passed = tap.callable(body)
    if tap.edits:
        # An addon behind this one asked for the whole body after the tap was set to edit it.
        end = tap.callable(b"")
        response.content = _joined(passed) + _joined(end)


def release(live: Live, response: http.Response) -> None:
    """Let go of the tap of an answer that is settled: the whole body has passed.

    mitmproxy's objects of an exchange refer to each other, so they, and what they refer to, stay in
    memory until the garbage collector finds them. The tap would stay with them, with the chunks and
    the text that it holds.
    """
    if live.stream is not None and response.stream is live.stream:
        response.stream = True
    live.stream = live.exchange.tap = None


def _run_by_run(tap: Tap) -> StreamCallable:
    """What is taken out of a run of chunks is taken out of each; the others stay as they were."""
    into = tap.callable

    def edit(data: bytes) -> bytes | list[bytes]:
        if type(data) is not ChunkRun:
            return into(data)
        kept = tap.edit_run(data, data.chunks)
        return ChunkRun.of(kept) if kept else []

    return edit


def _joined(passed: bytes | list[bytes]) -> bytes:
    return passed if isinstance(passed, bytes) else b"".join(passed)


def _length_of(response: Response) -> int:
    length = response.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 19 else 0


def _by_chunk(listener: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Record the time and the length of each chunk in the capture."""

    def listen(data: bytes) -> None:
        for chunk in chunks_of(data):
            listener(chunk)

    return listen


def _tap(running: Running, live: Live, response: Response, *, may_edit: bool) -> Tap:
    live.capture = capturing.begin(running, live)
    listener: Callable[[bytes], None] | None = (
        _by_chunk(live.capture.add) if live.capture is not None else None
    )
    if running.notes is not None:
        listener = running.notes.listener(live.flow, listener)
    exchange = live.exchange
    # A fetched result is settled at once or not at all, because it may be booked already.
    opens = None if exchange.route.is_fetch else lambda: running.ledger.open(exchange.opened)
    return exchange.answer(
        response, edits=may_edit, clock=time.time, capture=listener, on_confirmed=opens
    )
