"""Pure. One JSON value a line: Ollama, Cohere v1."""

from addon.framing.frame import Frame
from addon.framing.held import Held

LINE_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event: far beyond any line seen; a longer one is skipped, not the ones after."""


class NDJSON:
    """Bytes of a line-delimited body -> lines. `shortens`: large ones may be cut."""

    __slots__ = ("_held", "lost")

    def __init__(self, *, shortens: bool = False) -> None:
        self._held = Held(shortens=shortens)
        self.lost: str | None = None

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return the complete lines among them, in one run."""
        held = self._held
        cut = data.rfind(b"\n") + 1
        if not cut:
            held.add(data)
            if len(held) <= LINE_BYTES_MAX:
                return b""
            self.lost = f"a line beyond {LINE_BYTES_MAX} bytes was not read"
            return held.take()
        run = data[:cut] if cut < len(data) else data
        if held:
            first = data.find(b"\n") + 1
            held.add(data[:first])
            run = self._take() + data[first:cut]
        if cut < len(data):
            held.add(data[cut:])
        return run

    def end(self) -> bytes:
        """Return what is held when the body ends."""
        return self._take()

    @property
    def held(self) -> bytes:
        """The bytes that were fed and not given out yet."""
        return self._held.peek()

    @property
    def is_holding(self) -> bool:
        """Whether any bytes are held back."""
        return bool(self._held)

    def _take(self) -> bytes:
        if self._held.is_lost:
            self.lost = "a line with too many values was not read"
        return self._held.take()

    def count(self, run: bytes) -> int:
        """How many lines a run has."""
        return run.count(b"\n") + (not run.endswith(b"\n"))

    def split(self, run: bytes) -> list[bytes]:
        """Cut a run behind each line feed."""
        return run.splitlines(keepends=True) if b"\r" not in run else _lines(run)

    def parse(self, block: bytes) -> Frame | None:
        """The frame of a line; None if it is blank or too long."""
        line = block.strip()
        return Frame("", line) if line and len(block) <= LINE_BYTES_MAX else None


def _lines(run: bytes) -> list[bytes]:
    """Lines that end in LF alone: a CR is blank space to JSON, wherever it stands."""
    lines = [line + b"\n" for line in run.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
