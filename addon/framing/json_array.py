"""Pure. One JSON array delivered in pieces: Gemini's stream without `alt=sse`.

A block is an object with the bracket, comma and blanks before it. The scanner checks only quotes
and braces: inside a string it searches the end, outside it counts the depth of objects. Bytes after
the last object (the closing bracket) are held until the end of the body.
"""

import re

from addon.framing.frame import Frame, Framing, Keys

ELEMENT_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event; a longer element is returned in pieces that parse to nothing."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|\{[^"{}]*+\}|[{}]', re.DOTALL)
"""Outside of strings: a string, with the quote that ends it if it is there, an object without text
or objects in it, or a brace."""
_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+("?)', re.DOTALL)
_QUOTE, _OPENING = b'"{'


class JsonArray(Framing):
    """Bytes of an array -> its elements. `shortens`: large ones may lose other content than
    figures."""

    __slots__ = ("_ends_of_run", "_run", "_scanner")
    UNIT = "an element"

    def __init__(self, *, shortens: bool = False, keys: Keys = frozenset) -> None:
        super().__init__(shortens=shortens, keys=keys)
        self._scanner = _Scanner()
        self._run = b""
        """The run of the latest search for ends: `count` uses it, and `split` may."""
        self._ends_of_run: list[int] = []

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the complete elements among them, in one run."""
        ends = self._scanner.ends_in(data)
        held = self._held
        if not ends:
            held.add(data)
            return self._take_beyond(ELEMENT_BYTES_MAX)
        first, cut = ends[0], ends[-1]
        held.add(data[:first])
        taken = self._take()
        run = taken + data[first:cut]
        beyond = len(taken) - first
        self._run, self._ends_of_run = run, [end + beyond for end in ends]
        if cut < len(data):
            held.add(data[cut:])
        return run

    def count(self, run: bytes) -> int:
        """How many elements end in a run."""
        return len(self._ends(run))

    def split(self, run: bytes) -> list[bytes]:
        """Cut a run after each element."""
        ends = self._ends(run)
        starts = [0, *ends]
        return [run[a:b] for a, b in zip(starts, [*ends, len(run)], strict=True) if a < b]

    def parse(self, block: bytes) -> Frame | None:
        """The frame of an element; None if the block is no object or is too long."""
        element = block[block.find(b"{") :].rstrip()
        is_object = element.startswith(b"{") and element.endswith(b"}")
        return Frame("", element) if is_object and len(block) <= ELEMENT_BYTES_MAX else None

    def _ends(self, run: bytes) -> list[int]:
        if run is not self._run:
            # A run begins outside of all elements.
            self._run, self._ends_of_run = run, _Scanner().ends_in(run)
        return self._ends_of_run


class _Scanner:
    """Finds the ends of elements, in any chunks."""

    __slots__ = ("_depth", "_is_escaped", "_is_inside")

    def __init__(self) -> None:
        self._depth = 0
        self._is_inside = False
        self._is_escaped = False

    def ends_in(self, data: bytes) -> list[int]:
        """Offsets in these bytes at which elements end."""
        if not data:
            return []
        at = 0
        if self._is_inside:
            found = _INSIDE.match(data, int(self._is_escaped))
            assert found is not None
            at = found.end()
            if not found[1]:
                self._begin_string(data, at)
                return []
            self._is_inside = self._is_escaped = False
        ends: list[int] = []
        depth = self._depth
        for found in _TOKEN.finditer(data, at):
            byte = data[found.start()]
            if byte == _OPENING:
                if found.end() - found.start() == 1:
                    depth += 1
                elif not depth:
                    ends.append(found.end())
            elif byte == _QUOTE:
                if not found[1]:  # the string continues in the next bytes
                    self._begin_string(data, found.end())
                    break
            elif depth:
                depth -= 1
                if not depth:
                    ends.append(found.end())
        self._depth = depth
        return ends

    def _begin_string(self, data: bytes, end: int) -> None:
        self._is_inside = True
        self._is_escaped = end < len(data)  # only a backslash without its other half stops it
