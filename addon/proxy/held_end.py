"""Pure. Holds back the last chunk of a body under a content-length.

The client sees such a body end with its last byte, before any hook can wait for the ledger.
`patches.http_stream` sends the last chunk after the response hook.
"""

from collections.abc import Callable

type StreamCallable = Callable[[bytes], bytes | list[bytes]]


class HeldEnd:
    """Wraps the tap as the callable of a stream."""

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
        # mitmproxy reports a body longer than its content-length; all of it is passed on here.
        self._held += data
        return []

    def release(self) -> bytes:
        """The last chunk, once; b"" if none is held."""
        held, self._held = self._held, b""
        return held
