"""Pure. One pass over an answer: the callable on `flow.response.stream`.

    bytes -> decoder -> framing -> blocks -> cuts (edited) -> the client
                                          -> digests, meter

    listening   returns the same object that it got; keeps references until it has about 2 KB (of
                a burst, 16), then digests them, and the reader frames and meters them
    editing     frames at once, cuts the injected usage out of each block, and passes complete
                blocks on; the meter reads the same blocks

It never raises: mitmproxy loses the chunk of a callable that raises. A bug of ours ends reading and
editing. The bytes still pass, and the row records it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct, field

from addon.framing import json_values
from addon.framing.document import Opaque
from addon.framing.sse import SSE
from addon.metering.answer_reader import AnswerReader
from addon.metering.decoding import Decoder
from addon.metering.memory_budget import FREE_BYTES, MemoryBudget
from addon.metering.meter import Meter
from addon.metering.settlement import Transfer
from addon.metering.troubles import Troubles
from addon.usage_opt_in import stripping
from ledger.model.errors import named

BATCH_BYTES = 2_000
"""Bytes buffered before they are hashed and metered: an open stream holds at most this, an edited
one at most twice this."""
BURST_SECONDS = 0.005
"""A batch of a burst is full less than this after the last one was read."""
BURST_BATCH_BYTES = 16_000
"""As `BATCH_BYTES`, in a burst. Reading a batch between two chunks displaces what mitmproxy has in
the processor's caches; by this it takes 6 to 12 % less CPU (`burst chunks` of
`tests/bench/bench_proxy.py`)."""
CHUNK_BYTES = 64
"""What Python needs for a pending chunk beside its bytes. A batch counts it: an open stream of tiny
chunks then holds no more than another."""
HASH_BYTES = 2_000
"""Bytes hashed at a time. hashlib releases the interpreter lock from 2 048 bytes on, and waiting
for the ledger's writer to release it again can cost the event loop 5 ms."""


class Edit(Struct, eq=False):
    """What an edited answer has beside: its bytes as the client gets them."""

    decoder: Decoder | None
    """Of an encoded answer, whose client gets identity."""
    unsent: bytearray = field(default_factory=bytearray)
    """Bytes of an incomplete event, which the client does not have."""
    rest: bytes = b""
    """What had no end of its own at the end of the body."""
    is_over: bool = False
    """From now on bytes pass as they come."""
    kept: list[bytes] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)
    """Both of the blocks that wait to be read."""
    client_hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    removed_hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    removed_bytes: int = 0
    wire_hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    wire_bytes: int = 0
    """Both of an answer that is decoded: as it was on the wire."""


class Tap:
    """Passes one answer through the proxy. Call it with each chunk, and with b"" at the body's end.

    `clock` returns seconds since the epoch.
    """

    __slots__ = (
        "_batch_bytes",
        "_batch_read_at",
        "_clock",
        "_edit",
        "_first_byte_at",
        "_first_token_at",
        "_hash",
        "_pending",
        "_pending_bytes",
        "_reader",
        "_troubles",
        "has_stopped",
        "meter",
        "received_bytes",
    )

    def __init__(
        self,
        meter: Meter,
        *,
        content_type: str,
        edits: bool,
        clock: Callable[[], float],
        troubles: Troubles,
        decoder: Decoder | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        """`edits`: injected usage is cut out. `decoder`: of an encoded answer. `budget`: bytes that
        all exchanges together may keep; None: a budget of its own."""
        self.meter = meter
        self._clock = clock
        self._troubles = troubles
        self._edit = Edit(decoder) if edits else None
        self._reader = AnswerReader(
            meter,
            content_type=content_type,
            clock=clock,
            troubles=troubles,
            decoder=None if edits else decoder,
            budget=budget,
            is_framed=edits,
        )
        self._pending: list[bytes] = []
        """What has passed since the last batch was read; of an edited answer, complete blocks."""
        self._pending_bytes = 0
        """What they take in memory."""
        self._batch_bytes = BATCH_BYTES
        self._batch_read_at = 0.0
        self._hash = hashlib.sha256()
        self.received_bytes = 0
        """Bytes that are hashed: of an edited answer, decoded."""
        self._first_byte_at: float | None = None
        self._first_token_at: float | None = None
        self.has_stopped = False
        """A bug in our code, or a bound, ended the reading."""

    @property
    def edits(self) -> bool:
        """Whether the bytes sent to the client may differ from upstream's."""
        return self._edit is not None

    @property
    def decodes(self) -> bool:
        """Whether the client gets identity although upstream's bytes have a content-encoding."""
        return self._edit is not None and self._edit.decoder is not None

    @property
    def is_cut_short(self) -> bool:
        """Whether the client got only the beginning, because decoding the rest failed."""
        decoder = self._edit.decoder if self._edit is not None else None
        return decoder is not None and decoder.trouble is not None

    @property
    def has_begun(self) -> bool:
        """Whether any byte has come."""
        return self._first_byte_at is not None

    @property
    def callable(self) -> Callable[[bytes], bytes | list[bytes]]:
        """What to set as `flow.response.stream`."""
        if self._edit is None:
            return self._listen
        return self._cut if self._edit.decoder is None else self._decode_and_cut

    def _listen(self, data: bytes) -> bytes | list[bytes]:
        # `b""` would end a chunked body early (mitmproxy PR #8242), so the end is `[]`.
        if self.has_stopped or not data:
            return data or []
        try:
            # No call of our own functions: nearly every chunk takes this path.
            self._pending.append(data)
            self._pending_bytes += len(data) + CHUNK_BYTES
            if self._first_token_at is None or self._pending_bytes >= self._batch_bytes:
                self._read_pending()
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            self._stop_after_failure(failure)
        return data

    def _decode_and_cut(self, data: bytes) -> bytes | list[bytes]:
        edit = self._edit
        assert edit is not None
        decoder = edit.decoder
        assert decoder is not None
        if not data:
            return self._cut(data)
        # If decoding fails, nothing more is sent: the client already has headers that promise
        # identity and could not use encoded bytes. The proxy breaks the connection off at the end
        # (`is_cut_short`), so that the client sees a failure, as if it had decoded the answer.
        out = []
        try:
            edit.wire_bytes += len(data)
            _hash_into(edit.wire_hash, data)
            for piece in decoder.decode(data):
                passed = self._cut(piece) if piece else b""
                out += passed if isinstance(passed, list) else [passed]
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            decoder.trouble = named(failure)
            self._stop_after_failure(failure)
        if decoder.trouble is not None:
            self._troubles.add(f"the answer was edited up to here: {decoder.trouble}")
        return [passed for passed in out if passed]

    def _cut(self, data: bytes) -> bytes | list[bytes]:
        """What the client gets of these bytes, b"" at the end of the body: complete events, without
        the usage that we asked for."""
        edit = self._edit
        assert edit is not None
        if edit.is_over:
            return self._listen(data)
        meter, unsent = self.meter, edit.unsent
        try:
            if self._first_byte_at is None and data:
                self._first_byte_at = self._clock()
            framing = meter.framing
            # One whole event, as servers write them, is framed already.
            is_one = not unsent and 0 < data.find(b"\n\n") == len(data) - 2 and b"\r" not in data
            if is_one and type(framing) is SSE:
                run = data
            else:
                run = self._reader.frame(data)
                framing, is_one = meter.framing, False
                if not data:
                    assert framing is not None  # one is chosen for every body that is over
                    run = edit.rest = run + framing.end()
                if framing is not None and not isinstance(framing, SSE):
                    # An error, despite its type.
                    if not self.has_stopped:
                        self._digest(bytes(unsent) + data)
                        meter.read(run)
                    return self._end_editing(edit, data)
                waiting_bytes = len(unsent) + len(data) - len(run)
                is_long = waiting_bytes > FREE_BYTES // 2
                if is_long and not self._reader.may_keep(2 * waiting_bytes):
                    self._stop_reading()
                    return self._end_editing(edit, data)
            kept = run
            if stripping.USAGE in run or json_values.has_escaped_key(run):
                assert framing is not None
                pieces = []
                for block in (run,) if is_one else framing.split(run):
                    at = 0
                    for start, end in stripping.cuts_of(block, framing.parse):
                        if not end:
                            self._troubles.add("usage that was asked for was left in the stream")
                            break
                        pieces.append(block[at:start])
                        edit.removed.append(block[start:end])
                        at = end
                    pieces.append(block[at:])
                kept = b"".join(pieces)
            if run is not data or unsent:
                unsent += data
                del unsent[: len(run)]
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the client
            self._stop_after_failure(failure)
            return self._end_editing(edit, data)
        if kept:
            edit.kept.append(kept)
        if self.has_stopped:  # the editing goes on: injected usage must not reach the client
            edit.kept.clear()
            edit.removed_bytes += sum(map(len, edit.removed))
            edit.removed.clear()
            return kept or []
        if run and data:
            try:
                self._pending.append(run)
                self._pending_bytes += len(run) + CHUNK_BYTES
                if self._first_token_at is None or self._pending_bytes >= self._batch_bytes:
                    self._read_pending()
            except Exception as failure:  # noqa: BLE001  # as above
                self._stop_after_failure(failure)
        return kept or []

    def _end_editing(self, edit: Edit, data: bytes) -> bytes | list[bytes]:
        """Pass everything on as it came, from these bytes on."""
        edit.is_over = True
        self._reader.is_framed = False
        if self.has_stopped:
            self.meter.framing = Opaque()
        passed = bytes(edit.unsent) + data
        edit.unsent.clear()
        return passed or []

    def read_some(self) -> bool:
        """Read the backlog for one turn of the event loop; return whether any is left.

        After the body's end, call it until it returns False, then call `end`.
        """
        if self.has_stopped:
            return False
        try:
            self._read_pending()
            return self._reader.read_turn()
        except Exception as failure:  # noqa: BLE001  # as above
            self._stop_after_failure(failure)
            return False

    def end(self) -> None:
        """Read the remaining bytes. Call it once, however the exchange ends."""
        edit, meter = self._edit, self.meter
        if not self.has_stopped:
            try:
                if self._pending or edit is not None:
                    self._read_pending()
                rest = self._reader.end()
                if edit is not None and not edit.is_over:
                    # It was taken at the end of the body, or that never came.
                    rest = edit.rest or rest
                    self._digest(rest)
                meter.end(rest)
            except Exception as failure:  # noqa: BLE001  # as above: the row must still be settled
                self._stop_after_failure(failure)
        self._reader.release()

    @property
    def trouble(self) -> str | None:
        """Why a part of the answer could not be read; None if all of it could."""
        return self._reader.trouble

    def transfer(self) -> Transfer:
        """Lengths and digests of the passed bytes, for the ledger."""
        edit = self._edit
        removed_bytes = edit.removed_bytes if edit is not None else 0
        first_byte_at, first_token_at = [
            None if at is None else datetime.fromtimestamp(at, UTC)
            for at in (self._first_byte_at, self._first_token_at)
        ]
        if self.has_stopped:
            # Digests and lengths stop where reading stopped; partial ones prove nothing.
            return Transfer(
                first_byte_at=first_byte_at,
                first_token_at=first_token_at,
                stripped=bool(removed_bytes),
                is_whole=False,
            )
        received_bytes = client_bytes = self.received_bytes
        upstream_digest = client_digest = self._hash.hexdigest()
        if edit is not None:
            if not edit.is_over:
                client_bytes -= removed_bytes + len(edit.unsent)
                client_digest = edit.client_hash.hexdigest()
            if edit.decoder is not None:
                received_bytes, upstream_digest = edit.wire_bytes, edit.wire_hash.hexdigest()
        # Bytes on the wire and the client's may have different encodings: then they cannot be
        # compared.
        is_decoded = edit is not None and edit.decoder is not None
        return Transfer(
            response_bytes=received_bytes,
            client_bytes=None if is_decoded else client_bytes,
            removed_bytes=None if is_decoded else removed_bytes,
            upstream_digest=upstream_digest,
            client_digest=client_digest,
            removed_digest=edit.removed_hash.hexdigest() if edit and removed_bytes else None,
            first_byte_at=first_byte_at,
            first_token_at=first_token_at,
            stripped=bool(removed_bytes),
        )

    def _digest(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if len(data) <= HASH_BYTES:  # as most batches
            self._hash.update(data)
        else:
            _hash_into(self._hash, data)

    def _read_pending(self) -> None:
        """Hash and meter the bytes since the last call."""
        edit = self._edit
        if edit is not None and (edit.kept or edit.removed):
            removed = b"".join(edit.removed)
            _hash_into(edit.client_hash, b"".join(edit.kept))
            _hash_into(edit.removed_hash, removed)
            edit.removed_bytes += len(removed)
            edit.kept.clear()
            edit.removed.clear()
        if not self._pending:
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        run = pending[0] if len(pending) == 1 else b"".join(pending)
        self._digest(run)
        now = self._clock()
        if self._first_byte_at is None:
            self._first_byte_at = now
        is_burst = 0 <= now - self._batch_read_at < BURST_SECONDS
        self._batch_bytes = BURST_BATCH_BYTES if is_burst else BATCH_BYTES
        self._batch_read_at = now
        unsent_bytes = len(edit.unsent) if edit is not None else 0
        if not self._reader.read(run, self.received_bytes, unsent_bytes):
            self._stop_reading()
        if self._first_token_at is None and self.meter.facts.token_seen:
            self._first_token_at = now

    def _stop_after_failure(self, failure: Exception) -> None:
        """End the reading after a bug in our code."""
        self._stop_reading()
        self._troubles.add_failure(failure, "the rest of this exchange passes unread")

    def _stop_reading(self) -> None:
        """Stop reading, and drop all buffers but those of the editing, which goes on."""
        self.has_stopped = True
        self._pending.clear()
        self._reader.stop()
        if self._edit is None or self._edit.is_over:
            self.meter.framing = Opaque()


def _hash_into(digest: hashlib._Hash, data: bytes) -> None:
    """Hash bytes without releasing the interpreter lock."""
    if len(data) <= HASH_BYTES:
        digest.update(data)
        return
    view = memoryview(data)
    for at in range(0, len(data), HASH_BYTES):
        digest.update(view[at : at + HASH_BYTES])
