"""Pure. Reads the bytes of an answer: decodes, frames and meters them.

What is much work waits in the backlog for a later turn of the event loop. `Tap` gives it what has
passed, a batch at a time, and guards the client from what is raised here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from addon.framing.choice import framing_of
from addon.metering.backlog import Backlog
from addon.metering.decoding import Decoder
from addon.metering.memory_budget import FREE_BYTES, MemoryBudget, Share
from addon.metering.meter import Meter
from addon.metering.troubles import Troubles

STEP_BYTES_MAX = 8 * 1024
"""Decoded bytes that are read in one step: 3 ms for the costliest that need no parse."""
STEP_BYTES_MIN = 1024
STEP_FRAMES = 64
"""After a step with this many parsed frames, the next step is a quarter as long, because a parsed
frame of a few bytes takes up to 60 µs. Steps with fewer grow again."""
PIECE_WORK_BYTES = 128
"""Work counted for each piece from the decoder beside its bytes, even for an empty one."""


class AnswerReader:
    """Reads one answer. `clock` returns seconds since the epoch."""

    __slots__ = (
        "_backlog",
        "_begun",
        "_budget",
        "_clock",
        "_content_type",
        "_decoder",
        "_meter",
        "_share",
        "_step_bytes",
        "_troubles",
        "is_framed",
    )

    def __init__(
        self,
        meter: Meter,
        *,
        content_type: str,
        clock: Callable[[], float],
        troubles: Troubles,
        decoder: Decoder | None,
        budget: MemoryBudget | None,
        is_framed: bool,
    ) -> None:
        """`decoder`: of an encoded answer. `budget`: None: a budget of its own."""
        self._meter = meter
        self._content_type = content_type
        self._clock = clock
        self._troubles = troubles
        self._decoder = decoder
        self._budget = budget
        self._share: Share | None = None
        """Made when the exchange keeps more than is free."""
        self._backlog: Backlog | None = None
        """Made when bytes wait for a later turn. It knows when the last turn was."""
        self._begun = b""
        """The first bytes, until they tell the framing."""
        self._step_bytes = STEP_BYTES_MAX
        """Bytes that may be read in one step now."""
        self.is_framed = is_framed
        """What comes is complete blocks: it is edited, and framed for that."""

    def read(self, run: bytes, received_bytes: int, unsent_bytes: int) -> bool:
        """Meter a batch, now or later. False: a bound was met, and the reading should end.

        `received_bytes`: of the answer so far; `unsent_bytes`: what its editing keeps.
        """
        meter, framing, backlog = self._meter, self._meter.framing, self._backlog
        is_framed = self.is_framed
        is_at_once = (backlog is None or backlog.is_empty) and self._decoder is None
        if is_at_once and (is_framed or (framing and not framing.held_bytes)) and meter.skips(run):
            return True
        if is_at_once and len(run) <= self._step_bytes:
            if blocks := run if is_framed else self.frame(run):
                meter.read(blocks)
            if meter.parsed:
                self._size_step()
            is_short = received_bytes <= FREE_BYTES or is_framed
            return is_short or self._keeps_little(unsent_bytes)
        if backlog is None:
            backlog = self._backlog = Backlog(self._steps, self._clock)
        if not backlog.add(run):
            self._troubles.add("the answer came faster than it could be read")
            return False
        if not self._keeps_little(unsent_bytes):
            return False
        backlog.read_beside_chunks()
        return True

    def read_turn(self) -> bool:
        """Read the backlog for one turn of the event loop; whether any is left."""
        return self._backlog is not None and self._backlog.read_turn()

    def end(self) -> bytes:
        """Read the backlog; what has no end of its own at the end of the body."""
        if self._backlog is not None:
            self._backlog.read_all()
        rest = self.frame(b"") if self._meter.framing is None else b""
        assert self._meter.framing is not None  # one is chosen for every body that is over
        return rest + self._meter.framing.end()

    def stop(self) -> None:
        """Drop all buffers: nothing more is read."""
        self._backlog = None
        self._decoder = None
        self._begun = b""
        self.release()

    def release(self) -> None:
        """Give back what the exchange has of the budget."""
        if self._share is not None:
            self._share.give_back()

    @property
    def trouble(self) -> str | None:
        """Why a part of the answer could not be read; None if all of it could."""
        encoding = self._decoder.trouble if self._decoder is not None else None
        unread = self._meter.trouble
        return f"{encoding}; {unread}" if encoding and unread else encoding or unread

    def frame(self, data: bytes) -> bytes:
        """The complete blocks with these bytes, b"" at the end of the body."""
        framing = self._meter.framing
        if framing is None:
            data = self._begun + data
            framing = framing_of(self._content_type, data, is_over=len(data) == len(self._begun))
            if framing is None:
                self._begun = data
                return b""
            self._begun = b""
            self._meter.framing = framing
        return framing.feed(data)

    def _steps(self, run: bytes) -> Iterator[None]:
        """Read bytes that are long or encoded, with a pause after about `_step_bytes` of work."""
        worked = 0
        for piece in (run,) if self._decoder is None else self._decoder.decode(run):
            worked += PIECE_WORK_BYTES
            for part_bytes, blocks in self._parts(piece):
                if blocks:
                    self._meter.read(blocks)
                self._size_step()
                worked += part_bytes
                if worked >= self._step_bytes:
                    yield
                    worked = 0
            if worked >= self._step_bytes:
                yield
                worked = 0

    def _parts(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Parts of about `_step_bytes`: how long each is, and the blocks that it completes."""
        framing = self._meter.framing
        if not self.is_framed:
            at = 0
            while at < len(piece):
                part = piece[at : at + self._step_bytes]
                at += len(part)
                yield len(part), self.frame(part)
            return
        assert framing is not None
        blocks: list[bytes] = []
        size = 0
        for block in framing.split(piece):
            blocks.append(block)
            size += len(block)
            if size >= self._step_bytes:
                yield size, b"".join(blocks)
                blocks, size = [], 0
        yield size, b"".join(blocks)

    def _size_step(self) -> None:
        """Make the next step shorter if this one was much work."""
        if self._meter.parsed >= STEP_FRAMES:
            self._step_bytes = max(STEP_BYTES_MIN, self._step_bytes // 4)
        elif self._step_bytes < STEP_BYTES_MAX:
            self._step_bytes *= 2
        self._meter.parsed = 0

    def _keeps_little(self, unsent_bytes: int) -> bool:
        """Whether what the exchange keeps may be kept."""
        framing = self._meter.framing
        kept_bytes = len(self._begun) if framing is None else framing.held_bytes
        if self._backlog is not None:
            kept_bytes += self._backlog.size_bytes
        if self._decoder is not None:
            kept_bytes += self._decoder.kept_bytes
        return self.may_keep(kept_bytes + unsent_bytes)

    def may_keep(self, count: int) -> bool:
        """Whether the exchange may keep so many bytes, of all that exchanges keep together."""
        if count <= FREE_BYTES:
            return True
        if self._share is None:
            self._share = Share(self._budget if self._budget is not None else MemoryBudget())
        if self._share.covers(count):
            return True
        self._troubles.add("all exchanges together keep as much in memory as they may")
        return False
