"""Pure. One JSON value a line: Ollama, Cohere v1."""

from addon.framing.frame import Frame

LINE_BYTES_MAX = 16 * 1024 * 1024
"""As for an SSE event: far beyond any line seen; a longer one is skipped, not the ones after."""


class NDJSON:
    """Bytes of a line-delimited body -> lines."""

    __slots__ = ("_held", "_held_bytes", "lost")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.lost: str | None = None

    def feed(self, data: bytes) -> bytes:
        cut = data.rfind(b"\n") + 1
        if not cut:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes <= LINE_BYTES_MAX:
                return b""
            self.lost = f"a line beyond {LINE_BYTES_MAX} bytes was not read"
            return self.end()
        run = b"".join([*self._held, data[:cut]])
        self._held = [data[cut:]] if cut < len(data) else []
        self._held_bytes = len(data) - cut
        return run

    def end(self) -> bytes:
        rest = self.held
        self._held = []
        self._held_bytes = 0
        return rest

    @property
    def held(self) -> bytes:
        return b"".join(self._held)

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def count(self, run: bytes) -> int:
        return run.count(b"\n") + (not run.endswith(b"\n"))

    def split(self, run: bytes) -> list[bytes]:
        return run.splitlines(keepends=True) if b"\r" not in run else _lines(run)

    def parse(self, block: bytes) -> Frame | None:
        line = block.strip()
        return Frame("", line) if line and len(block) <= LINE_BYTES_MAX else None


def _lines(run: bytes) -> list[bytes]:
    """Lines that end in LF alone: a CR is blank space to JSON, wherever it stands."""
    lines = [line + b"\n" for line in run.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
