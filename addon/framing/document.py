"""Pure. One plain JSON body: a single frame, given out when the body ends; or none at all."""

from addon.framing.frame import Frame

DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""Ten large images in base64 are about 40 MB; nothing with a usage object is larger."""


class Document:
    """Bytes of a plain body -> one block."""

    __slots__ = ("_held", "_held_bytes", "lost")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.lost: str | None = None

    def feed(self, data: bytes) -> bytes:
        if self.lost is not None:
            return data
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes <= DOCUMENT_BYTES_MAX:
            return b""
        self.lost = f"a body beyond {DOCUMENT_BYTES_MAX} bytes was not read"
        return self.end()

    def end(self) -> bytes:
        body = self.held
        self._held = []
        self._held_bytes = 0
        return body

    @property
    def held(self) -> bytes:
        return b"".join(self._held)

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def count(self, run: bytes) -> int:
        return len(self.split(run)) if run.strip() else 0

    def split(self, run: bytes) -> list[bytes]:
        # Lines under a content type that says one document (Ollama behind a recorder): a line
        # that ends in a brace before one that begins with a brace is in no single JSON value.
        if b"}\n{" in run:
            return run.splitlines(keepends=True)
        return [run] if run else []

    def parse(self, block: bytes) -> Frame | None:
        return Frame("", block) if self.lost is None and block.strip() else None


class Opaque:
    """A body that holds no frames (speech, pictures): nothing of it is kept."""

    __slots__ = ("lost",)

    held = b""
    is_holding = False

    def __init__(self) -> None:
        self.lost: str | None = None

    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> bytes:
        return b""

    def count(self, _run: bytes) -> int:
        return 0

    def split(self, run: bytes) -> list[bytes]:
        return [run] if run else []

    def parse(self, _block: bytes) -> Frame | None:
        return None
