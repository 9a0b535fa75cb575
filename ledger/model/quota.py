"""Pure. A quota: how much of one limit of an account or key is used, as an answer stated it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


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


PPM = 1_000_000
KEY = ("opened_at", "exchange_id", "kind", "window")
"""Of a row: one exchange states a window once."""
