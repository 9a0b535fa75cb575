"""Pure. The buffer for an incomplete frame, and the base class of the framings that use it.

A frame may arrive in millions of chunks, so adding a chunk costs only its own length. A framing
that only reads (`shortens=True`) keeps the parts of a large frame that a parser needs; a framing
whose bytes go to a client keeps all of them.
"""

from collections.abc import Callable

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


class HoldingFraming:
    """A framing that holds the incomplete last block until it is complete."""

    __slots__ = ("_held", "_unit", "lost")
    UNIT = "a frame"
    """The word for one block in the reason why one was not read."""

    def __init__(self, *, shortens: bool = False, keys: Keys = frozenset) -> None:
        self._held = Held(shortens=shortens, keys=keys)
        self._unit = self.UNIT
        self.lost: str | None = None

    def end(self) -> bytes:
        """Return what is held when the body ends."""
        return self._take()

    @property
    def held(self) -> bytes:
        """The bytes that were fed and not returned yet."""
        return self._held.peek()

    @property
    def is_holding(self) -> bool:
        """Whether any bytes are held back."""
        return bool(self._held)

    @property
    def kept_bytes(self) -> int:
        """What it has in memory."""
        return self._held.kept_bytes

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
