"""Pure. The callable on `flow.response.stream`: every byte of an answer passes through it.

It has two modes:

    listening   returns the same object that it got; keeps references until it has about 2 KB (of
                a burst, 16), then hashes and meters them together
    editing     strips the injected usage and passes complete events on at once. The stripper
                frames the stream, and the meter reads the same blocks

It never raises: mitmproxy loses the chunk of a callable that raises. A bug in our reading ends the
reading; a bug in our editing also ends the editing. The bytes still pass, and the row records it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from addon.metering.answers.backlog import Backlog
from addon.metering.answers.decoding import Decoder
from addon.metering.answers.meter import Meter
from addon.metering.digests import Digests
from addon.metering.memory_budget import FREE_BYTES, MemoryBudget, Share
from addon.metering.settlement import Passed
from addon.metering.troubles import Troubles
from addon.usage_opt_in.stripping import Stripper

BATCH_BYTES = 2_000
"""Bytes buffered before they are hashed and metered: an open stream holds at most this, an edited
one at most twice this."""
BURST_SECONDS = 0.005
"""A batch of a burst is full less than this after the last one was read, the first one after the
first byte."""
BURST_BATCH_BYTES = 16_000
"""As `BATCH_BYTES`, in a burst. Reading a batch between two chunks displaces what mitmproxy has in
the processor's caches; by this it takes 6 to 12 % less CPU (`burst chunks` of
`tests/bench/bench_proxy.py`)."""
CHUNK_BYTES = 64
"""What Python needs for a pending chunk and its time beside its bytes. A batch counts it: an open
stream of tiny chunks then holds no more than another."""
UNFRAMED_FREE_BYTES = FREE_BYTES // 2
"""Bytes of an unfinished event that need no budget. The tap and the stripper hold them each."""


class Tap:
    """Passes one answer through the proxy. Call it with each chunk, and with b"" at the body's end.

    `clock` returns seconds since the epoch. The tap calls `capture` with each chunk as upstream
    sent it.
    """

    __slots__ = (
        "_backlog",
        "_batch_bytes",
        "_batch_read_at",
        "_capture",
        "_clock",
        "_decoder",
        "_digests",
        "_first_byte_at",
        "_first_token_at",
        "_is_flushed",
        "_kept",
        "_pending",
        "_pending_bytes",
        "_share",
        "_stripper",
        "_tail_bytes",
        "_times",
        "_troubles",
        "_unframed",
        "has_stopped",
        "meter",
    )

    def __init__(
        self,
        meter: Meter,
        *,
        stripper: Stripper | None,
        clock: Callable[[], float],
        troubles: Troubles,
        capture: Callable[[bytes], None] | None = None,
        decoder: Decoder | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        """`decoder`: decodes an answer that is edited; its client gets identity.
        `budget`: bytes that all exchanges together may keep; None: a budget of its own."""
        self.meter = meter
        self._stripper = stripper
        self._clock = clock
        self._troubles = troubles
        self._capture = capture
        self._times: list[float] | None = []
        """Arrival time of each pending chunk, until the first generated content."""
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        """What they take in memory."""
        self._batch_bytes = BATCH_BYTES
        self._batch_read_at = 0.0
        self._kept: list[bytes] = []
        """Edited streams: bytes sent to the client and not hashed yet."""
        self._unframed = bytearray()
        """Edited streams: the bytes of the incomplete event."""
        self._tail_bytes = 0
        """How many of these were read at the body's end."""
        self._is_flushed = False
        """The body has ended, and the stripper has returned its held bytes."""
        self._share = Share(budget if budget is not None else MemoryBudget())
        self._decoder = decoder
        self._digests = Digests(edits=stripper is not None, decodes=decoder is not None)
        self._backlog = Backlog(meter, clock)
        self._first_byte_at: datetime | None = None
        self._first_token_at: datetime | None = None
        self.has_stopped = False
        """A bug in our code, or a bound, ended the reading."""

    @property
    def edits(self) -> bool:
        """Whether the bytes sent to the client may differ from upstream's."""
        return self._stripper is not None

    @property
    def decodes(self) -> bool:
        """Whether upstream's bytes have a content-encoding that the tap removes."""
        return self._decoder is not None

    @property
    def is_cut_short(self) -> bool:
        """Whether the client got only the beginning, because decoding the rest failed."""
        return self._decoder is not None and self._decoder.trouble is not None

    @property
    def received_bytes(self) -> int:
        """Bytes given to the callable, up to a failure of the tap."""
        pending_bytes = self._pending_bytes - CHUNK_BYTES * len(self._pending)
        return self._digests.upstream_bytes + pending_bytes + len(self._unframed)

    @property
    def callable(self) -> Callable[[bytes], bytes | list[bytes]]:
        """What to set as `flow.response.stream`."""
        if self._capture is not None:
            return self._record
        return self._pass_on

    @property
    def _pass_on(self) -> Callable[[bytes], bytes | list[bytes]]:
        if self._decoder is not None:
            return self._edit_decoded
        return self._listen if self._stripper is None else self._edit

    def _record(self, data: bytes) -> bytes | list[bytes]:
        """As `_listen` or `_edit`, but gives each chunk to the capture first."""
        if self._capture is not None and data:
            try:
                self._capture(data)
            except Exception as failure:  # noqa: BLE001  # as below
                self._capture = None
                self._troubles.add_failure(failure, "this exchange is not captured")
        return self._pass_on(data)

    def _listen(self, data: bytes) -> bytes | list[bytes]:
        # `b""` would end a chunked body early (mitmproxy PR #8242), so the end is `[]`.
        if self.has_stopped:
            return data or []
        if not data:
            return []
        try:
            # No call of our own functions: nearly every chunk takes this path.
            self._pending.append(data)
            self._pending_bytes += len(data) + CHUNK_BYTES
            if self._times is not None:
                self._times.append(self._clock())
            if self._pending_bytes >= self._batch_bytes:
                self._read_pending()
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            self._stop_after_failure(failure)
        return data

    def _edit(self, data: bytes) -> bytes | list[bytes]:
        stripper = self._stripper
        if stripper is None:
            return data or []
        try:
            if len(self._unframed) > UNFRAMED_FREE_BYTES and not self._may_keep(
                2 * len(self._unframed)
            ):
                self._stripper = None
                self._stop_reading()
                return self._take_unframed() + data
            kept = stripper.feed(data) if data else stripper.end()
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            self._stripper = None
            self._stop_after_failure(failure)
            return self._take_unframed() + data or []
        events = stripper.framed
        if not data:
            self._is_flushed = True
        elif events is not data or self._unframed:
            self._keep_unframed(data, len(events))
        # If the meter fails, the stripper continues: injected usage must not reach the client.
        if self.has_stopped:
            self._digests.removed_bytes += sum(map(len, stripper.removed))
            stripper.removed.clear()
            return kept or []
        try:
            if kept:
                self._kept.append(kept)
            if self._times is not None and data:
                self._note_time(self._times, has_events=bool(events))
            if data and events:
                self._pending.append(events)
                self._pending_bytes += len(events) + CHUNK_BYTES
                if self._pending_bytes >= self._batch_bytes:
                    self._read_pending()
        except Exception as failure:  # noqa: BLE001  # as above
            self._stop_after_failure(failure)
        return kept or []

    def edit_run(self, run: bytes, chunks: Sequence[bytes]) -> list[bytes]:
        """The edited form of each of these chunks, which arrived together and form `run`."""
        stripper = self._stripper
        kept: list[bytes] = []
        if stripper is not None and self._decoder is None and self._capture is None:
            at = edited_bytes = 0
            while at < len(chunks) and not stripper.is_between_events:
                kept += _as_list(self._edit(chunks[at]))
                edited_bytes += len(chunks[at])
                at += 1
            if at:  # sliced once: a read of one-byte chunks would be copied ten thousand times
                run, chunks = run[edited_bytes:], chunks[at:]
            passed = self._edit_events(run, chunks)
            if passed is not None:
                return kept + passed
        for chunk in chunks:
            kept += _as_list(self.callable(chunk))
        return kept

    def _edit_events(self, run: bytes, chunks: Sequence[bytes]) -> list[bytes] | None:
        """As `_edit` for chunks of one event each; None if any chunk is not one event."""
        stripper = self._stripper
        if stripper is None or self.has_stopped or self._unframed or not chunks:
            return None
        try:
            passed = stripper.feed_events(run, chunks)
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            self._stripper = None
            self._stop_after_failure(failure)
            return list(chunks)
        if passed is None:
            return None
        passed = [chunk for chunk in passed if chunk]
        try:
            self._kept += passed
            if self._times is not None:
                self._note_time(self._times, has_events=True)
            self._pending.append(run)
            self._pending_bytes += len(run) + CHUNK_BYTES
            if self._pending_bytes >= self._batch_bytes:
                self._read_pending()
        except Exception as failure:  # noqa: BLE001  # as above
            self._stop_after_failure(failure)
        return passed

    def _edit_decoded(self, data: bytes) -> bytes | list[bytes]:
        """As `_edit`, for an answer that is encoded although the request asked for identity.

        If decoding fails, the tap sends nothing more: the client already has headers that promise
        identity and could not use encoded bytes. The proxy breaks the connection off at the end
        (`is_cut_short`), so that the client sees a failure, as it would if it had decoded the
        answer itself.
        """
        assert self._decoder is not None
        self._digests.add_wire(data)
        out = []
        for piece in self._decoder.decode(data) if data else (b"",):
            kept = self._edit(piece) if piece or not data else b""
            out += kept if isinstance(kept, list) else [kept]
        if self._decoder.trouble is not None:
            self._troubles.add(f"the answer was edited up to here: {self._decoder.trouble}")
        return [kept for kept in out if kept]

    def _take_unframed(self) -> bytes:
        held = bytes(self._unframed)
        self._unframed.clear()
        return held

    def _keep_unframed(self, data: bytes, framed_bytes: int) -> None:
        """Keep the bytes of the incomplete event, in case a bug ends the editing."""
        self._unframed += data
        if framed_bytes:
            del self._unframed[:framed_bytes]

    def read_some(self) -> bool:
        """Read the backlog for one turn of the event loop; return whether any is left.

        After the body's end, call it until it returns False, then call `end`.
        """
        if self.has_stopped:
            return False
        try:
            self._read_pending()
            self._read_tail()
            self._backlog.read_turn()
        except Exception as failure:  # noqa: BLE001  # as above
            self._stop_after_failure(failure)
        return not self._backlog.is_empty

    def end(self) -> None:
        """Read the remaining bytes. Call it once, however the exchange ends."""
        if self._stripper is not None and self._stripper.trouble is not None:
            self._troubles.add(self._stripper.trouble)
        if not self.has_stopped:
            try:
                self._read_pending()
                self._read_tail()
                self._backlog.read_all()
                self.meter.end()
            except Exception as failure:  # noqa: BLE001  # as above: the row must still be settled
                self._stop_after_failure(failure)
        self._share.give_back()

    def passed(self) -> Passed:
        """Lengths and digests of the passed bytes, for the ledger."""
        if self.has_stopped:
            # Digests and lengths stop where reading stopped; partial ones prove nothing.
            return Passed(
                first_byte_at=self._first_byte_at,
                first_token_at=self._first_token_at,
                stripped=bool(self._digests.removed_bytes),
                is_whole=False,
            )
        digests = self._digests
        held_bytes = 0 if self._is_flushed else self._tail_bytes + len(self._unframed)
        # Bytes on the wire and the client's have different encodings: they cannot be compared.
        is_decoded = self._decoder is not None
        upstream = digests.upstream
        client_bytes = digests.upstream_bytes - digests.removed_bytes - held_bytes
        return Passed(
            response_bytes=digests.wire_bytes if is_decoded else digests.upstream_bytes,
            client_bytes=None if is_decoded else client_bytes,
            removed_bytes=None if is_decoded else digests.removed_bytes,
            upstream_digest=upstream,
            client_digest=digests.client or upstream,
            removed_digest=digests.removed,
            first_byte_at=self._first_byte_at,
            first_token_at=self._first_token_at,
            stripped=bool(digests.removed_bytes),
        )

    def _note_time(self, times: list[float], *, has_events: bool) -> None:
        now = self._clock()
        if self._first_byte_at is None:
            self._first_byte_at = _instant(now)
        if has_events:
            times.append(now)

    def _read_pending(self) -> None:
        """Hash and meter the bytes since the last call."""
        if self._stripper is not None:
            self._account_for_edits(self._stripper)
        if not self._pending:
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        now = self._clock()
        before = self._batch_read_at or (self._times[0] if self._times else 0.0)
        is_burst = 0 <= now - before < BURST_SECONDS
        self._batch_bytes = BURST_BATCH_BYTES if is_burst else BATCH_BYTES
        self._batch_read_at = now
        run = pending[0] if len(pending) == 1 else b"".join(pending)
        self._digests.add_upstream(run)
        if self._times is None and self._backlog.is_empty and self.meter.skips(run):
            return
        # The editor has framed these bytes; frame them again only if they exceed one turn.
        is_framed = (
            self._stripper is not None
            and len(run) <= self.meter.step_bytes
            and self._backlog.is_empty
        )
        feed = self.meter.feed_events if is_framed else self._feed
        if self._times is None:
            feed(run)
        else:
            self._time(pending, self._times, feed)

    def _read_tail(self) -> None:
        """Hash and meter the bytes of an incomplete event, after the body's end."""
        if not self._unframed:
            return
        tail = bytes(self._unframed)
        self._unframed.clear()
        self._tail_bytes = len(tail)
        self._digests.add_upstream(tail)
        self._feed(tail)

    def _feed(self, run: bytes) -> None:
        """Pass a run to the meter, in several turns if it is long."""
        is_short = len(run) <= self.meter.step_bytes and not self.meter.is_encoded
        if is_short and self._backlog.is_empty:
            self.meter.feed(run)
            if self._digests.upstream_bytes > FREE_BYTES:
                self._check_kept()
        elif not self._backlog.add(run):
            self._troubles.add("the answer came faster than it could be read")
            self._stop_reading()
        elif self._check_kept():
            self._backlog.read_beside_chunks()

    def _check_kept(self) -> bool:
        """Whether the backlog and the meter's buffers may be kept; if not, end the reading."""
        kept_bytes = self._backlog.size_bytes + 2 * len(self._unframed) + self.meter.kept_bytes
        if self._may_keep(kept_bytes):
            return True
        self._stop_reading()
        return False

    def _may_keep(self, count: int) -> bool:
        if self._share.covers(count):
            return True
        self._troubles.add("all exchanges together keep as much in memory as they may")
        return False

    def _time(
        self, pending: list[bytes], times: list[float], feed: Callable[[bytes], None]
    ) -> None:
        """Meter chunk by chunk, to find the chunk with the first content."""
        if self._first_byte_at is None:
            self._first_byte_at = _instant(times[0])
        at = 0
        while at < len(pending) and not self.meter.token_seen:
            feed(pending[at])
            at += 1
        times_left: list[float] | None = []
        if self.meter.token_seen:
            self._first_token_at = _instant(times[at - 1])
            times_left = None
        self._times = times_left
        if at < len(pending):
            feed(b"".join(pending[at:]))

    def _account_for_edits(self, stripper: Stripper) -> None:
        self._digests.add_edited(b"".join(self._kept), b"".join(stripper.removed))
        self._kept.clear()
        stripper.removed.clear()

    def _stop_after_failure(self, failure: Exception) -> None:
        """End the reading after a bug in our code."""
        self._stop_reading()
        self._troubles.add_failure(failure, "the rest of this exchange passes unread")

    def _stop_reading(self) -> None:
        """Stop reading, and drop all buffers."""
        self.has_stopped = True
        self._pending.clear()
        self._kept.clear()
        self._backlog.drop()
        self.meter.give_up()
        self._share.give_back()


def _as_list(passed: bytes | list[bytes]) -> list[bytes]:
    if isinstance(passed, list):
        return passed
    return [passed] if passed else []


def _instant(timestamp: float) -> datetime:
    return datetime.fromtimestamp(timestamp, UTC)
