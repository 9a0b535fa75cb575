"""Pure. Holds back the last chunk of a body under a content-length.

Such a body is over for the client with its last byte, before any hook could wait for the ledger.
`patches.http_stream` sends the chunk when the response hook has waited.
"""

from collections.abc import Callable

type StreamCallable = Callable[[bytes], bytes | list[bytes]]


class HeldEnd:
    """Stands in the stream behind the tap."""

    __slots__ = ("_held", "_into", "_left_bytes")

    def __init__(self, into: StreamCallable, length: int) -> None:
        self._into = into
        self._left_bytes = length
        self._held = b""

    def __call__(self, data: bytes) -> bytes | list[bytes]:
        """Feed the tap; hold back the chunk that completes the body."""
        passed = self._into(data)
        self._left_bytes -= len(data)
        if self._left_bytes > 0 or not data:
            return passed
        # More than was promised is mitmproxy's error to report; none of it may be lost here.
        self._held += data
        return []

    def release(self) -> bytes:
        """The last chunk, once; b"" if none is held."""
        held, self._held = self._held, b""
        return held
