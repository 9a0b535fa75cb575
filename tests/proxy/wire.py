"""What one upstream speaks, and what a client may say about usage."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One upstream's way to answer."""

    name: str
    target: str
    body: Mapping[str, Any]
    """The request, without `stream_options`."""
    frames: tuple[bytes, ...]
    frames_asked: tuple[bytes, ...] | None = None
    """What comes if usage is asked for; None: there is no asking, or it makes no difference."""
    content_type: str = "text/event-stream"
    is_opt_in: bool = False
    """Usage comes only when asked."""
    ends_by_closing: bool = False
    """A close in mid-stream cannot be told from an end."""
    can_ask: bool = False
    """The request knows `stream_options`."""
    figures: Mapping[str, Any]
    """Columns of the row of a complete exchange."""
    cut_after: int
    """How many frames pass before something goes wrong in mid-stream."""
    figures_cut: Mapping[str, Any]
    """Columns of the row of an exchange that is cut there."""
    error_frame: bytes
    error_figures: Mapping[str, Any]
    error_body: bytes
    """What comes with an HTTP error."""
    http_error_figures: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, *, asked: bool | None) -> bytes:
        """The request body of a client that asks for usage, refuses it, or says nothing."""
        options = {} if asked is None else {"stream_options": {"include_usage": asked}}
        return json.dumps({**self.body, **options}).encode()

    def answer(self, *, asked: bool) -> tuple[bytes, ...]:
        """Upstream's frames for a request that asks for usage, or does not."""
        return self.frames_asked if asked and self.frames_asked is not None else self.frames


def asks(body: bytes) -> bool:
    """Whether a request asks for usage, as an upstream reads it."""
    options = json.loads(body).get("stream_options") or {}
    return options.get("include_usage") is True


class Ask(StrEnum):
    """What the client says about usage."""

    ASKED = "asked"
    NOT_ASKED = "not asked"
    REFUSED = "include_usage:false"


ASKED = {Ask.ASKED: True, Ask.NOT_ASKED: None, Ask.REFUSED: False}
"""What `Wire.request` is told of them."""
