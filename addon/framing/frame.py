"""Pure. The interface of every framing.

A framing is fed chunks and returns the run of complete blocks that they finish. A block is a frame
with all of its bytes, its end mark included. So the runs and the held tail together are the input,
byte for byte, for any chunk boundaries. Splitting a run and parsing a block are separate from
feeding, because most blocks hold nothing for the meter: it searches a run for a few byte marks and
parses only the blocks that contain one.
"""

from typing import NamedTuple, Protocol


class Frame(NamedTuple):
    """One protocol unit: an SSE event, an NDJSON line, an event-stream message."""

    event: str
    """SSE event name, event-stream `:event-type`; empty if the wire gives none."""
    data: bytes


class Framing(Protocol):
    """Bytes -> blocks. One instance per answer; never raises on any bytes."""

    def feed(self, data: bytes) -> bytes:
        """The run of blocks that `data` completes; empty if none."""

    def end(self) -> bytes:
        """What is left at the end of the body, to be treated as a last block; empty if nothing."""

    @property
    def held(self) -> bytes:
        """The incomplete tail that has not been returned."""

    @property
    def is_holding(self) -> bool:
        """Whether there is such a tail."""

    @property
    def kept_bytes(self) -> int:
        """Bytes of the tail in memory: content other than figures may have been dropped."""

    @property
    def lost(self) -> str | None:
        """Why blocks had to be skipped (too long, a bad checksum); None if none were."""

    def count(self, run: bytes) -> int:
        """How many frames a run holds, without parsing them."""

    def split(self, run: bytes) -> list[bytes]:
        """The blocks of a run, in order; joined they are the run."""

    def parse(self, block: bytes) -> Frame | None:
        """What a block says; None for one that dispatches nothing (a comment, a bare id)."""
