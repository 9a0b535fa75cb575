"""Pure. Decoding + framing + dialect -> facts: the one meter, live and in replay.

Plan. Until generated content has passed, every frame is parsed as it comes: the first frames
carry id and model, and the time of the first token is taken there. From then on a run of frames
is looked through with byte searches for the dialect's marks; the frames in which one strikes are
parsed, the others never (DESIGN §10). Where chunks were cut makes no difference to what is read.
"""

from collections.abc import Mapping
from typing import Any

from addon.decoding import Decoder
from addon.dialects import json_door
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import see_error_body
from addon.dialects.facts import Facts
from addon.framing.choice import FRAMINGS, framing_of
from addon.framing.document import Document
from addon.framing.frame import Frame, Framing
from ledger.usage import NO_USAGE, Usage

_DONE = b"[DONE]"
"""OpenAI's end of a stream; others send it too, after their own (WIRE §1)."""


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
        status: int = 200,
        path_model: str | None = None,
        framing: str | None = None,
    ) -> None:
        self._dialect = dialect
        self._marks = (*dialect.marks, Mark(_DONE))
        self._is_error = status >= 400
        self._content_type = content_type
        decoder = Decoder(content_encoding)
        self._decoder = None if decoder.is_identity else decoder
        self._framing: Framing | None = FRAMINGS[framing]() if framing is not None else None
        self._begun = b""
        self._frames = 0
        self.facts = Facts(
            headers={name.lower(): value for name, value in (headers or {}).items()},
            provider=provider,
            path_model=path_model,
            closes_without_mark=dialect.closes_without_mark,
        )
        """What has been said so far."""

    def feed(self, data: bytes) -> None:
        """Bytes as upstream sent them, in any cut."""
        if self._decoder is None:
            self._frame(data)
            return
        for piece in self._decoder.decode(data):
            self._frame(piece)

    def end(self) -> None:
        """The body is over."""
        if self._framing is None:
            self._choose(is_over=True)
        if self._framing is not None:
            self._read_run(self._framing.end())

    @property
    def token_seen(self) -> bool:
        """Some generated content has passed."""
        return self.facts.token_seen

    @property
    def frames(self) -> int:
        """Frames so far; 1 for a plain document."""
        return self._frames

    @property
    def trouble(self) -> str | None:
        """Why some of the answer could not be read; None if all could."""
        reasons = (
            self._decoder.trouble if self._decoder is not None else None,
            self._framing.lost if self._framing is not None else None,
        )
        return "; ".join(reason for reason in reasons if reason) or None

    def usage(self) -> Usage:
        """The figures in the ledger's convention."""
        usage = self.facts.usage
        if usage is None:
            return NO_USAGE
        self.facts.unknown_keys.update(usage.keys() - self._dialect.known_keys)
        return self._dialect.usage_of(usage, self.facts)

    @property
    def usage_json(self) -> str | None:
        """The provider's usage object, verbatim."""
        usage: dict[str, Any] | None = self.facts.usage
        return json_door.dumps(usage) if usage is not None else None

    def estimated_output_tokens(self) -> int | None:
        """How many output tokens have passed, by their text; None if that cannot be told."""
        return None

    def _frame(self, data: bytes) -> None:
        if self._framing is None:
            self._begun += data
            self._choose(is_over=False)
            return
        self._read_run(self._framing.feed(data))

    def _choose(self, *, is_over: bool) -> None:
        framing = framing_of(self._content_type, self._begun, is_over=is_over)
        if framing is None:
            return
        self._framing = framing
        begun, self._begun = self._begun, b""
        self._read_run(framing.feed(begun))

    def _read_run(self, run: bytes) -> None:
        if not run:
            return
        framing = self._framing
        assert framing is not None
        self._frames += framing.count(run)
        blocks = framing.split(run)
        self.facts.is_document = isinstance(framing, Document) and len(blocks) == 1
        for block in blocks:
            frame = framing.parse(block)
            if frame is not None:
                self._read(frame)

    def _read(self, frame: Frame) -> None:
        facts = self.facts
        if frame.data.startswith(_DONE):
            facts.ended = True
            return
        body = json_door.loads(frame.data)
        if body is None:
            return
        if self._is_error:
            see_error_body(facts, body)
        self._dialect.read(facts, frame.event, body)
        if facts.is_document:
            facts.ended = facts.usage_final = True
