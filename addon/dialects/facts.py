"""Pure. What an answer has said so far in one exchange.

One `Facts` belongs to one meter, which alone lets a dialect change it. What is reported again
replaces what was, because figures are cumulative; ids stay as first seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Ending(StrEnum):
    """The weakest sign by which a stream of a dialect may be known to be whole."""

    MARK = "mark"
    """An end mark alone: `message_stop`, `response.completed`, `[DONE]`."""
    FINISH = "finish"
    """A finish reason and the end of the body, where no end mark comes."""
    CLOSE = "close"
    """The end of the body between two frames, with neither an end mark nor a finish reason."""


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
    ending: Ending = Ending.FINISH
    """The weakest sign by which this stream may be known to be whole."""
    is_cut_inside: bool = False
    """The body ended inside a frame, so that something was still to come."""
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
    units: dict[str, int] = field(default_factory=dict)
    """Billable units that stand outside the usage object (server tools an answer ran)."""
    cost: object = None
    """What stands beside the usage object as its cost in USD (Venice)."""

    # What the exchange is, told before the first byte.
    headers: Mapping[str, str] = field(default_factory=dict)
    """Response headers a dialect reads, by lower-case name (Bedrock's token counts)."""
    provider: str = ""
    """Who answers, for the few rules that differ between users of one wire format."""
    path_model: str | None = None
    """The model that the request's path named; the only one Bedrock names."""
    is_document: bool = False
    """The answer is one plain body, so what it says is all there is."""

    def see_id(self, response_id: object) -> None:
        """The first non-empty id stays; another one marks it unstable."""
        if not isinstance(response_id, str) or not response_id:
            return
        if self.response_id is None:
            self.response_id = clean(response_id, 256)
        elif response_id != self.response_id and clean(response_id, 256) != self.response_id:
            self.id_unstable = True

    def see_model(self, model: object) -> None:
        """The last non-empty model: an Anthropic fallback answers with another than it began."""
        if isinstance(model, str) and model and model != self.response_model:
            self.response_model = clean(model, 256)

    def see_created(self, created: object) -> None:
        """The first creation time; some write it as a float, some as text (Writer)."""
        if self.created is not None or isinstance(created, bool):
            return
        if isinstance(created, str) and created.isascii() and created.isdigit():
            created = int(created[:20])
        if isinstance(created, int | float) and 0 < created < 2**53:
            self.created = int(created)

    def see_finish(self, reason: object) -> None:
        """The last non-empty finish reason, as the provider spells it; Gemini's may be a number.

        Empty text is filler on the chunks of a stream, and what a plain document says (Snowflake).
        """
        if isinstance(reason, int) and not isinstance(reason, bool):
            reason = str(reason)
        if isinstance(reason, str) and reason:
            self.finish_reason = clean(reason, 64)
        elif reason == "" and self.is_document and self.finish_reason is None:
            self.finish_reason = ""

    @property
    def closes_without_mark(self) -> bool:
        """Whether the end of the body alone may be the end of the answer."""
        return self.ending is Ending.CLOSE

    def is_whole(self) -> bool:
        """Whether a stream whose body ended in order said, or needed to say, its own end.

        A stream that ends inside a frame is not whole unless its end mark has passed: what was cut
        may be the usage.
        """
        if self.ended:
            return True
        if self.is_cut_inside or self.ending is Ending.MARK:
            return False
        return self.finish_reason is not None or self.ending is Ending.CLOSE

    def see_tier(self, tier: object) -> None:
        """The service tier that served the request."""
        if isinstance(tier, str) and tier:
            self.service_tier = clean(tier, 64)

    def see_usage(self, usage: object, *, final: bool) -> None:
        """A usage object that replaces the one before; `usage: null` is none."""
        if isinstance(usage, dict):
            self.usage = usage
            self.usage_final = final


def clean(text: str, length_max: int) -> str:
    """Wire text that both databases and a terminal can hold: bounded, no NUL, no lone surrogate."""
    text = text[:length_max].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")
