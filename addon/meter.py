"""Pure. Decoding + framing + dialect -> facts: the one meter, live and in replay.

Plan. Until generated content has passed, every frame is parsed as it comes: the first frames
carry id and model, and the time of the first token is taken there. From then on chunks are only
collected, and looked through a batch at a time with byte searches for the dialect's marks; the
frames of a run in which a mark strikes are parsed, the others never (DESIGN §10). Where chunks
were cut makes no difference to what is read.
"""

from collections.abc import Mapping
from typing import Any

from addon.decoding import Decoder
from addon.dialects import json_door
from addon.dialects.dialect import Dialect
from addon.dialects.facts import Facts
from addon.framing.document import Document
from addon.framing.frame import Framing
from addon.framing.sse import SSE
from ledger.usage import NO_USAGE, Usage

BATCH_BYTES = 1900
"""Large enough to share the cost of the searches between frames, and under the 2 048 bytes from
which zlib and hashlib let go of the interpreter lock, which costs more than such a batch."""


class Meter:
    """Reads one answer. Never raises on any bytes."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        content_type: str,
        content_encoding: str = "",
        headers: Mapping[str, str] | None = None,
        provider: str = "",
        framing: str | None = None,
        status: int = 200,
    ) -> None:
        self._dialect = dialect
        self._status = status
        self._facts = Facts(headers=dict(headers or {}), provider=provider)
        self._decoder: Decoder | None = Decoder(content_encoding)
        if self._decoder.is_identity:
            self._decoder = None
        self._framing: Framing = _framing_of(framing or content_type)
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        self._frames = 0
        self.token_seen = False
        """Some generated content has passed; cheap to ask after every `feed`."""

    def feed(self, data: bytes) -> None:
        """Bytes as upstream sent them, in any cut."""
        self._batch.append(data)
        self._batch_bytes += len(data)
        if self._batch_bytes >= BATCH_BYTES or not self.token_seen:
            self._flush()

    def end(self) -> None:
        """The body is over."""
        self._flush()
        self._read_run(self._framing.end())

    @property
    def facts(self) -> Facts:
        """What has been said so far."""
        self._flush()
        return self._facts

    @property
    def frames(self) -> int:
        """Frames so far; 1 for a plain document."""
        self._flush()
        return self._frames

    @property
    def trouble(self) -> str | None:
        """Why some of the answer could not be read; None if all could."""
        reasons = [self._decoder.trouble if self._decoder else None, self._framing.lost]
        return "; ".join(reason for reason in reasons if reason) or None

    def usage(self) -> Usage:
        """The figures in the ledger's convention."""
        usage = self.facts.usage
        return self._dialect.usage_of(usage, self._facts) if usage is not None else NO_USAGE

    @property
    def usage_json(self) -> str | None:
        """The provider's usage object, verbatim."""
        usage: dict[str, Any] | None = self.facts.usage
        return json_door.dumps(usage) if usage is not None else None

    def estimated_output_tokens(self) -> int | None:
        """How many output tokens have passed, by their text; None if that cannot be told."""
        return None

    def _flush(self) -> None:
        if not self._batch:
            return
        data = self._batch[0] if len(self._batch) == 1 else b"".join(self._batch)
        self._batch.clear()
        self._batch_bytes = 0
        if self._decoder is None:
            self._read_run(self._framing.feed(data))
        else:
            for piece in self._decoder.decode(data):
                self._read_run(self._framing.feed(piece))

    def _read_run(self, run: bytes) -> None:
        if not run:
            return
        for block in self._framing.split(run):
            frame = self._framing.parse(block)
            if frame is not None:
                self._frames += 1
                self._dialect.read(self._facts, frame)
        self.token_seen = self._facts.token_seen


def _framing_of(name: str) -> Framing:
    return SSE() if "event-stream" in name or name == "sse" else Document()
