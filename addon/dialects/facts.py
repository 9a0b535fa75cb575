"""Pure. The facts that an answer has reported so far in one exchange.

One `Facts` belongs to one meter, and only that meter lets a dialect change it. A later figure
replaces an earlier one, because figures are cumulative; the first id stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ledger.model.usage import SERVICE_TIER, billing_value

TEXT_LENGTH_MAX = 256
"""Characters kept of an id, a model, or another name on the wire."""
BILLING_HEADERS = {
    # https://ai.google.dev/gemini-api/docs/priority-inference
    "x-gemini-service-tier": SERVICE_TIER,
    # https://docs.aws.amazon.com/bedrock/latest/userguide/service-tiers-inference.html
    "x-amzn-bedrock-service-tier": SERVICE_TIER,
    # https://docs.aws.amazon.com/bedrock/latest/userguide/latency-optimized-inference.html
    "x-amzn-bedrock-performanceconfig-latency": "latency_mode",
}
"""Header of an answer or a request -> what prices depend on."""
_TIERS = (SERVICE_TIER, "serviceTier", "trafficType")
"""The spellings of a service tier; Vertex calls it traffic: ON_DEMAND, ON_DEMAND_FLEX."""
_TRAFFIC = {1: "ON_DEMAND", 2: "PROVISIONED_THROUGHPUT"}
"""Where the client asks for enums as numbers
(https://cloud.google.com/vertex-ai/docs/reference/rest/v1/GenerateContentResponse#TrafficType)."""
_WRAPPERS = ("response", "message", "interaction")
"""Keys of the object that an event carries."""


class Ending(StrEnum):
    """The weakest sign that a stream of a dialect is whole."""

    MARK = "mark"
    """An end mark alone: `message_stop`, `response.completed`, `[DONE]`."""
    FINISH = "finish"
    """A finish reason and the end of the body, without an end mark."""
    CLOSE = "close"
    """The end of the body between two frames, with neither an end mark nor a finish reason."""


@dataclass(slots=True)
class Facts:
    """Filled by a dialect's `read`, frame by frame. None: not reported yet."""

    response_id: str | None = None
    id_unstable: bool = False
    response_model: str | None = None
    created: int | None = None
    """The provider's own creation time, seconds; part of a response's identity."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """The provider's usage object so far, verbatim."""
    usage_final: bool = False
    """The usage is the billed one, not a running figure."""
    ended: bool = False
    """The dialect's own end mark has passed: a client has everything that it needs."""
    finish_is_no_end: bool = False
    """What looks like an end mark may stand before further frames (Gemini with server-side tools),
    so a connection that breaks behind it has cut the stream."""
    ending: Ending = Ending.FINISH
    """The weakest sign that this stream is whole."""
    is_cut_inside: bool = False
    """The body ended inside a frame, so the answer is incomplete."""
    token_seen: bool = False
    """Some generated content has passed."""
    error_type: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    failed: bool = False
    """The answer contained an error."""
    service_tier: str | None = None
    unknown_keys: set[str] = field(default_factory=set)
    """Keys of the usage object without a rule; kept verbatim, and reported."""
    beside: dict[str, str] = field(default_factory=dict)
    """Billing fields of the request, or of the answer beside its usage object."""
    units: dict[str, int] = field(default_factory=dict)
    """Billable units outside the usage object (server tools that an answer ran)."""
    tools_are_billed: bool = False
    """A server tool ran whose results are billed as input (Gemini: all but Google Search)."""
    executed: dict[int, str] = field(default_factory=dict)
    """Server tools that a stream repeats: index -> unit (Groq)."""
    further: list[tuple[str, str | None, dict[str, Any]]] = field(default_factory=list)
    """Kind, model and usage object of what another model did for the answer (an image tool)."""
    cache_diagnosis: str | None = None
    """Why the prompt cache was not used to the end of what it held, in the provider's word."""
    rate_limits: dict[str, Any] | None = None
    """The event of the stream that states quotas (Codex)."""
    cost: object = None
    """The cost in USD beside the usage object (Venice)."""

    # Facts of the exchange, known before the first byte.
    headers: Mapping[str, str] = field(default_factory=dict)
    """Response headers that a dialect reads, by lower-case name (Bedrock's token counts)."""
    provider: str = ""
    """The provider, for the few rules that differ between users of one wire format."""
    path_model: str | None = None
    """The model in the request's path; Bedrock names it only there."""
    is_document: bool = False
    """The answer is one plain body, so its facts are complete."""

    def record_id(self, response_id: object) -> None:
        """Keep the first non-empty id; a different one marks it unstable."""
        if not isinstance(response_id, str) or not response_id:
            return
        if self.response_id is None:
            self.response_id = clean(response_id, 256)
        elif response_id != self.response_id and clean(response_id, 256) != self.response_id:
            self.id_unstable = True

    def record_model(self, model: object) -> None:
        """Keep the last non-empty model: an Anthropic fallback changes the model midway."""
        if isinstance(model, str) and model and model != self.response_model:
            self.response_model = clean(model, 256)

    def record_created(self, created: object) -> None:
        """Keep the first creation time; some write it as a float, some as text (Writer)."""
        if self.created is not None or isinstance(created, bool):
            return
        if isinstance(created, str) and created.isascii() and created.isdigit():
            created = int(created[:20])
        if isinstance(created, int | float) and 0 < created < 2**53:
            self.created = int(created)

    def record_finish(self, reason: object) -> None:
        """Keep the last non-empty finish reason, as the provider spells it (Gemini: also a number).

        Empty text is filler on the chunks of a stream, but a real value in a plain document
        (Snowflake).
        """
        if isinstance(reason, int) and not isinstance(reason, bool):
            reason = str(reason)
        if isinstance(reason, str) and reason:
            self.finish_reason = clean(reason, 64)
        elif reason == "" and self.is_document and self.finish_reason is None:
            self.finish_reason = ""

    def is_whole(self) -> bool:
        """Whether a stream is whole, if its body ended in order: its end mark has passed or is not
        needed.

        A stream that ends inside a frame is not whole unless its end mark has passed: the cut frame
        may have the usage.
        """
        if self.ended:
            return True
        if self.is_cut_inside or self.ending is Ending.MARK:
            return False
        return self.finish_reason is not None or self.ending is Ending.CLOSE

    def record_tier(self, tier: object) -> None:
        """The service tier that served the request. What is no text is no tier that a price list
        names, so that the price is known in part only."""
        kind = tier.get("type") if isinstance(tier, dict) else None
        self.service_tier = text_of(billing_value(kind or tier), 64) or self.service_tier

    def record_tiers(self, body: dict[str, Any]) -> None:
        """The service tier of a frame, a document, or the object that an event carries."""
        self._record_tier_in(body)
        for key in _WRAPPERS:
            inner = body.get(key)
            if type(inner) is dict:
                self._record_tier_in(inner)

    def _record_tier_in(self, body: Mapping[str, Any]) -> None:
        for key in _TIERS:
            if tier := body.get(key):
                is_number = key == "trafficType" and type(tier) is int
                self.record_tier(_TRAFFIC.get(tier, tier) if is_number else tier)
                return

    def record_diagnosis(self, word: object) -> None:
        """What the provider says that broke the prompt cache."""
        self.cache_diagnosis = text_of(word, 64) or self.cache_diagnosis

    def record_usage(self, usage: object, *, final: bool) -> None:
        """Keep a usage object in place of the previous one; `usage: null` is ignored."""
        if isinstance(usage, dict):
            self.usage = usage
            self.usage_final = final
            self._record_tier_in(usage)


def text_of(value: object, length_max: int = TEXT_LENGTH_MAX) -> str | None:
    """Clean text of the wire; None for empty text and other types."""
    return clean(value, length_max) if isinstance(value, str) and value else None


def clean(text: str, length_max: int) -> str:
    """Wire text that both databases and a terminal can hold: bounded, no NUL, no lone surrogate."""
    if len(text) <= length_max and text.isascii() and "\x00" not in text:
        return text
    text = text[:length_max].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")


_MESSAGE_LENGTH_MAX = 1000
"""Characters kept of an error message, which upstream wrote: enough to explain the error."""


def record_error(facts: Facts, error: object, beside: dict[str, Any] | None = None) -> None:
    """Read an error object or text; `beside` is the object around it, which may have details.

    `{"error": {type, code, message}}` (OpenAI and most), with a number for the code (Gemini, which
    writes `status` for type), with text for the code (Chuizi AI), `{"error": "text"}` beside `code`
    (xAI, Ollama), `{"message", "error_type"}` (Cohere), `{"message"}` with the type in a header
    (Bedrock), `{"object": "error", "message", "type"}` (Mistral), `{"detail": …}` (FastAPI),
    `{"errors": [{message, code}]}` (Cloudflare).
    """
    facts.failed = True
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, str):
        facts.error_message = clean(error, _MESSAGE_LENGTH_MAX)
        error = beside if beside is not None else {}
    if not isinstance(error, dict):
        return
    kind = _first_text(error, "type", "status", "error_type", "__type")
    # `"type": "error"` has no information (Anthropic's and Responses' envelopes).
    if kind is not None and kind != "error":
        facts.error_type = clean(kind, 128)
    code = error.get("code")
    if isinstance(code, str | int | float) and not isinstance(code, bool) and code != "":
        facts.error_code = clean(str(code), 128)
    message = _first_text(error, "message", "Message", "detail")
    if message is not None:
        facts.error_message = clean(message, _MESSAGE_LENGTH_MAX)


def record_error_in(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read the error of a frame or a document with status 200, if it has one."""
    if body.get("error") or event == "error":
        record_error(facts, body.get("error") or body, body)


def record_error_body(facts: Facts, body: dict[str, Any]) -> None:
    """Read the body of an HTTP answer with an error status."""
    inner = body.get("error") or body.get("errors") or body
    record_error(facts, inner, body)
    kind = facts.headers.get("x-amzn-errortype")
    if kind and facts.error_type is None:
        # `ThrottlingException:http://internal.amazon.com/…`
        facts.error_type = clean(kind.partition(":")[0], 128)


def record_error_text(facts: Facts, body: bytes) -> None:
    """Read an error that is not JSON: keep a line of text, ignore a page of HTML."""
    facts.failed = True
    text = body.decode("utf-8", "replace").strip()
    if text and not text.startswith("<"):
        facts.error_message = clean(text, _MESSAGE_LENGTH_MAX)


def _first_text(error: dict[str, Any], *keys: str) -> str | None:
    for key in keys:
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
    return None
