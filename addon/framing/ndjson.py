"""Pure. One JSON value per line: Ollama, Cohere v1."""

from addon.framing.frame import Frame
from addon.framing.held import HoldingFraming

LINE_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event: far beyond any recorded line. A longer line alone is skipped."""


class NDJSON(HoldingFraming):
    """Bytes of a line-delimited body -> lines. `shortens`: large ones may be cut."""

    __slots__ = ()
    UNIT = "a line"

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the complete lines among them, in one run."""
        held = self._held
        cut = data.rfind(b"\n") + 1
        if not cut:
            held.add(data)
            return self._take_beyond(LINE_BYTES_MAX)
        run = data[:cut] if cut < len(data) else data
        if held:
            first = data.find(b"\n") + 1
            held.add(data[:first])
            run = self._take() + data[first:cut]
        if cut < len(data):
            held.add(data[cut:])
        return run

    def count(self, run: bytes) -> int:
        """How many lines a run has."""
        return run.count(b"\n") + (not run.endswith(b"\n"))

    def split(self, run: bytes) -> list[bytes]:
        """Cut a run after each line feed."""
        return run.splitlines(keepends=True) if b"\r" not in run else _lines(run)

    def parse(self, block: bytes) -> Frame | None:
        """The frame of a line; None if it is blank or too long."""
        line = block.strip()
        return Frame("", line) if line and len(block) <= LINE_BYTES_MAX else None


def _lines(run: bytes) -> list[bytes]:
    """Lines that end in LF alone: in JSON a CR is whitespace anywhere."""
    lines = [line + b"\n" for line in run.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
