"""Pure. What a dialect is: data and small functions.

Adding a provider's wire format is one file that builds a `Dialect` and one row in `routes`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from addon.dialects.counts import unknown_counts
from addon.dialects.errors import openai_refused_event, plain_refusal
from addon.dialects.facts import Ending, Facts
from addon.dialects.shapes import Shape
from addon.framing.grpc import Message
from ledger.model.usage import NO_USAGE, Usage, count_of, sum_of

NO_ROUTE = "no route"
"""The remark on usage whose path names no format: it is read by its keys alone."""

UNEXPLAINED = ", the sum of the parts: nothing explains this total"
"""Ends the remark on a total that no rule makes of the parts: the reading is partial."""
_TOTALS = ("total_tokens", "totalTokens", "totalTokenCount")


@dataclass(frozen=True, slots=True)
class Mark:
    """A byte string that makes a run of frames worth parsing, and its harmless forms.

    A mark matches a run if it occurs more often than its harmless forms together:
    `Mark(b'"usage"', (b'"usage":null', b'"usage": null'))`. A missing harmless form costs a parse,
    but never loses a figure.
    """

    needle: bytes
    harmless: tuple[bytes, ...] = ()
    latest: bool = False
    """Each frame repeats the whole running figure, so that the last of several such frames is
    enough (Gemini's `usageMetadata`)."""

    def count(self, run: bytes) -> int:
        """How often it occurs in a run, without its harmless forms; 0 or less: it does not."""
        left = run.count(self.needle)
        for form in self.harmless:
            if left <= 0:
                break
            left -= run.count(form)
        return left

    def matches(self, run: bytes) -> bool:
        """Whether a run of frames holds it in a form that is not harmless."""
        return self.count(run) > 0

    def places(self, run: bytes, count: int) -> list[int]:
        """The offsets of its `count` occurrences in a run, without the harmless forms, the last one
        first. Usually these are near the end, so that a caller can skip the harmless forms before
        them."""
        found: list[int] = []
        at = len(run)
        while count > len(found) and at > 0:
            at = run.rfind(self.needle, 0, at)
            if not run.startswith(self.harmless, at):
                found.append(at)
        return found


class Asking(StrEnum):
    """What a dialect offers to a client that wants usage in a stream."""

    NEVER = "never"
    """Streams have usage without a request option, or there is no such option."""
    STREAM_OPTIONS = "stream_options"
    """OpenAI's `stream_options.include_usage`."""


class SessionProtocol(StrEnum):
    """How a WebSocket session says which messages are one response."""

    RESPONSES = "responses"
    """Each response is asked for and has an id."""
    TURNS = "turns"
    """The server answers in turns, one at a time."""
    CONNECTION = "connection"
    """Not known: the whole connection is one exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLimits:
    """Where a request says what bounds its cost: paths of members, which are found in any
    spelling."""

    output: tuple[str, ...] = ("max_completion_tokens", "max_tokens")
    """The most tokens of one answer, reasoning included; of several the largest counts."""
    answers: tuple[str, ...] = ("n", "best_of")
    """How many answers are asked for."""
    inputs: str = ""
    """A list of which each member is a request of its own."""
    kept: tuple[str, ...] = ("previous_response_id", "conversation")
    """Refer to input that the provider keeps."""
    tool_uses: tuple[str, ...] = ()
    """The most uses of the provider's own tools, all together."""
    clients_tools: tuple[str, ...] = ("function", "custom")
    """Beginnings of the types of tools that the client runs; any other is the provider's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One wire format.

    The meter calls `read` for every frame that a mark matches, for all frames until some content
    has passed, and for a plain document with an empty event name. At the end it calls `usage_of`,
    which converts the usage object from `read` to the ledger's convention.
    Neither may raise on any JSON; `framing.json_values` has parsed their input.
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
    """Keys of the usage object that the dialect reads, or that a ledger does not need: `a`, `a.b`
    for a key of the object a, `a.*` for all of its keys."""
    marks: tuple[Mark, ...]
    text_marks: tuple[bytes, ...] = ()
    """JSON keys, quotes included, whose string values are generated text: `b'"content"'`."""
    call_marks: tuple[Mark, ...] = ()
    """Byte string that occurs once for each tool call of the model."""
    hidden_marks: tuple[Mark, ...] = ()
    """Byte strings of generated content whose tokens no text shows: reasoning that is encrypted or
    summed up, pictures, sound."""
    count_headers: tuple[str, ...] = ()
    """Headers with the counts of a document, by lower-case name: they have come where it is cut."""
    id_in_frames: bool = False
    """Every frame of a stream repeats the response's id."""
    asking: Asking = Asking.NEVER
    model_header: str = ""
    """The request header that names the model, where the body does not; lower case."""
    streams_unless_told: bool = False
    """A request without an option for streaming gets a stream (Ollama)."""
    ending: Ending = Ending.FINISH
    """The weakest end of a whole stream."""
    session: SessionProtocol = SessionProtocol.RESPONSES
    """Of a WebSocket."""
    billed_alone: frozenset[str] = frozenset()
    """Types of a session's messages that are billed beside its responses."""
    refusal: Callable[[str, str], dict[str, Any]] = plain_refusal
    """The body of an answer of ours that refuses a request: its message, the name of the cap."""
    refused_event: Callable[[str, str], dict[str, Any]] = openai_refused_event
    """The same as the message of a WebSocket session."""
    cost_limits: CostLimits | None = None
    """None: nothing in a request bounds its cost."""
    quota_event: bytes = b""
    """Type of the message that states quotas; empty: there is none."""
    request_shapes: tuple[Shape, ...] = ()
    """A request body that fits one of these is an LLM request, on whatever host."""
    answer_shapes: tuple[Shape, ...] = ()
    """A frame or document that fits one of these is an answer of this dialect."""
    message: Message | None = None
    """The fields of a message over gRPC; None: none is known."""
    request_message: Message | None = None
    """All fields of a request over gRPC that leave its cost bounded; None: nothing bounds it."""
    family: Callable[[Mapping[str, Any]], "Dialect | None"] | None = None
    """Where no route names the format: the dialect whose usage object this is; None: of none."""

    def reader(self, usage: Mapping[str, Any]) -> "Dialect | None":
        """The dialect that reads a usage object; None: its keys are of no known family."""
        return self if self.family is None else self.family(usage)

    def figures(self, facts: Facts) -> Usage:
        """The figures of an answer. A count under a key without a rule becomes a unit of its own,
        because it may be billed."""
        found = NO_USAGE
        reader = self.reader(facts.usage or {})
        if facts.usage is not None and reader is not None:
            found = reader.usage_of(facts.usage, facts)
            unknown = unknown_counts(facts.usage, reader.known_keys)
            if unknown:
                found = replace(found, tool_units={**unknown, **found.tool_units})
            found = explained(found, facts.usage)
        if facts.usage is not None and self.family is not None:
            found = replace(found, remarks=(*found.remarks, NO_ROUTE))
        if facts.rare.remarks:
            found = replace(found, remarks=(*found.remarks, *facts.rare.remarks))
        return found


def explained(found: Usage, stated: Mapping[str, Any]) -> Usage:
    """The figures, with a remark where nothing explains the total beside them. What it has more
    than they have becomes a unit without a price, so that the cost is a lower bound.

    A provider may leave out of its total what is cached or thought, and have units in it.
    """
    totals = [count for name in _TOTALS if name in stated and (count := count_of(stated[name]))]
    counted = sum_of(found.input_tokens, found.output_tokens)
    if not totals or counted is None or found.input_tokens is None or found.further:
        return found
    total = totals[0]
    cached = found.cache_read_tokens or 0, found.cache_write_tokens or 0
    left_out = {counted, *(counted - each for each in (*cached, sum(cached)))}
    if stated.get("inputTokens") == found.input_tokens:
        left_out.add(counted + sum(cached))  # streams of OpenAI's models at Bedrock count it twice
    left_out |= {each - (found.reasoning_tokens or 0) for each in left_out}
    more = total - counted
    if total in left_out or more in found.tool_units.values():
        return found
    remark = f"{total} is not {counted}{UNEXPLAINED}"
    units = {"unexplained_tokens": more} if more > 0 else {}
    return replace(
        found,
        remarks=(*found.remarks, remark),
        tool_units={**found.tool_units, **units},
    )
