"""Pure. The facts that an answer has reported so far in one exchange, and the one check of a text
before it is recorded.

One `Facts` belongs to one meter, and only that meter lets a dialect change it. A later figure
replaces an earlier one, because figures are cumulative; the first id stays.

No free text of a provider is kept: it may repeat a prompt, an answer or a key. What is recorded is
a token (a finish reason, a tier, an error's code) or a name (an id, a model). Other text is left
out, and the row says so in its remarks; so is a value that contains the credential of the
request.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

import orjson
from msgspec import Struct, field

from ledger.model.columns import TOKEN
from ledger.model.usage import SERVICE_TIER, is_billing_field

DIGEST_PREFIX = "sha256:"
"""Of an id that is too long."""
TEXT_LENGTH_MAX = 256
"""Characters of what a client says of itself: a user, a session, a model."""
_TOKEN = re.compile(TOKEN)
_NAME = re.compile(r"[!#-&(-;=?-_a-z|~]{1,256}")
"""Visible ASCII without quotes and `<>{}`."""
_LONG_ID = re.compile(r"[!#-&(-;=?-_a-z|~]{257,}")
"""The same, longer: gateways put a route and a key of theirs into an id (LiteLLM's Responses)."""
_KEY = re.compile(rf"{TOKEN}|\w{{1,32}}\[\]\.[\w.]{{1,64}}", re.ASCII)
"""A token, or a path of ours through a list: `results[].tokenCount`."""
_TOKENS_ALONE = re.compile(rf'[^"]*+(?:"(?:{_KEY.pattern})"[^"]*+)*+', re.ASCII)
"""Compact JSON in which every key and every text is one."""
_USAGE_DEPTH_MAX = 8
"""Twice the depth at which figures are read."""
_REMARKS_MAX = 16
KEY_FORM = re.compile(
    r"\bsk[-_][\w*-]{6}|\b(?:AKIA|ASIA)[A-Z0-9]{12}"
    r"|\b(?:AIza|eyJ|ya29\.|glpat-|nvapi-|whsec_|tgp_|[prc]k[-_]|xai-|gsk_|hf_|pplx-|fw_|vck_|jina_|r8_"
    r"|gh[ops]_)[\w-]{0,40}[A-Za-z0-9]{16}",
    re.ASCII,
)
"""A key that has a beginning of its own. Models have some of them, too: `pplx-70b-chat`."""
FELL = "the running total of {} fell; the last one counts"
LEFT_OUT = "{} is not kept: free text, or the credential of the request"
"""The remark on a field."""
_FINISH_LEFT_OUT = LEFT_OUT.format("finish_reason")
UNREAD = "unread"
"""Of a billing field in a request: a value that is no token, which no price list names."""
UNREAD_MODE = "unread_mode"
"""A billing field of ours: names one whose value was no token, so that the price is not certain."""
BILLING_HEADERS = {
    # https://ai.google.dev/gemini-api/docs/priority-inference
    "x-gemini-service-tier": SERVICE_TIER,
    # https://docs.aws.amazon.com/bedrock/latest/userguide/service-tiers-inference.html
    "x-amzn-bedrock-service-tier": SERVICE_TIER,
    # https://docs.aws.amazon.com/bedrock/latest/userguide/latency-optimized-inference.html
    "x-amzn-bedrock-performanceconfig-latency": "latency_mode",
}
"""Header of an answer or a request -> what prices depend on."""
ANSWER_HEADERS = {
    **BILLING_HEADERS,
    # https://developers.cloudflare.com/ai-gateway/features/caching/: HIT or MISS
    "cf-aig-cache-status": "gateway_cache_mode",
    # https://docs.helicone.ai/features/advanced-usage/caching: the same
    "helicone-cache": "gateway_cache_mode",
    # https://portkey.ai/docs/api-reference/response-schema: SEMANTIC HIT, too
    "x-portkey-cache-status": "gateway_cache_mode",
}
"""Those of an answer: no request says that it costs nothing."""
CACHE_HEADERS = ("x-litellm-cache-key",)
"""Those that an answer from a gateway's cache alone has, whatever the value (LiteLLM 1.110.2:
`caching_handler.py` gives the key to cached results only)."""
_TIERS = (SERVICE_TIER, "serviceTier", "trafficType")
"""The spellings of a service tier; Vertex calls it traffic: ON_DEMAND, ON_DEMAND_FLEX."""
_NO_TIER = ("default", "auto")
"""What an answer says that does not know its tier."""
TIER_KEYS = frozenset((*_TIERS, "response", "message", "interaction"))
"""A body without any of these has no tier for `Facts.record_tiers`."""
_TRAFFIC = {1: "ON_DEMAND", 2: "PROVISIONED_THROUGHPUT"}
"""Where the client asks for enums as numbers
(https://cloud.google.com/vertex-ai/docs/reference/rest/v1/GenerateContentResponse#TrafficType)."""


def token_of(value: object) -> str | None:
    """The value if it is a token: letters, digits and `._:/-`, at most 64 characters."""
    return value if isinstance(value, str) and _TOKEN.fullmatch(value) else None


def name_of(value: object) -> str | None:
    """The value if it is a name as ids and models are: at most 256 visible ASCII characters without
    quotes and `<>{}`."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def id_of(value: object) -> str | None:
    """The value as an id: a name, or the digest of what would be one if it were shorter, so that an
    id stays one wherever it stands."""
    if isinstance(value, str) and _LONG_ID.fullmatch(value):
        return f"{DIGEST_PREFIX}{hashlib.sha256(value.encode()).hexdigest()}"
    return name_of(value)


class Ending(StrEnum):
    """The weakest sign that a stream of a dialect is whole."""

    MARK = "mark"
    """An end mark alone: `message_stop`, `response.completed`, `[DONE]`."""
    FINISH = "finish"
    """A finish reason and the end of the body, without an end mark."""
    CLOSE = "close"
    """The end of the body between two frames, with neither an end mark nor a finish reason."""
    UNSURE = "unsure"
    """As `FINISH`. But what looks like an end mark may stand before further frames (Gemini with
    server-side tools), so a connection that breaks behind it has cut the stream."""


class Fingerprint(Enum):
    """Which chunk of a stream has `system_fingerprint`."""

    UNKNOWN = "unknown"
    NOT_FIRST = "not first"
    """The chunks so far have none."""
    FIRST = "first"
    """All of them, as at OpenAI."""
    LAST = "last"
    """The chunk with the finish reason or with usage alone. vLLM has it in the last chunk, so that
    asking for usage moves it from one to the other."""


class AnswerError(Struct, frozen=True):
    """An error that an answer contained. None: it states no such thing, or no token."""

    type: str | None = None
    code: str | None = None
    """The provider's, or ours for a message that is known (`errors.KNOWN_MESSAGES`)."""
    message: str | None = None
    """None, unless the operator wants it."""


class AnswerContext(Struct, frozen=True, kw_only=True):
    """What is known of an answer before its first byte."""

    headers: Mapping[str, str] = MappingProxyType({})
    """Response headers by lower-case name (Bedrock's token counts)."""
    provider: str = ""
    """For the few rules that differ between users of one wire format."""
    path_model: str | None = None
    """The model in the request's path; Bedrock names it only there."""
    secrets: tuple[str, ...] = ()
    """The credentials of the request: no recorded text may contain one."""
    is_key_unknown: bool = False
    """A recording does not have them: no recorded text may contain what has the form of a key."""
    prompts: int = 1
    """How many prompts the request has, each of which is answered."""
    choices: int = 1
    """How many answers to each prompt it asks for."""
    tier_is_asked: bool = False
    """ChatGPT's backend answers `default` whatever served the request, which its tier alone tells
    (router-for-me/CLIProxyAPI#4355)."""
    keeps_error_text: bool = False
    """Whether the operator wants the messages of errors (`tee_error_text=on`)."""

    def is_secret(self, text: str) -> bool:
        """Whether a text has a credential of the request in it, as far as that is known."""
        for secret in self.secrets:
            if secret in text:
                return True
        return self.is_key_unknown and KEY_FORM.search(text) is not None


NO_CONTEXT = AnswerContext()


class Stated(Struct, frozen=True, kw_only=True):
    """What an answer states of a session of a hosted agent (`hosted.py`)."""

    usage: dict[str, Any]
    session_id: str | None = None
    """None: the request's path names it."""
    request_id: str | None = None
    """Of one model request; None: the usage is the session's running total."""
    model: str | None = None
    fell: tuple[str, ...] = ()
    """Figures of this total that were more in one before it."""
    at: object = None
    """When the provider states it: RFC 3339, or seconds since the epoch; None: with the answer."""


class ChoiceFacts(Struct, kw_only=True):
    """What the chunks of OpenAI's format state of several choices, and of usage beside them."""

    by_choice: dict[int, dict[tuple[str, ...], int]] = field(default_factory=dict)
    """Of the usage that `addon.dialects.choices` adds up: index -> path -> count."""
    finished: dict[int, None] = field(default_factory=dict)
    """Indexes of the choices that are over, the last one last."""
    extra_of: int | None = None
    """Index of the choice that was over last before the last chunk with usage alone."""
    usage_beside: int = 0
    """Chunks with usage and an answer."""
    usage_alone: int = 0
    """Chunks with usage and no choice."""
    fingerprint: Fingerprint = Fingerprint.UNKNOWN

    @property
    def has_usage_unasked(self) -> bool:
        """Whether a stream that was asked for usage has some that `include_usage` does not explain:
        it adds usage once."""
        return self.usage_beside > 0 and self.usage_beside + self.usage_alone > 1


class ToolFacts(Struct, frozen=True, kw_only=True):
    """Which tools of the provider an answer ran."""

    executed: Mapping[int, str] = {}
    """Those that a stream repeats: index -> unit (Groq)."""
    are_billed: bool = False
    """One ran whose results are billed as input (Gemini: all but Google Search)."""


class RareFacts(Struct, kw_only=True):
    """What few answers report."""

    stated: list[Stated] = field(default_factory=list)
    """At most `hosted.STATED_MAX`."""

    id_unstable: bool = False
    cache_diagnosis: str | None = None
    """Why the prompt cache was not used to the end of what it held, in the provider's word."""
    beside: dict[str, str] = field(default_factory=dict)
    """Billing fields of the request, or of the answer beside its usage object."""
    units: dict[str, int] = field(default_factory=dict)
    """Billable units outside the usage object (server tools that an answer ran)."""
    text_bytes: int = 0
    """Generated text that no byte search finds: whole items without deltas, content in base64."""
    calls: int = 0
    """The tool calls in them."""
    choices: ChoiceFacts = field(default_factory=ChoiceFacts)
    tools: ToolFacts = ToolFacts()
    further: list[tuple[str, str | None, dict[str, Any]]] = field(default_factory=list)
    """Kind, model and usage object of what another model did for the answer (an image tool)."""
    cost: object = None
    """The cost in USD beside the usage object (Venice)."""
    rate_limits: dict[str, Any] | None = None
    """The event of the stream that states quotas (Codex)."""
    remarks: dict[str, None] = field(default_factory=dict)
    """What the row has to say of its usage; at most `_REMARKS_MAX`."""
    is_counted: bool = False
    """The usage is a number that we counted, of an answer without a usage object."""
    has_gap: bool = False
    """Of a long body the ends are known alone, so a list in it may be longer than it looks."""


class Facts(Struct, kw_only=True):
    """Filled by a dialect's `read`, frame by frame. None: not reported yet."""

    of: AnswerContext = NO_CONTEXT
    response_id: str | None = None
    response_model: str | None = None
    created: int | None = None
    """The provider's own creation time, seconds; part of a response's identity."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """The provider's usage object so far: its numbers, booleans, nulls and tokens."""
    usage_final: bool = False
    """The usage is the billed one, not a running figure."""
    service_tier: str | None = None
    token_seen: bool = False
    """Some generated content has passed."""
    error: AnswerError | None = None
    ended: bool = False
    """The dialect's own end mark has passed: a client has everything that it needs."""
    ending: Ending = Ending.FINISH
    """The weakest sign that this stream is whole."""
    is_document: bool = False
    """The answer is one plain body, so its facts are complete."""
    is_cut_inside: bool = False
    """The body ended inside a frame, so the answer is incomplete."""
    rare: RareFacts = field(default_factory=RareFacts)

    def token(self, field: str, value: object, form: re.Pattern[str] = _TOKEN) -> str | None:
        """The value if it is a text of this form without a credential; any other is remarked."""
        if isinstance(value, str) and form.fullmatch(value) and not self.of.is_secret(value):
            return value
        if value is not None and value != "":
            self.remark(LEFT_OUT.format(field))
        return None

    def record_id(self, response_id: object) -> None:
        """Keep the first non-empty id; a different one marks it unstable."""
        if response_id == self.response_id or not isinstance(response_id, str) or not response_id:
            return
        if self.response_id is None:
            form = _NAME if len(response_id) <= TEXT_LENGTH_MAX else _LONG_ID
            self.response_id = id_of(self.token("response_id", response_id, form))
        elif id_of(response_id) != self.response_id:
            self.rare.id_unstable = True

    def record_model(self, model: object) -> None:
        """Keep the last non-empty model: an Anthropic fallback changes the model midway."""
        if isinstance(model, str) and model and model != self.response_model:
            name = self.token("response_model", model, _NAME)
            self.response_model = name or self.response_model

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
            self.finish_reason = self.token("finish_reason", reason)
        elif reason == "" and self.is_document and self.finish_reason is None:
            self.finish_reason = ""

    @property
    def is_finished(self) -> bool:
        """Whether there was a finish reason, kept or not."""
        return self.finish_reason is not None or _FINISH_LEFT_OUT in self.rare.remarks

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
        return self.is_finished or self.ending is Ending.CLOSE

    def record_tier(self, tier: object) -> None:
        """The service tier that served the request. With one that is no token, the price is known
        in part only."""
        if isinstance(tier, dict):
            tier = tier.get("type") or tier
        if self.of.tier_is_asked and self.service_tier is not None and tier in _NO_TIER:
            return
        if tier and tier != self.service_tier:
            kept = self.token(SERVICE_TIER, tier)
            if kept is None:
                self.rare.beside[UNREAD_MODE] = SERVICE_TIER
            self.service_tier = kept or self.service_tier

    def record_tiers(self, body: dict[str, Any]) -> None:
        """The service tier of a frame, a document, a usage object, or the object that an event
        carries."""
        get = body.get
        for holder in (body, get("response"), get("message"), get("interaction")):
            if type(holder) is dict:
                for key in _TIERS:
                    if tier := holder.get(key):
                        is_number = key == "trafficType" and type(tier) is int
                        self.record_tier(_TRAFFIC.get(tier, str(tier)) if is_number else tier)
                        break

    def record_diagnosis(self, word: object) -> None:
        """What the provider says that broke the prompt cache."""
        if isinstance(word, str) and word:
            kept = self.token("cache_diagnosis", word)
            self.rare.cache_diagnosis = kept or self.rare.cache_diagnosis

    def record_beside(self, name: str, value: object) -> None:
        """A billing field that stands beside the usage object."""
        if value is not None and value != "":
            kept = self.token(name, value)
            self.rare.beside[name if kept else UNREAD_MODE] = kept or name

    def record_usage(self, usage: object, *, final: bool) -> None:
        """Keep a usage object in place of the previous one; `usage: null` is ignored, and so are
        zeros behind figures: some gateways send them in a last chunk."""
        if isinstance(usage, dict):
            if not (self.usage and has_figure(self.usage) and not has_figure(usage)):
                self.usage = self.plain_usage(usage)
            self.usage_final = final
            if not TIER_KEYS.isdisjoint(usage):
                self.record_tiers(usage)

    def remark(self, text: str) -> None:
        """Keep what the row has to say of its figures."""
        if len(self.rare.remarks) < _REMARKS_MAX:
            self.rare.remarks[text] = None

    def record_falls(self, names: Iterable[str]) -> None:
        """Say of running totals that they fell: the last value counts."""
        for name in names:
            self.remark(FELL.format(name))

    def record_number(self, path: str, number: int, *, is_usage: bool = False) -> None:
        """Keep the number of what is billed by the piece; of a body with a gap it is a lower bound,
        so the price is known in part only. `is_usage`: it stands for the usage object that this
        format has not."""
        if self.rare.has_gap:
            self.record_beside("count_mode", "lower_bound")
        self.record_usage({path: number}, final=True)
        self.rare.is_counted = not is_usage

    def record_further(self, kind: str, model: object, usage: dict[str, Any]) -> None:
        """Keep the usage object of what another model did."""
        name = self.token("further_model", model, _NAME)
        self.rare.further.append((kind, name, self.plain_usage(usage)))

    def is_plain(self, text: str) -> bool:
        """Whether the keys and texts of some JSON are tokens without a credential."""
        return not self.of.is_secret(text) and _TOKENS_ALONE.fullmatch(text) is not None

    def plain_usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """A usage object without texts that are no tokens or contain a credential; nearly all have
        none, which one pass over its JSON shows."""
        try:
            if self.is_plain(orjson.dumps(usage).decode()):
                return usage
        except TypeError:  # an integer beyond 64 bits, or nested too deep
            pass
        plain: dict[str, Any] = self._plain(usage, "usage", _USAGE_DEPTH_MAX)
        return plain

    def _plain(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, dict):
            return {
                key: self._plain(inner, key, depth - 1)
                for key, inner in value.items()
                if depth and self.token(path, key, _KEY)
            }
        if isinstance(value, list):
            return [self._plain(inner, path, depth - 1) for inner in value if depth]
        if not isinstance(value, str):
            return value
        kept = self.token(path, value)
        if kept is None and is_billing_field(path):
            self.rare.beside[UNREAD_MODE] = path
        return kept


def has_figure(usage: Mapping[str, Any]) -> bool:
    """Whether a usage object has a number that is not zero, or an object in it has one."""
    values = [*usage.values()]
    inner = [one for value in values if isinstance(value, dict) for one in value.values()]
    return any(
        isinstance(value, int | float) and value != 0 and not isinstance(value, bool)
        for value in (*values, *inner)
    ) or any(isinstance(value, list) for value in values)


def text_of(value: object, secrets: tuple[str, ...] = ()) -> str | None:
    """A text that a client states of itself, bounded, without what databases refuse; None for empty
    text, other types, and what contains a credential of its request."""
    if not isinstance(value, str) or not value:
        return None
    for secret in secrets:
        if secret in value:
            return None
    return clean(value, TEXT_LENGTH_MAX)


def clean(text: str, length_max: int) -> str:
    """A text that both databases and a terminal can hold: bounded, no NUL, no lone surrogate."""
    if len(text) <= length_max and text.isascii() and "\x00" not in text:
        return text
    text = text[:length_max].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")
