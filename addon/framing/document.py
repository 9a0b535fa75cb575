"""Pure. Bodies of JSON alone: one plain document, one value per line (Ollama, Cohere v1), or one
array delivered in pieces: Gemini's stream without `alt=sse`.

A document is a single frame, returned when the body ends; some bodies hold no frame at all. A block
of an array is an object with the bracket, comma and blanks before it. Its scanner checks only
quotes and braces: inside a string it searches the end, outside it counts the depth of objects.
Bytes after the last object (the closing bracket) are held until the end of the body.
"""

import re

from addon.framing.frame import Frame, Framing
from addon.framing.long_json import END_BYTES, LONG_BYTES, WHOLE_BYTES_MAX

LINE_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event: far beyond any recorded line. A longer line alone is skipped."""
GAP = b'\0"\0'
"""In place of bytes that are not held. No JSON has it, in a text or outside of one, so no reader
takes the ends of a body for a whole one."""
_BETWEEN_LINES = b"}\n{"
"""A line that ends in a brace, followed by one that begins with a brace, cannot be one JSON value:
the body is lines, although its content type names one document (Ollama behind a recorder)."""


BLANKS = b"\xef\xbb\xbf \t\r\n\x1e"
"""Bytes allowed before the first significant byte: a byte order mark, blank keep-alive lines,
the mark of a record (RFC 7464, `json-seq`)."""


class NDJSON(Framing):
    """Bytes of a line-delimited body -> lines."""

    __slots__ = ()
    UNIT = "a line"

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the complete lines among them, in one run."""
        held = self._held
        cut = data.rfind(b"\n") + 1
        if not cut:
            held += data
            return self._take_beyond(LINE_BYTES_MAX)
        run = data[:cut] if cut < len(data) else data
        if held:
            run = self.end() + run
        self._held += data[cut:]
        return run

    def count(self, run: bytes) -> int:
        """How many lines a run has."""
        return run.count(b"\n") + (not run.endswith(b"\n"))

    def split(self, run: bytes) -> list[bytes]:
        """Cut a run after each line feed."""
        if b"\r" not in run:
            return run.splitlines(keepends=True)
        # Lines end in LF alone: in JSON a CR is whitespace anywhere.
        lines = [line + b"\n" for line in run.split(b"\n")]
        last = lines.pop()[:-1]
        return [*lines, last] if last else lines

    def parse(self, block: bytes) -> Frame | None:
        """The frame of a line; None if it is blank or too long."""
        line = block.strip()
        return Frame("", line) if line and len(block) <= LINE_BYTES_MAX else None


class Document(NDJSON):
    """Bytes of a plain body -> one block. A long body that is lines is framed by lines; of one that
    is longer than `WHOLE_BYTES_MAX` the first and the last bytes are held alone."""

    __slots__ = ("_are_lines",)
    UNIT = "a body"

    def __init__(self) -> None:
        super().__init__()
        self._are_lines: bool | None = None
        """None: the body is too short to tell."""

    def feed(self, data: bytes) -> bytes:
        """Hold the next bytes of the body; return lines, if the body is lines."""
        if self._are_lines:
            return super().feed(data)
        held = self._held
        held += data
        if self._are_lines is None and len(held) > LONG_BYTES:
            self._are_lines = _BETWEEN_LINES in held
            if self._are_lines:
                return super().feed(self.end())
        if len(held) > WHOLE_BYTES_MAX:
            held[END_BYTES:-END_BYTES] = GAP
        return b""

    def count(self, run: bytes) -> int:
        """How many frames a run has: one, or one a line; none in blanks."""
        return len(self.split(run)) if run.strip() else 0

    def split(self, run: bytes) -> list[bytes]:
        """The run as one block, or as one block a line."""
        if self._are_lines or _BETWEEN_LINES in run:
            return run.splitlines(keepends=True)
        return [run] if run else []

    def is_one(self, blocks: list[bytes]) -> bool:
        """Whether these are the whole body: one document."""
        return len(blocks) == 1 and not self._are_lines

    def parse(self, block: bytes) -> Frame | None:
        """The frame of a block; None for blanks."""
        return Frame("", block) if block.strip() else None


class Opaque(Framing):
    """A body that holds no frames (speech, pictures): nothing of it is kept."""

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        """Return the bytes as they came."""
        return data

    def count(self, _run: bytes) -> int:
        """No run has frames."""
        return 0

    def split(self, run: bytes) -> list[bytes]:
        """The run as one block."""
        return [run] if run else []

    def parse(self, _block: bytes) -> Frame | None:
        """No block is a frame."""
        return None


ELEMENT_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event; a longer element is returned in pieces that parse to nothing."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|\{[^"{}]*+\}|[{}]', re.DOTALL)
"""Outside of strings: a string, with the quote that ends it if it is there, an object without text
or objects in it, or a brace."""
_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+("?)', re.DOTALL)
_QUOTE, _OPENING = b'"{'


class JsonArray(Framing):
    """Bytes of an array -> its elements."""

    __slots__ = ("_ends_of_run", "_run", "_scanner")
    UNIT = "an element"

    def __init__(self) -> None:
        super().__init__()
        self._scanner = _Scanner()
        self._run = b""
        """The run of the latest search for ends: `count` uses it, and `split` may."""
        self._ends_of_run: list[int] = []

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the complete elements among them, in one run."""
        ends = self._scanner.ends_in(data)
        if not ends:
            self._held += data
            return self._take_beyond(ELEMENT_BYTES_MAX)
        beyond, cut = len(self._held), ends[-1]
        run = self.end() + data[:cut]
        self._run, self._ends_of_run = run, [end + beyond for end in ends]
        self._held += data[cut:]
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
