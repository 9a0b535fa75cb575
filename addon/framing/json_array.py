"""Pure. One JSON array delivered in pieces: Gemini's stream without `alt=sse`.

A block is an object with the bracket, comma and blanks before it. Only quotes and braces are
looked at: within a string nothing counts but its end, outside it the depth of objects. What
follows the last one (the closing bracket) is held to the end of the body.
"""

import re

from addon.framing.frame import Frame
from addon.framing.held import HoldingFraming

ELEMENT_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event; a longer element is given out in pieces that parse to nothing."""

_OUTSIDE = re.compile(rb'["{}]')
_INSIDE = re.compile(rb'["\\]')
_QUOTE, _BACKSLASH, _OPENING = b'"\\{'


class JsonArray(HoldingFraming):
    """Bytes of an array -> its elements. `shortens`: large ones may lose what is no figure."""

    __slots__ = ("_scanner",)
    UNIT = "an element"

    def __init__(self, *, shortens: bool = False) -> None:
        super().__init__(shortens=shortens)
        self._scanner = _Scanner()

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the complete elements among them, in one run."""
        ends = self._scanner.ends_in(data)
        held = self._held
        if not ends:
            held.add(data)
            return self._take_beyond(ELEMENT_BYTES_MAX)
        first, cut = ends[0], ends[-1]
        held.add(data[:first])
        run = self._take() + data[first:cut]
        if cut < len(data):
            held.add(data[cut:])
        return run

    def count(self, run: bytes) -> int:
        """How many elements end in a run."""
        return len(self._ends(run))

    def split(self, run: bytes) -> list[bytes]:
        """Cut a run behind each element."""
        ends = self._ends(run)
        starts = [0, *ends]
        return [run[a:b] for a, b in zip(starts, [*ends, len(run)], strict=True) if a < b]

    def parse(self, block: bytes) -> Frame | None:
        """The frame of an element; None if the block is no object or is too long."""
        element = block[block.find(b"{") :].rstrip()
        is_object = element.startswith(b"{") and element.endswith(b"}")
        return Frame("", element) if is_object and len(block) <= ELEMENT_BYTES_MAX else None

    def _ends(self, run: bytes) -> list[int]:
        return _Scanner().ends_in(run)  # a run begins outside of all elements


class _Scanner:
    """Where elements end, in bytes that come in any cut."""

    __slots__ = ("_depth", "_is_escaped", "_is_inside")

    def __init__(self) -> None:
        self._depth = 0
        self._is_inside = False
        self._is_escaped = False

    def ends_in(self, data: bytes) -> list[int]:
        ends: list[int] = []
        at = 0
        if self._is_escaped and data:
            at = 1
            self._is_escaped = False
        while True:
            found = (_INSIDE if self._is_inside else _OUTSIDE).search(data, at)
            if found is None:
                return ends
            at = found.end()
            byte = data[at - 1]
            if byte == _QUOTE:
                self._is_inside = not self._is_inside
            elif byte == _BACKSLASH:
                self._is_escaped = at == len(data)
                at += 1
            elif byte == _OPENING:
                self._depth += 1
            elif self._depth:
                self._depth -= 1
                if not self._depth:
                    ends.append(at)
