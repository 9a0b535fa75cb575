"""Pure. One JSON array delivered in pieces: Gemini's stream without `alt=sse`.

A block is an element with the bracket, comma and blanks before it. Only quotes and brackets are
looked at: within a string nothing counts but its end, outside it the depth. What follows the
last element (the closing bracket) is held to the end of the body.
"""

import re

from addon.framing.frame import Frame

ELEMENT_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event; a longer element is given out in pieces that parse to nothing."""

_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')


class JsonArray:
    """Bytes of an array -> its elements."""

    __slots__ = ("_depth", "_ends", "_held", "_held_bytes", "_is_escaped", "_is_inside", "lost")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._depth = 0
        self._is_inside = False
        self._is_escaped = False
        self._ends: list[int] = []
        """Lengths of the blocks of the last run."""
        self.lost: str | None = None

    def feed(self, data: bytes) -> bytes:
        ends = self._scan(data)
        if not ends:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes <= ELEMENT_BYTES_MAX:
                return b""
            self.lost = f"an element beyond {ELEMENT_BYTES_MAX} bytes was not read"
            return self.end()
        cut = ends[-1]
        run = b"".join([*self._held, data[:cut]])
        self._ends = [self._held_bytes + end for end in ends]
        self._held = [data[cut:]] if cut < len(data) else []
        self._held_bytes = len(data) - cut
        return run

    def end(self) -> bytes:
        rest = self.held
        self._held = []
        self._held_bytes = 0
        self._ends = [len(rest)]
        return rest

    @property
    def held(self) -> bytes:
        return b"".join(self._held)

    def count(self, run: bytes) -> int:
        return sum(self.parse(block) is not None for block in self.split(run))

    def split(self, run: bytes) -> list[bytes]:
        starts = [0, *self._ends[:-1]]
        return [run[a:b] for a, b in zip(starts, self._ends, strict=True) if a < b]

    def parse(self, block: bytes) -> Frame | None:
        element = block.lstrip(b"[, \r\n\t").rstrip()
        is_object = element.startswith(b"{") and element.endswith(b"}")
        return Frame("", element) if is_object and len(block) <= ELEMENT_BYTES_MAX else None

    def _scan(self, data: bytes) -> list[int]:
        """Where elements of the outermost array end in `data`."""
        ends: list[int] = []
        at = 1 if self._is_escaped and data else 0
        self._is_escaped = self._is_escaped and not data
        while True:
            found = (_INSIDE if self._is_inside else _OUTSIDE).search(data, at)
            if found is None:
                return ends
            at = found.end()
            byte = data[at - 1]
            if self._is_inside:
                if byte == 0x22:
                    self._is_inside = False
                elif at == len(data):
                    self._is_escaped = True
                else:
                    at += 1
            elif byte == 0x22:
                self._is_inside = True
            elif byte in b"{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 1 and byte == 0x7D:
                    ends.append(at)
