"""Pure. The interface of every framing, and the buffer for an incomplete frame.

A framing is fed chunks and returns the run of complete blocks that they finish. A block is a frame
with all of its bytes, its end mark included. So the runs and the held tail together are the input,
byte for byte, for any chunk boundaries. Splitting a run and parsing a block are separate from
feeding, because most blocks hold nothing for the meter: it searches a run for a few byte marks and
parses only the blocks that contain one.

A frame may arrive in millions of chunks, so adding a chunk costs only its own length.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple


class Frame(NamedTuple):
    """One protocol unit: an SSE event, an NDJSON line, an event-stream message."""

    event: str
    """SSE event name, event-stream `:event-type`; empty if the wire gives none."""
    data: bytes


class Framing(ABC):
    """Bytes -> blocks. One instance per answer; never raises on any bytes.

    It holds the incomplete last block until that is complete.
    """

    __slots__ = ("_held", "lost")
    UNIT = "a frame"
    """The word for one block in the reason why one was not read."""

    def __init__(self) -> None:
        self._held = bytearray()
        self.lost: str | None = None
        """Why blocks had to be skipped (too long, a bad checksum); None if none were."""

    @abstractmethod
    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the run of blocks that they complete."""

    def end(self) -> bytes:
        """What is left at the end of the body, to be treated as a last block; empty if nothing."""
        rest = bytes(self._held)
        self._held = bytearray()  # a cleared one keeps its memory
        return rest

    @property
    def held_bytes(self) -> int:
        """How long the incomplete tail is that has not been returned."""
        return len(self._held)

    @abstractmethod
    def count(self, run: bytes) -> int:
        """How many frames a run holds, without parsing them."""

    @abstractmethod
    def split(self, run: bytes) -> list[bytes]:
        """The blocks of a run, in order; joined they are the run."""

    @abstractmethod
    def parse(self, block: bytes) -> Frame | None:
        """What a block says; None for one that dispatches nothing (a comment, a bare id)."""

    def _take_beyond(self, bytes_max: int) -> bytes:
        """Return a block longer than the bound in pieces; empty if it is not longer."""
        if len(self._held) <= bytes_max:
            return b""
        self.lost = f"{self.UNIT} beyond {bytes_max} bytes was not read"
        return self.end()


class LengthPrefixed(Framing):
    """Bytes -> messages that begin with their length; one that is too long is stepped over."""

    __slots__ = ("_is_over", "_pass_over_bytes")
    PREFIX_BYTES = 0
    """Bytes at the beginning of a message that say how long it is."""
    READ_BYTES_MAX = 0
    """A longer message is stepped over."""

    def __init__(self) -> None:
        super().__init__()
        self._pass_over_bytes = 0
        """Remaining bytes of a message that is stepped over."""
        self._is_over = False
        """Too much was no message: the rest of the body is not read."""

    @abstractmethod
    def _length_at(self, data: bytes | bytearray, at: int) -> int | None:
        """How long the message is that begins here, its prefix included; None: none begins here."""

    @abstractmethod
    def _step_over(self, held: bytearray, at: int) -> int:
        """The place after what is no message. Sets `_is_over`, where the rest is not to be read."""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the complete messages among them, in one run."""
        held = self._held
        if self._pass_over_bytes:
            passed = min(self._pass_over_bytes, len(data))
            self._pass_over_bytes -= passed
            data = data[passed:]
        if self._is_over:
            return b""
        held += data
        at = start = 0
        runs = []
        while len(held) - at >= self.PREFIX_BYTES:
            length = self._length_at(held, at)
            if length is None:
                at = self._step_over(held, at)
            elif length > self.READ_BYTES_MAX:
                self.lost = f"{self.UNIT} beyond {self.READ_BYTES_MAX} bytes was not read"
                runs.append(bytes(held[start:at]))
                there = min(length, len(held) - at)
                self._pass_over_bytes = length - there
                at = start = at + there
            elif len(held) - at < length:
                break
            else:
                at += length
        runs.append(bytes(held[start:at]))
        del held[:at]
        return b"".join(runs)
