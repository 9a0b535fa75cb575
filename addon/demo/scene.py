"""Pure. The request, the answer and the expected row of one scene."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRow:
    """The expected row of one request; the names are columns of view `requests`."""

    response_id: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    usage_source: str = "reported"
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    outcome: str = "complete"
    finish_reason: str | None = None
    error_type: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    usage_asked: bool | None = None
    usage_injected: bool = False
    usage_stripped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneAnswer:
    """The upstream's answer. Every piece is sent as one HTTP chunk."""

    pieces: tuple[str, ...]
    pieces_when_asked: tuple[str, ...] | None = None
    """The same for a request with `stream_options.include_usage`; None: it makes no difference."""
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    is_closed_after: bool = False
    """The close of the connection ends the body."""
    is_cut: bool = False
    """The connection breaks before the body's end."""
    waits_for_leave: bool = False
    """The upstream sends nothing more until the client has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One request, its answer, and the expected row."""

    name: str
    provider: str
    path: str
    sdk: str
    """`openai`, `anthropic`, `claude-plan` or `google-genai`: whose headers the request carries."""
    body: Mapping[str, Any]
    answer: SceneAnswer
    figures: ExpectedRow

    @property
    def title(self) -> str:
        """Its unique name."""
        return f"{self.provider}: {self.name}"

    @property
    def client_body(self) -> bytes:
        """The body that the client must receive: upstream's answer to the client's original
        request."""
        options = self.body.get("stream_options") or {}
        return "".join(
            pieces_for(self.answer, is_asked=options.get("include_usage") is True)
        ).encode()


def pieces_for(answer: SceneAnswer, *, is_asked: bool) -> tuple[str, ...]:
    """The pieces that upstream sends to a request with or without usage asked."""
    if is_asked and answer.pieces_when_asked is not None:
        return answer.pieces_when_asked
    return answer.pieces


def compact(value: object) -> str:
    """JSON without blanks, as most gateways write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def event(value: object, name: str = "") -> str:
    """One server-sent event."""
    return (f"event: {name}\n" if name else "") + f"data: {compact(value)}\n\n"


def document(value: object, *, status: int = 200) -> SceneAnswer:
    """A plain JSON answer."""
    return SceneAnswer(pieces=(compact(value),), status=status, content_type="application/json")
