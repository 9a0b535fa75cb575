"""Edge. Puts the tap into the stream of a flow's answer.

A body passes at once, except for the part that waits for the commit of its reading:

    any other framing      nothing waits: the response hook waits before the stream ends
    under a content-length what completes it, until the reading is committed (`before_end` only)
    an error answer to a request in which we asked for usage: all of it, if it is short, to see
                           whether it refuses the question

A plain answer that another addon needs whole (`wanted_bodies.py`) is buffered by mitmproxy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from mitmproxy import http

from addon.dialects.grpc import STATUS
from addon.metering.exchange import is_stream
from addon.metering.messages import Response
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles
from addon.proxy import flows
from addon.proxy.live import Live, StreamCallable
from addon.proxy.recording import Recording
from addon.usage_opt_in import asking

HELD_BODY_BYTES_MAX = 16 * 1024 * 1024
"""Without the patch of mitmproxy's stream: a plain answer up to here is held until its reading is
committed; the client of a longer one, or of a stream, may see its end first."""
NOT_HELD = "its end may have reached the client before it was on disk"
"""What the row of such an answer says."""


class ChunkRun(bytes):
    """Several chunks of a body in a row, as one piece that knows where they were cut. The part
    `fast` makes them."""

    chunks: Sequence[bytes]

    @classmethod
    def of(cls, chunks: Sequence[bytes]) -> Self:
        """The run of these chunks, none of which is empty."""
        run = cls(b"".join(chunks))
        run.chunks = chunks
        return run


def chunks_of(data: bytes) -> Sequence[bytes]:
    """The chunks of a piece of a body."""
    return data.chunks if type(data) is ChunkRun else (data,)


def begin(recording: Recording, live: Live, response: http.Response) -> None:
    """Set the tap for an answer whose headers have arrived; `response.stream` is True before."""
    values = flows.response_of(response)
    headers = values.headers
    can_hold_end = recording.process.can_hold_end
    length = _length_of(values)
    is_waited_for = length > 0 and recording.settings.commit_before_end
    is_plain = not is_stream(values)
    if (
        (is_plain and not live.opened.streamed and recording.bodies.are_wanted)
        or (
            live.original is not None
            and asking.may_refuse(values.status)
            and length <= asking.REFUSAL_BYTES_MAX
        )
        or (
            is_waited_for
            and length <= HELD_BODY_BYTES_MAX
            and not can_hold_end
            and is_plain
            and (live.is_confirmed or live.route.host_is_known)
        )
    ):
        response.stream = False
    tap, stream = _tap(recording, live, values, may_edit=bool(response.stream))
    edits = tap.edits
    if not response.stream:
        # mitmproxy streams it all the same where it is larger than `stream_large_bodies`.
        return
    if is_waited_for and not (edits or can_hold_end):
        live.troubles.add(NOT_HELD)
    if edits and "content-length" in headers:
        del response.headers["content-length"]
        if live.flow.request.http_version == "HTTP/1.1":
            response.headers["transfer-encoding"] = "chunked"
    if edits and tap.decodes:
        # Upstream compressed although identity was requested; the client gets identity.
        del response.headers["content-encoding"]
    response.stream = stream


def held_length(recording: Recording, live: Live) -> int:
    """The content-length of an answer whose end waits for its commit; 0: it does not."""
    if live.tap is None or live.tap.edits or live.response is None:
        return 0
    return _length_of(live.response) if recording.settings.commit_before_end else 0


def _length_of(response: Response) -> int:
    text = response.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


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
    return live.tap is not None and live.tap.is_cut_short


def ends_by_closing(response: http.Response) -> bool:
    """Whether the end of the body is the end of upstream's connection."""
    return (
        response.http_version in ("HTTP/1.0", "HTTP/1.1")
        and "content-length" not in response.headers
        and "transfer-encoding" not in response.headers
    )


def read_trailers(live: Live, response: http.Response) -> None:
    """Take gRPC's status out of the trailers to the headers that are metered and captured."""
    status = response.trailers.get(STATUS) if response.trailers else None
    if status is None or live.response is None:
        return
    values = live.response
    live.keep_response(Response(status=values.status, headers={**values.headers, STATUS: status}))
    if live.capture is not None and live.capture.head is not None:
        code, fields = live.capture.head
        live.capture.head = code, (*fields, (STATUS, status))


def note_if_unread(live: Live, response: http.Response) -> None:
    """Note on the row if another addon removed the tap from the stream."""
    if live.tap is None or live.stream is None or response.stream is live.stream:
        return
    if response.stream and not live.tap.has_begun:
        live.troubles.add_failure(
            StreamReplacedError(), "another script set flow.response.stream; nothing was read"
        )


class StreamReplacedError(Exception):
    """The callable of another addon replaced the tap and does not call it."""


def read_whole(recording: Recording, live: Live, response: http.Response) -> None:
    """Meter an answer that mitmproxy held until it was complete, or that was saved."""
    tap, stream = live.tap, live.stream
    if tap is None or stream is None:
        tap, stream = _tap(recording, live, flows.response_of(response), may_edit=False)
    if not (body := flows.answer_of(live.flow)):
        return
    passed = stream(body)
    if tap.edits:
        # An addon behind this one asked for the whole body after the tap was set to edit it.
        response.content = b"".join([*_as_list(passed), *_as_list(stream(b""))])


def release(live: Live, response: http.Response) -> None:
    """Let go of the tap of an answer that is settled: the whole body has passed.

    mitmproxy's objects of an exchange refer to each other, so they, and what they refer to, stay in
    memory until the garbage collector finds them. The tap would stay with them, with the chunks and
    the text that it holds.
    """
    if live.stream is not None and response.stream is live.stream:
        response.stream = True
    live.stream = live.tap = None


def _tap(
    recording: Recording, live: Live, response: Response, *, may_edit: bool
) -> tuple[Tap, StreamCallable]:
    live.begin_capture(recording.captures)
    tap = live.answer(
        response,
        edits=may_edit,
        clock=live.clock.seconds,
        on_confirmed=lambda: recording.ledger.open(live.opened),
    )
    stream = _run_by_run(tap.callable) if tap.edits else tap.callable
    if live.capture is not None:
        stream = _captured(stream, live.capture.add, live.troubles)
    live.stream = stream
    return tap, stream


def _run_by_run(into: StreamCallable) -> StreamCallable:
    """What is taken out of a run of chunks is taken out of each; the others stay as they were."""

    def edit(data: bytes) -> bytes | list[bytes]:
        if type(data) is not ChunkRun:
            return into(data)
        kept = [piece for chunk in data.chunks for piece in _as_list(into(chunk))]
        return ChunkRun.of(kept) if kept else []

    return edit


def _captured(
    into: StreamCallable, keep: Callable[[bytes], None], troubles: Troubles
) -> StreamCallable:
    """Each chunk is captured, too, until that fails."""
    has_failed = False

    def capture(data: bytes) -> bytes | list[bytes]:
        nonlocal has_failed
        try:
            for chunk in chunks_of(data) if data and not has_failed else ():
                keep(chunk)
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            has_failed = True
            troubles.add_failure(failure, "this exchange is not captured")
        return into(data)

    return capture


def _as_list(passed: bytes | list[bytes]) -> list[bytes]:
    if isinstance(passed, list):
        return passed
    return [passed] if passed else []
