"""Pure. What the wire has said so far in one exchange.

One `Facts` belongs to one meter, which alone lets a dialect change it. What is reported again
replaces what was (figures are cumulative, FIELD 7-11); ids stay as first seen.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Facts:
    """Filled by a dialect's `read`, one frame after the other. None: not said yet."""

    response_id: str | None = None
    id_unstable: bool = False
    response_model: str | None = None
    created: int | None = None
    """The provider's own creation time, seconds; part of what makes a response the same one."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """The provider's usage object so far, verbatim."""
    usage_final: bool = False
    """The usage is what the provider bills, not a running figure."""
    ended: bool = False
    """The dialect's own end mark has been seen: everything a client needs has passed."""
    closes_without_mark: bool = False
    """This wire may end with the connection alone, with neither end mark nor finish reason."""
    token_seen: bool = False
    """Some generated content has passed."""
    error_type: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    failed: bool = False
    """An error stood in the answer."""
    service_tier: str | None = None
    unknown_keys: set[str] = field(default_factory=set)
    """Keys of the usage object that no rule here knows; kept verbatim, and worth a word."""
    headers: dict[str, str] = field(default_factory=dict)
    """Response headers a dialect reads, by lower-case name (Bedrock's token counts)."""
    provider: str = ""
    """Who answers, for the few rules that differ between users of one wire format."""
    beside: dict[str, Any] = field(default_factory=dict)
    """What stands beside the usage object and matters to it (OpenRouter cost, tool calls seen)."""

    def see_id(self, response_id: object) -> None:
        """The first non-empty id stays; another one marks it unstable (DESIGN §5)."""
        if not isinstance(response_id, str) or not response_id:
            return
        cleaned = clean(response_id, 256)
        if self.response_id is None:
            self.response_id = cleaned
        elif self.response_id != cleaned:
            self.id_unstable = True

    def see_model(self, model: object) -> None:
        """The last non-empty model: an Anthropic fallback answers with another than it began."""
        if isinstance(model, str) and model:
            self.response_model = clean(model, 256)

    def see_finish(self, reason: object) -> None:
        """The last non-empty finish reason, as the provider spells it."""
        if isinstance(reason, str) and reason:
            self.finish_reason = clean(reason, 64)

    def see_error(self, error: object) -> None:
        """An error object in any of the spellings in use; bounded, because upstream wrote it.

        `{type, code, message}`, `{code: "504"}`, `{status, code: 429}` (Gemini), a bare string.
        """
        self.failed = True
        if isinstance(error, str):
            self.error_message = clean(error, 1000)
            return
        if not isinstance(error, dict):
            return
        kind = error.get("type") or error.get("status") or error.get("__type")
        if isinstance(kind, str):
            self.error_type = clean(kind, 128)
        code = error.get("code")
        if isinstance(code, str | int | float) and not isinstance(code, bool):
            self.error_code = clean(str(code), 128)
        message = error.get("message") or error.get("Message")
        if isinstance(message, str):
            self.error_message = clean(message, 1000)


def clean(text: str, length_max: int) -> str:
    """Wire text that both databases and a terminal can hold: bounded, no NUL, no lone surrogate."""
    text = text[:length_max].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")
