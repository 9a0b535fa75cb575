"""Pure. The interface of every framing, and the buffer for an incomplete frame.

A framing is fed chunks and returns the run of complete blocks that they finish. A block is a frame
with all of its bytes, its end mark included. So the runs and the held tail together are the input,
byte for byte, for any chunk boundaries. Splitting a run and parsing a block are separate from
feeding, because most blocks hold nothing for the meter: it searches a run for a few byte marks and
parses only the blocks that contain one.

A frame may arrive in millions of chunks, so adding a chunk costs only its own length. A framing
that only reads (`shortens=True`) keeps the parts of a large frame that a parser needs; a framing
whose bytes go to a client keeps all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from addon.framing.large_json import Shortener

Keys = Callable[[], frozenset[bytes]]
"""Returns the keys to keep of a large object (`Shortener`). Called once for a large frame."""

LARGE_BYTES = 64 * 1024
"""A frame beyond this size is shortened. Nearly all frames with usage are smaller (52 KB is the
largest recorded), and a parser takes this much in 1 ms."""
CATCH_UP_BYTES = 4 * 1024
"""When a frame turns out to be large, shortening all of its held bytes at once takes up to 40 ms.
So each chunk shortens this many of them, plus as many as the chunk has."""
_BEFORE_BYTES_MAX = 1_024
"""Bytes kept before the JSON of a large frame: `event: x\\ndata: `."""


class Frame(NamedTuple):
    """One protocol unit: an SSE event, an NDJSON line, an event-stream message."""

    event: str
    """SSE event name, event-stream `:event-type`; empty if the wire gives none."""
    data: bytes


class Held:
    """Takes the chunks of one frame."""

    __slots__ = ("_behind", "_bytes", "_fed_bytes", "_keys", "_shortener", "_shortens")

    def __init__(self, *, shortens: bool = False, keys: Keys = frozenset) -> None:
        self._shortens = shortens
        self._keys = keys
        self._bytes = bytearray()
        self._shortener: Shortener | None = None
        self._behind = bytearray()
        """Bytes that the shortener has not read yet."""
        self._fed_bytes = 0

    def __len__(self) -> int:
        """The number of bytes that arrived, dropped ones included."""
        return self._fed_bytes

    @property
    def kept_bytes(self) -> int:
        """What it has in memory."""
        shortened = self._shortener.kept_bytes if self._shortener is not None else 0
        return len(self._bytes) + len(self._behind) + shortened

    @property
    def is_shortened(self) -> bool:
        """Whether some of the bytes may have been dropped."""
        return self._shortener is not None

    @property
    def is_lost(self) -> bool:
        """Whether the frame exceeds the bound even when shortened, so that it cannot be read."""
        if self._shortener is None:
            return False
        self._catch_up(len(self._behind))
        return self._shortener.overflowed

    def add(self, data: bytes) -> None:
        """Add the next bytes of the frame."""
        self._fed_bytes += len(data)
        if self._behind:
            self._behind += data
            self._catch_up(len(data) + CATCH_UP_BYTES)
            return
        if self._shortener is not None:
            self._shortener.feed(data)
            return
        self._bytes += data
        if self._shortens and self._fed_bytes > LARGE_BYTES:
            brace = self._bytes.find(b"{")
            if brace < 0:
                # No JSON object yet, so nothing to read yet: a comment, or a long blank.
                del self._bytes[_BEFORE_BYTES_MAX:]
                return
            self._behind = self._bytes[brace:]
            del self._bytes[min(brace, _BEFORE_BYTES_MAX) :]
            self._shortener = Shortener(keys=self._keys())

    def _catch_up(self, count: int) -> None:
        assert self._shortener is not None
        self._shortener.feed(bytes(self._behind[:count]))
        del self._behind[:count]
        if self._shortener.overflowed:
            self._behind.clear()

    def take(self) -> bytes:
        """Return the bytes and empty the buffer."""
        if not self._fed_bytes:
            return b""
        taken = self.peek()
        self._bytes = bytearray()
        self._behind = bytearray()
        self._shortener = None
        self._fed_bytes = 0
        return taken

    def peek(self) -> bytes:
        """The bytes; the buffer keeps them."""
        if self._shortener is None:
            return bytes(self._bytes)
        self._catch_up(len(self._behind))
        return bytes(self._bytes) + self._shortener.peek()


class Framing(ABC):
    """Bytes -> blocks. One instance per answer; never raises on any bytes.

    It holds the incomplete last block until that is complete.
    """

    __slots__ = ("_held", "_unit", "lost")
    UNIT = "a frame"
    """The word for one block in the reason why one was not read."""

    def __init__(self, *, shortens: bool = False, keys: Keys = frozenset) -> None:
        """`shortens`: large blocks may lose other content than figures."""
        self._held = Held(shortens=shortens, keys=keys)
        self._unit = self.UNIT
        self.lost: str | None = None
        """Why blocks had to be skipped (too long, a bad checksum); None if none were."""

    @abstractmethod
    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the run of blocks that they complete."""

    def end(self) -> bytes:
        """What is left at the end of the body, to be treated as a last block; empty if nothing."""
        return self._take()

    @property
    def held(self) -> bytes:
        """The incomplete tail that has not been returned."""
        return self._held.peek()

    @property
    def is_holding(self) -> bool:
        """Whether there is such a tail."""
        return bool(self._held)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the tail in memory: content other than figures may have been dropped."""
        return self._held.kept_bytes

    @abstractmethod
    def count(self, run: bytes) -> int:
        """How many frames a run holds, without parsing them."""

    @abstractmethod
    def split(self, run: bytes) -> list[bytes]:
        """The blocks of a run, in order; joined they are the run."""

    @abstractmethod
    def parse(self, block: bytes) -> Frame | None:
        """What a block says; None for one that dispatches nothing (a comment, a bare id)."""

    def _take(self) -> bytes:
        if self._held.is_lost:
            self.lost = f"{self._unit} with too many values was not read"
        return self._held.take()

    def _take_beyond(self, bytes_max: int) -> bytes:
        """Return a block longer than the bound in pieces; empty if it is not longer."""
        if len(self._held) <= bytes_max:
            return b""
        self.lost = f"{self._unit} beyond {bytes_max} bytes was not read"
        return self._held.take()
