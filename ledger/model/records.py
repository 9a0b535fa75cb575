"""Pure. The rows of the ledger as values.

An exchange is written twice: when its request goes upstream (`state=OPEN`) and once more when it
is settled, whatever ended it. Readings and charges are only ever added.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from ledger.model.usage import NO_USAGE, Usage


class State(StrEnum):
    OPEN = "open"
    SETTLED = "settled"
    LOST = "lost"


class Outcome(StrEnum):
    """How an exchange ended."""

    COMPLETE = "complete"
    CLIENT_LEFT = "client_left"
    UPSTREAM_CUT = "upstream_cut"
    ERROR_FRAME = "error_frame"
    """An error inside an answer whose HTTP status said success."""
    HTTP_ERROR = "http_error"
    LOST = "lost"
    """The recording process died first."""


class UsageSource(StrEnum):
    """Where a reading's figures come from."""

    REPORTED = "reported"
    """The provider's final figures."""
    PARTIAL = "partial"
    """What the provider had reported when the exchange ended early."""
    ESTIMATED = "estimated"
    """Worked out from what passed, because nothing was reported."""
    NONE = "none"


class Source(StrEnum):
    """How an exchange came into the ledger."""

    LIVE = "live"
    REPLAY = "replay"
    IMPORT = "import"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One client request and its one response through the proxy; the unit of record.

    None means unknown or not reported. Times are UTC and aware, sizes are bytes as they were on
    the wire (content-encoding not undone, transfer-encoding undone).
    """

    id: str
    """Ours, made before the request goes upstream: mitmproxy's flow id."""
    origin: str
    """scheme://host:port of the upstream."""
    provider: str
    dialect: str
    operation: str
    path: str
    """Without the query, in which Gemini clients send their key."""
    opened_at: datetime
    request_model: str | None = None
    streamed: bool = False
    state: State = State.OPEN
    request_bytes: int | None = None
    usage_asked: bool | None = None
    """The client's own `include_usage`; None where it said nothing or the dialect has no such."""
    usage_injected: bool = False
    """We asked for usage on the wire."""
    usage_stripped: bool = False
    """We took usage out of the client's bytes."""
    resent: bool = False
    """Upstream refused what we had added, and was asked again without it."""
    key_fingerprint: str | None = None
    key_hint: str | None = None
    user_agent: str | None = None
    end_user: str | None = None
    session_id: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    source: Source = Source.LIVE
    node: str | None = None
    """The recording process: host/pid/start."""
    capture: str | None = None

    # settled
    response_id: str | None = None
    """The provider's stable chunk id: data, never a key (FIELD 23-26)."""
    response_model: str | None = None
    outcome: Outcome | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    error_type: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    service_tier: str | None = None
    first_byte_at: datetime | None = None
    first_token_at: datetime | None = None
    settled_at: datetime | None = None
    response_bytes: int | None = None
    """What upstream sent."""
    client_bytes: int | None = None
    """What was handed to the client: response_bytes - removed_bytes."""
    removed_bytes: int | None = None
    upstream_digest: str | None = None
    """SHA-256 of what upstream sent, hex."""
    client_digest: str | None = None
    removed_digest: str | None = None
    """SHA-256 of what was taken out, pieces in order; None if nothing was."""
    events: int | None = None
    """Frames of the answer; 1 for a plain document."""
    degraded: str | None = None
    """Why our code fell back to plain pass-through; None if it did not."""
    id_unstable: bool = False
    content_digest: str | None = None
    """Digest of model, created, finish reason and usage: tells a response seen again from an id
    that collides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the meter read from an exchange; append-only, the highest revision counts."""

    exchange_id: str
    opened_at: datetime
    """The exchange's, so that a reading lies in its exchange's partition."""
    revision: int = 1
    meter_version: str
    usage_source: UsageSource
    usage: Usage = NO_USAGE
    usage_json: str | None = None
    """The provider's usage object as it said it; None if there was none."""
    estimated_output_tokens: int | None = None
    """What passed by our estimate, where the provider's final figures never came; None where they
    did. Beside the token columns, which hold it only under `usage_source='estimated'`."""
    read_at: datetime
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One priced line of a reading: quantity x unit price = amount, exactly."""

    line: str
    """`uncached_input`, `cache_read`, `cache_write_5m`, `output`, `web_searches` …; lines of a
    further iteration carry its kind before a dot: `compaction.output`."""
    model: str | None = None
    """The model priced, where it is not the answer's own (an iteration's)."""
    quantity: int
    unit_picousd: int | None
    """None: no price is known, and `reason` says why. Never 0 for an unknown price."""
    amount_picousd: int | None
    price_source: str
    """`genai-prices 0.2.3`, `override sha256:…`, `litellm sha256:…`, `provider`."""
    priced_at: datetime
    supersedes: str | None = None
    """The id of the charge that this one replaces."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What traffic has taught about asking an upstream for usage."""

    origin: str
    path: str
    verdict: str
    """`opt_in`: none comes unasked; `automatic`: it comes by itself; `refuses`: upstream rejects
    the question."""
    learned_at: datetime
    expires_at: datetime
