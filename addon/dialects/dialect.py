"""Pure. What a dialect is: data and small functions.

Adding a provider's wire format is one file that builds a `Dialect` and one row in `routes`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from addon.dialects.facts import Ending, Facts
from addon.dialects.shapes import Shape
from ledger.model.usage import Usage


@dataclass(frozen=True, slots=True)
class Mark:
    """A byte string that makes a run of frames worth parsing, and its harmless forms.

    A run strikes when the mark occurs more often than its harmless forms together:
    `Mark(b'"usage"', (b'"usage":null', b'"usage": null'))`. A form that is missing here costs a
    parse, never a figure.
    """

    needle: bytes
    harmless: tuple[bytes, ...] = ()
    latest: bool = False
    """What it marks is a running figure that each frame says whole, so that of several such
    frames seen together the last is enough (Gemini's `usageMetadata`)."""

    def count(self, run: bytes) -> int:
        """How often it stands in a run, its harmless forms left out."""
        return run.count(self.needle) - sum(run.count(form) for form in self.harmless)

    def strikes(self, run: bytes) -> bool:
        """Whether a run of frames holds it in any but a harmless form."""
        left = run.count(self.needle)
        for form in self.harmless:
            if left <= 0:
                break
            left -= run.count(form)
        return left > 0

    def places(self, run: bytes) -> list[int]:
        """Where it stands in a run in any but a harmless form, the last place first. As a rule
        these are near the end, and the harmless ones before them are not looked at."""
        found: list[int] = []
        left, at = self.count(run), len(run)
        while left > len(found) and at > 0:
            at = run.rfind(self.needle, 0, at)
            if not run.startswith(self.harmless, at):
                found.append(at)
        return found


class Asking(StrEnum):
    """What a dialect offers to a client that wants usage in a stream."""

    NEVER = "never"
    """Usage comes by itself, or there is no way to ask."""
    STREAM_OPTIONS = "stream_options"
    """OpenAI's `stream_options.include_usage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One wire format.

    `read` is called for every frame that a mark strikes, for all of the first frames until some
    content has passed, and for a plain document with an empty event name. `usage_of` turns the
    usage object that `read` gathered into the ledger's convention; it is called at the end.
    Neither may raise on any JSON; what they are given came through `framing.json_values`.
    """

    name: str
    """`openai.chat`, `anthropic.messages` …"""
    operation: str
    """OpenTelemetry `gen_ai.operation.name`: chat, text_completion, embeddings,
    generate_content …"""
    read: Callable[[Facts, str, dict[str, Any]], None]
    """Facts so far, the frame's event name, its JSON object."""
    usage_of: Callable[[Mapping[str, Any], Facts], Usage]
    known_keys: frozenset[str] = frozenset()
    """Keys of the usage object that are read here, or known to mean nothing to a ledger: `a`,
    `a.b` for a key of an object in it, `a.*` for all of them."""
    marks: tuple[Mark, ...]
    text_marks: tuple[bytes, ...] = ()
    """JSON keys, quotes included, whose string values are generated text: `b'"content"'`."""
    call_marks: tuple[Mark, ...] = ()
    """What stands once for each tool call of the model."""
    id_in_frames: bool = False
    """Every frame of a stream repeats the response's id."""
    asking: Asking = Asking.NEVER
    model_header: str = ""
    """The request header that names the model, where the body does not; lower case."""
    streams_unless_told: bool = False
    """A request that says nothing about streaming gets a stream (Ollama)."""
    ending: Ending = Ending.FINISH
    """What a whole stream ends with at least."""
    request_shapes: tuple[Shape, ...] = ()
    """A request body that fits one of these is an LLM request, on whatever host."""
    answer_shapes: tuple[Shape, ...] = ()
    """A frame or document that fits one of these is an answer of this dialect."""
