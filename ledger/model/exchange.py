"""Pure. An exchange: one client request and its one response through the proxy; its reading: what
the meter read from it, append-only; and quotas: how much of its limits it stated as used.

An exchange is written twice: when its request goes upstream (`state=OPEN`), and when it ends for
any reason and is settled.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Struct, field

from ledger.model.columns import TEXT_CHARACTERS_MAX, Column
from ledger.model.usage import NO_USAGE, Usage


class QuotaKind(StrEnum):
    """What a limit belongs to."""

    PLAN = "plan"
    """A flat plan (Claude, ChatGPT, Copilot): a share of what the subscription covers."""
    RATE = "rate"
    """Requests or tokens that an API key may use in a time."""


class Quota(Struct, frozen=True, kw_only=True):
    """One window of one answer. None: the answer did not state it, or stated no usable figure."""

    window: str
    """A plan's window by its length (`5h`, `7d`), with its limit or model behind it if it is one of
    several of that length; otherwise the provider's name."""
    window_name: str
    """The provider's name: `5h`, `primary`, `premium_interactions`, `input-tokens`."""
    window_minutes: int | None = None
    kind: QuotaKind
    limit: int | None = None
    remaining: int | None = None
    used_ppm: int | None = None
    """The used share in millionths, as stated or by what remains of the limit. Above 1 000 000 the
    limit is exceeded."""
    status: str | None = None
    """The provider's word: `allowed`, `allowed_warning`, `rejected`."""
    resets_at: datetime | None = None


RESET_TOLERANCE = timedelta(seconds=5)
"""A reset of a window that moves by less is the same: answers round it."""
_UNITS = (("d", 1440), ("h", 60))
_NEAR = 50
"""A window that a fiftieth of its length makes whole hours or days: 299 minutes are five hours."""


def window_label(minutes: int) -> str:
    """The length of a window as people name it: 299 -> `5h`, 10 079 -> `7d`, 90 -> `90m`."""
    for unit, size in _UNITS:
        number = (minutes + size // 2) // size
        if number and abs(minutes - number * size) * _NEAR <= minutes:
            return f"{number}{unit}"
    return f"{minutes}m"


WINDOW_MINUTES_MAX = 10 * 366 * 24 * 60
"""Ten years."""
PPM = 1_000_000
QUOTA_KEY = ("opened_at", "exchange_id", "kind", "window")
"""Of a row: one exchange states a window once."""


class State(StrEnum):
    """The state of an exchange."""

    OPEN = "open"
    SETTLED = "settled"
    LOST = "lost"


ERROR_STATUS_MIN = 400
"""From this HTTP status on, an answer is an error."""
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
"""Scheme -> the port where a URL names none; origins have it."""
NO_METER = "none"
"""`meter_version` of the reading of an exchange whose process died: nothing was read."""
NO_MODEL = "(no model)"
"""The name of a model where neither request nor answer has one."""


class Outcome(StrEnum):
    """How an exchange ended."""

    COMPLETE = "complete"
    CLIENT_LEFT = "client_left"
    UPSTREAM_CUT = "upstream_cut"
    ERROR_FRAME = "error_frame"
    """An error inside an answer with a successful HTTP status."""
    HTTP_ERROR = "http_error"
    LOST = "lost"
    """The recording process died first."""
    REFUSED = "refused"
    """By a cap of the operator's: nothing went upstream."""


ORDERED = ("in_progress", "processing", "queued", "starting")
"""What an answer gives as its finish that only takes an order: its result is fetched later
(OpenAI's background responses and runs, Replicate's predictions)."""
REFUSED_STATUS = 402
"""Of the answer that a refused request gets: no SDK repeats it."""
SESSION_TOTAL = "agent_session"
"""The operation of a row with what the running total of a hosted agent's session states beyond what
the ledger has of this session."""
SESSION_REQUEST = "agent_request"
"""The operation of a row with one model request of such a session."""
SESSION_OPERATIONS = (SESSION_TOTAL, SESSION_REQUEST)
SESSION_CALL = "agent_call"
"""The operation of a row with a request of the client's that starts work of a hosted agent, or that
failed: it has no usage of its own."""
CAP_HEADER = "x-tokentee-cap"
"""The header of that answer, with the cap's name."""
CAP_ERROR = "tokentee_cap"
"""The error type of a request that a cap refused; its error code is the cap's name."""

FETCHED = "its result was fetched later"
"""The reason of a further reading that came with a later request."""


class Source(StrEnum):
    """How an exchange came into the ledger."""

    LIVE = "live"
    REPLAY = "replay"
    """From a recording, or a stored result that was fetched."""
    IMPORT = "import"


class Exchange(Struct, frozen=True, kw_only=True):
    """One client request and its one response through the proxy; the unit of record.

    None means unknown or not reported. Times are UTC and aware, sizes are bytes as they were on
    the wire (content-encoding not undone, transfer-encoding undone).
    """

    id: Annotated[str, Column("mitmproxy's id of the flow, made before the request goes upstream")]
    origin: Annotated[str, Column("scheme://host:port of the upstream")]
    provider: Annotated[str, Column("The vendor or gateway that answers")]
    dialect: Annotated[str, Column("The wire format: openai.chat, anthropic.messages, …")]
    operation: Annotated[str, Column("What was asked for: chat, embeddings, images, …")]
    path: Annotated[str, Column("The request's path, without its query", TEXT_CHARACTERS_MAX)]
    opened_at: Annotated[datetime, Column("When the request arrived, UTC")]
    request_model: Annotated[str | None, Column("The model asked for")] = None
    streamed: Annotated[bool, Column("The request asks for a stream")] = False
    state: Annotated[
        State, Column("open, settled, or lost: the recording process died before the end")
    ] = State.OPEN
    request_bytes: Annotated[int | None, Column("Body of the request, as the client sent it")] = (
        None
    )
    usage_asked: Annotated[
        bool | None, Column("The client's own include_usage; NULL: the request has none")
    ] = None
    usage_injected: Annotated[bool, Column("The proxy added a request for usage")] = False
    usage_stripped: Annotated[bool, Column("The proxy removed usage from the client's bytes")] = (
        False
    )
    resent: Annotated[
        bool,
        Column(
            "Upstream refused the added request for usage, and the proxy repeated the "
            "request without it"
        ),
    ] = False
    key_fingerprint: Annotated[str | None, Column("Keyed hash of the API key")] = None
    key_hint: Annotated[str | None, Column("At most the last 4 characters of the API key")] = None
    user_agent: Annotated[str | None, Column("The client's User-Agent", TEXT_CHARACTERS_MAX)] = None
    end_user: Annotated[str | None, Column("The end user that the request names")] = None
    session_id: Annotated[
        str | None, Column("From x-tokentee-session, or the client's own session id")
    ] = None
    tags: Annotated[
        dict[str, str], Column("From x-tokentee-tag and tee_tags, a JSON object of texts")
    ] = field(default_factory=dict)
    source: Annotated[Source, Column("live, replay or import")] = Source.LIVE
    node: Annotated[str | None, Column("The recording process: host/pid/start")] = None
    capture: Annotated[str | None, Column("Where the raw bytes are kept", TEXT_CHARACTERS_MAX)] = (
        None
    )
    request_digest: Annotated[
        str | None,
        Column("First 128 bits of the SHA-256 of the request's body, hex; NULL: not known"),
    ] = None
    project: Annotated[
        str | None, Column("The project that the request was made for: a folder or repository name")
    ] = None
    git_branch: Annotated[str | None, Column("The git branch that was checked out")] = None
    agent: Annotated[
        str | None, Column("The agent that made the request: claude-code, codex, …")
    ] = None
    parent_session_id: Annotated[str | None, Column("The session that started this session")] = None
    purpose: Annotated[
        str | None,
        Column("What the client's request was for: turn, title, compaction, …; NULL: not known"),
    ] = None
    account: Annotated[
        str | None,
        Column("Keyed hash of the account or organization that the wire names; NULL: none"),
    ] = None
    api_version: Annotated[
        str | None,
        Column(
            "The version of the provider's API that the client asked for, a token; NULL: none",
            is_token=True,
        ),
    ] = None
    hold_picousd: Annotated[
        int | None,
        Column("What a cap held for it: the most that it can be billed; NULL: no cap, no bound"),
    ] = None
    hold_list_value_picousd: Annotated[
        int | None, Column("The most that it can cost at list prices; NULL: no cap, no bound")
    ] = None
    hold_tokens: Annotated[
        int | None, Column("The most tokens that it can use; NULL: no cap, no bound")
    ] = None
    segments: str | None = None
    """The packed segments of the request (`segments.py`); a table of their own keeps them."""

    # settled
    response_id: Annotated[
        str | None,
        Column(
            "The provider's stable chunk id, the first non-empty one; not unique: see "
            "duplicate_of and id_collision"
        ),
    ] = None
    response_model: Annotated[
        str | None, Column("The model that answered, as the provider reports it")
    ] = None
    meant_model: Annotated[
        str | None,
        Column(
            "Where no model answered: the one that had answered this request_model last; NULL: "
            "a model answered, or none is known"
        ),
    ] = None
    outcome: Annotated[
        Outcome | None,
        Column(
            "complete, client_left, upstream_cut, error_frame (an error inside HTTP 200), "
            "http_error, lost, refused (by a cap: nothing went upstream); NULL while open"
        ),
    ] = None
    http_status: Annotated[int | None, Column("The upstream's status; NULL: no answer")] = None
    finish_reason: Annotated[
        str | None,
        Column("Why the model stopped, as the provider reports it", is_token=True),
    ] = None
    error_type: Annotated[
        str | None, Column("The provider's error type, a token", is_token=True)
    ] = None
    error_code: Annotated[
        str | None,
        Column(
            "The provider's error code, a token; where it gives none, ours for a known message",
            is_token=True,
        ),
    ] = None
    error_message: Annotated[
        str | None,
        Column(
            "The error's message, keys masked and shortened; NULL unless tee_error_text is on",
            TEXT_CHARACTERS_MAX,
        ),
    ] = None
    service_tier: Annotated[
        str | None,
        Column(
            "The service tier of the response; where it names none, of the request", is_token=True
        ),
    ] = None
    first_byte_at: Annotated[datetime | None, Column("First byte of the answer, UTC")] = None
    first_token_at: Annotated[datetime | None, Column("First token of the answer, UTC")] = None
    settled_at: Annotated[datetime | None, Column("When the outcome was known, UTC")] = None
    response_bytes: Annotated[int | None, Column("Body of the answer, as upstream sent it")] = None
    client_bytes: Annotated[int | None, Column("Body of the answer, as the client received it")] = (
        None
    )
    removed_bytes: Annotated[
        int | None,
        Column("Size of what the proxy removed from the answer: usage that it had requested"),
    ] = None
    upstream_digest: Annotated[str | None, Column("SHA-256 of what upstream sent, hex")] = None
    client_digest: Annotated[str | None, Column("SHA-256 of what the client received, hex")] = None
    removed_digest: Annotated[
        str | None, Column("SHA-256 of what the proxy removed, hex; NULL: nothing")
    ] = None
    events: Annotated[int | None, Column("Frames of the answer; 1 for a plain document")] = None
    degraded: Annotated[
        str | None,
        Column(
            "Why it was not read or edited to the end, or its end was not held; NULL: all was done",
            TEXT_CHARACTERS_MAX,
        ),
    ] = None
    id_unstable: Annotated[
        bool, Column("The response id changed inside the stream; response_id is the first")
    ] = False
    content_digest: Annotated[
        str | None,
        Column(
            "Digest of model, created, finish reason and usage: it tells a response "
            "seen again from a colliding id"
        ),
    ] = None
    tool_calls: Annotated[
        int | None, Column("Number of tool calls in the answer; NULL: not read")
    ] = None
    cache_diagnosis: Annotated[
        str | None,
        Column(
            "What the provider says that broke the prompt cache; NULL: it says nothing",
            is_token=True,
        ),
    ] = None
    retry_after_ms: Annotated[
        int | None, Column("Wait that an error answer asked for, milliseconds; NULL: none")
    ] = None
    quotas: tuple[Quota, ...] = ()
    """What the answer stated of limits; a table of its own keeps it."""

    @property
    def model(self) -> str | None:
        """The model that answered, or was meant, or else the name asked for, as in the view
        `requests`."""
        return self.response_model or self.meant_model or self.request_model or None


class UsageSource(StrEnum):
    """Where a reading's figures come from."""

    REPORTED = "reported"
    """The provider's final figures."""
    PARTIAL = "partial"
    """The figures that the provider had reported when the exchange ended early."""
    ESTIMATED = "estimated"
    """Computed from the bytes that passed, because the provider reported nothing."""
    NONE = "none"


class Billing(StrEnum):
    """How the provider bills an exchange, told from the wire or from the operator's names file."""

    METERED = "metered"
    """By tokens, at the prices of an API key."""
    PLAN = "plan"
    """By a flat price for a month: none of its tokens has a price of its own."""
    FREE = "free"
    """Not at all."""


COVERED = (Billing.PLAN, Billing.FREE)
"""Nothing of an exchange is billed by tokens: its list value is no cost."""


class Reading(Struct, frozen=True, kw_only=True):
    """What the meter read from an exchange; append-only, the highest revision counts."""

    exchange_id: Annotated[str, Column("The exchange that was read")]
    opened_at: Annotated[datetime, Column("The exchange's opened_at")]
    revision: Annotated[
        int,
        Column("The highest is current; of equal ones, the earliest. 0: of a lost exchange"),
    ] = 1
    meter_version: Annotated[str, Column("Version of the meter that made the reading")]
    usage_source: Annotated[UsageSource, Column("reported, partial, estimated or none")]
    usage: Usage = NO_USAGE
    usage_json: Annotated[
        str | None,
        Column(
            "The provider's usage object: its numbers, booleans, nulls and tokens, other texts as "
            "null; NULL: none. Billing fields beside it or in the request follow, as `beside:NAME`"
        ),
    ] = None
    estimated_output_tokens: Annotated[
        int | None, Column("Estimate of the output that passed before an early end")
    ] = None
    read_at: Annotated[datetime, Column("When the reading was made, UTC")]
    reason: Annotated[
        str | None, Column("Why there is a further revision", TEXT_CHARACTERS_MAX)
    ] = None
    billing: Annotated[
        Billing | None,
        Column("metered (billed by tokens), plan (covered by a flat price) or free; NULL: unknown"),
    ] = None
