"""Pure. The quotas that an answer states, in response headers and in events of its stream.

One table of patterns maps header names to (window, field). Every other name is ignored, so a
made-up window makes no quota. Upstream bytes are untrusted: the number of headers and quotas, each
length and each number are bounded, and a value that is not usable is None, never an error. Sources:

- Anthropic API: <https://docs.anthropic.com/en/api/rate-limits#response-headers>. Claude plans:
  `unified` headers, which Claude Code reads (anthropics/claude-code 12829).
- Codex: `codex-rs` reads `x-codex-*` and the event `codex.rate_limits` (openai/codex 10324).
- Copilot: VS Code's chat extension reads `x-quota-snapshot-*` and `x-usage-ratelimit-*`.
- OpenAI: <https://platform.openai.com/docs/guides/rate-limits>; Groq, Mistral, Cerebras, OpenRouter
  use the same names with other suffixes and other forms of the reset.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

from ledger.model.exchange import ERROR_STATUS_MIN, Quota, QuotaKind, window_label
from ledger.model.money import decimal_of

HEADERS_MAX = 1000
"""Response headers that are read. Providers send fewer than 100."""
QUOTAS_MAX = 32
"""Quotas of one exchange. The longest recorded set has 8."""
VALUE_LENGTH_MAX = 256
"""Characters of a value that is read. Copilot's are the longest, about 80."""
COUNT_MAX = 2**63 - 1
"""What a 64-bit column holds."""
USED_PPM_MAX = 10**9
"""A thousand times the limit. More is not a figure."""
AHEAD_MAX = timedelta(days=400)
"""The latest reset that is believed: the longest known window is a year."""
RETRY_AFTER_MAX = timedelta(days=31)
"""The longest wait that is believed: a plan's longest window is a month."""

MINUTES_OF = {"second": None, "minute": 1, "hour": 60, "day": 1440, "month": None}
"""Minutes of a suffix of rate headers. A month has no fixed length; a second is no minute."""
MINUTES_IN = {"d": 1440, "h": 60, "m": 1}
_WINDOW = r"\d{1,3}[mhd](?:[_-][a-z0-9_]{1,16})?|overage"
_LIMITED = r"(?:project-|input-|output-)?(?:tokens|requests|req|images)(?:-(?:prompt|generated))?"
_PATTERNS = (
    re.compile(
        rf"anthropic-ratelimit-unified-(?P<unified>{_WINDOW})-(?P<field>utilization|reset|status)",
        re.ASCII,
    ),
    re.compile(
        r"anthropic-(?P<api>(?:ratelimit|priority)-(?:requests|(?:input-|output-)?tokens))"
        r"-(?P<field>limit|remaining|reset)"
    ),
    re.compile(
        r"x-codex-(?:(?P<limit>[a-z0-9_-]{1,24})-)?(?P<codex>primary|secondary)"
        r"-(?P<field>used-percent|window-minutes|reset-at|reset-after-seconds)"
    ),
    re.compile(r"x-quota-(?P<copilot>snapshot-[a-z0-9_-]{1,32})(?P<field>)"),
    re.compile(r"x-usage-(?P<copilot>ratelimit-(?:session|weekly))(?P<field>)"),
    re.compile(
        rf"x-ratelimit-(?P<field>limit|remaining|reset)"
        rf"(?:-(?P<rate>{_LIMITED}(?:-(?:second|minute|hour|day|month))?))?"
    ),
)
_BEGINNINGS = ("anthropic-", "x-codex-", "x-quota-", "x-usage-", "x-ratelimit-")
"""Of all names that a pattern matches."""
ACCOUNT_HEADERS = ("anthropic-organization-id", "openai-organization")
"""Response headers that name the organization whose quotas and prompt cache a request used."""
ASKED_ACCOUNT_HEADER = "chatgpt-account-id"
"""Codex names the account in its request."""
_CLAIM = "anthropic-ratelimit-unified-representative-claim"
_OTHERS = frozenset(
    {
        _CLAIM,
        "anthropic-ratelimit-unified-status",
        "anthropic-ratelimit-unified-reset",
        "anthropic-ratelimit-unified-fallback",
        "anthropic-ratelimit-unified-fallback-percentage",
        "anthropic-ratelimit-unified-overage-in-use",
        "anthropic-ratelimit-unified-overage-disabled-reason",
        "x-codex-plan-type",
        "x-codex-active-limit",
        "retry-after",
        "retry-after-ms",
    }
)
_CLAIMS = {"five_hour": "5h", "seven_day": "7d"}
"""Windows by the name under which `representative-claim` states which limit binds."""
_DURATION = re.compile(
    r"(?:(\d{1,5})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?"
    r"(?:(\d{1,8}(?:\.\d{1,12})?)s)?(?:(\d{1,10}(?:\.\d{1,12})?)ms)?",
    re.ASCII,
)
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,18})?", re.ASCII)
_WINDOW_NAME = re.compile(r"(\d{1,3})([mhd])", re.ASCII)
_STATUS = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)

type _Fields = dict[str, str]
type _Key = tuple[str, str, str]
"""Family of headers, window, and name of the limit."""


class StatedLimits(Struct, frozen=True, kw_only=True):
    """What one answer states of limits."""

    quotas: tuple[Quota, ...] = ()
    retry_after_ms: int | None = None
    """Of an error answer."""


def limits_of(
    headers: Mapping[str, str], *, status: int | None, event: object, arrived_at: datetime
) -> StatedLimits:
    """The limits in the headers of an answer, and in the event of its stream that states them.

    An event is newer than the headers of its answer, so its figures win.
    """
    found = {(each.kind, each.window): each for each in quotas_of(headers, arrived_at=arrived_at)}
    if event is not None:
        for each in quotas_of_event(event, arrived_at=arrived_at):
            found[each.kind, each.window] = each
    is_error = status is not None and status >= ERROR_STATUS_MIN
    wait = retry_after_ms(headers, arrived_at=arrived_at) if is_error else None
    return StatedLimits(quotas=tuple(found.values())[:QUOTAS_MAX], retry_after_ms=wait)


def is_quota_header(name: str) -> bool:
    """Whether a header states a quota or a wait. `name` is in lower case."""
    return name in _OTHERS or _stated(name) is not None


def quotas_of(headers: Mapping[str, str], *, arrived_at: datetime) -> tuple[Quota, ...]:
    """The quotas in the headers of an answer that arrived at `arrived_at`, at most `QUOTAS_MAX`.

    Names are in lower case. A relative reset counts from `arrived_at`. A limit without end makes no
    quota, nor does a window of which no figure, status or reset is usable.
    """
    groups: dict[_Key, _Fields] = {}
    for name, value in islice(headers.items(), HEADERS_MAX):
        if not name.startswith(_BEGINNINGS) or len(value) > VALUE_LENGTH_MAX:
            continue
        if stated := _stated(name):
            key, field = stated
            groups.setdefault(key, {})[field] = value.strip()
    # The window that binds has the answer's own status and reset, unless it states its own. Some
    # 429 answers state nothing else, so this tells which limit refused the request.
    if claimed := _CLAIMS.get(headers.get(_CLAIM, "").strip()):
        fields = groups.setdefault(("unified", claimed, ""), {})
        for field in ("status", "reset"):
            value = headers.get(f"anthropic-ratelimit-unified-{field}", "").strip()
            if value and len(value) <= VALUE_LENGTH_MAX:
                fields.setdefault(field, value)
    quotas: dict[tuple[QuotaKind, str], Quota] = {}
    # Plain windows come first, so that many windows of models cannot push them out.
    for family, window, limit in sorted(groups, key=lambda key: (len(key[2]), len(key[1]), key)):
        if len(quotas) == QUOTAS_MAX:
            break
        quota = _READERS[family](window, limit, groups[family, window, limit], arrived_at)
        if quota is not None:
            quotas.setdefault((quota.kind, quota.window), quota)
    return tuple(quotas.values())


_EVENT_FIELDS = {
    "used_percent": "used-percent",
    "window_minutes": "window-minutes",
    **dict.fromkeys(("reset_at", "resets_at"), "reset-at"),
    **dict.fromkeys(("reset_after_seconds", "resets_in_seconds"), "reset-after-seconds"),
}
"""Members of a window in the event, and in Codex' own log, which spells the resets otherwise."""


def quotas_of_event(event: object, *, arrived_at: datetime) -> tuple[Quota, ...]:
    """The quotas of a decoded `codex.rate_limits` event; none for any other value.

    The event states what the headers `x-codex-*` state, so it is read as those headers.
    """
    if not isinstance(event, dict) or event.get("type") != "codex.rate_limits":
        return ()
    limits, name = event.get("rate_limits"), event.get("metered_limit_name")
    if not isinstance(limits, dict):
        return ()
    other = name.lower().removeprefix("codex").strip("_-") if isinstance(name, str) else ""
    prefix = f"x-codex-{other}-" if other else "x-codex-"
    headers = {
        f"{prefix}{slot}-{field}": str(decimal_of(window[member]))
        for slot in ("primary", "secondary")
        if isinstance(window := limits.get(slot), dict)
        for member, field in _EVENT_FIELDS.items()
        if window.get(member) is not None
    }
    return quotas_of(headers, arrived_at=arrived_at)


def retry_after_ms(headers: Mapping[str, str], *, arrived_at: datetime) -> int | None:
    """The wait that an answer asks for, in milliseconds (RFC 9110 section 10.2.3)."""
    for name, scale in (("retry-after-ms", 1), ("retry-after", 1000)):
        value = headers.get(name, "").strip()
        number = _number(value)
        if number is not None and number * scale <= RETRY_AFTER_MAX // timedelta(milliseconds=1):
            return int(number * scale)
    try:
        at = parsedate_to_datetime(value[:VALUE_LENGTH_MAX])
    except (ValueError, OverflowError):
        return None
    wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - arrived_at
    return wait // timedelta(milliseconds=1) if timedelta() <= wait <= RETRY_AFTER_MAX else None


def _stated(name: str) -> tuple[_Key, str] | None:
    """What a header states, and the field of it; None: it states no quota."""
    for pattern in _PATTERNS:
        if match := pattern.fullmatch(name):
            found = match.groupdict()
            family = next((each for each in _READERS if found.get(each)), "rate")
            key = (family, found[family] or "ratelimit", found.get("limit") or "")
            return key, found["field"]
    return None


def _unified(window: str, _limit: str, fields: _Fields, now: datetime) -> Quota | None:
    used = _number(fields.get("utilization"))
    timed = _WINDOW_NAME.match(window)
    status = fields.get("status", "")
    return _quota(
        window=window,
        window_name=window,
        window_minutes=int(timed[1]) * MINUTES_IN[timed[2]] if timed else None,
        kind=QuotaKind.PLAN,
        used_ppm=_ppm(used, whole=Decimal(1)),
        status=status if _STATUS.fullmatch(status) else None,
        resets_at=_moment(fields.get("reset"), now),
    )


def _codex(slot: str, limit: str, fields: _Fields, now: datetime) -> Quota | None:
    minutes = _count(fields.get("window-minutes"))
    minutes = minutes if minutes and minutes <= AHEAD_MAX // timedelta(minutes=1) else None
    used = _ppm(_number(fields.get("used-percent")), whole=Decimal(100))
    resets_at = _moment(fields.get("reset-at"), now)
    if resets_at is None:
        resets_at = _later(fields.get("reset-after-seconds"), now)
    if used is None or (not used and minutes is None and resets_at is None):
        return None  # codex-rs, too, takes a slot without a figure as absent
    name = window_label(minutes) if minutes else slot
    return _quota(
        window=f"{name} {limit}" if limit else name,
        window_name=f"{limit}-{slot}" if limit else slot,
        window_minutes=minutes,
        kind=QuotaKind.PLAN,
        used_ppm=used,
        resets_at=resets_at,
    )


def _copilot(name: str, _limit: str, fields: _Fields, now: datetime) -> Quota | None:
    """`ent` is the limit (-1: without end, 0: not stated), `rem` the remaining share in percent."""
    stated = dict(parse_qsl(fields[""], max_num_fields=16, keep_blank_values=True))
    if stated.get("ent") == "-1":
        return None
    # The same figures in WebSocket events are named `5Hour-Session-` and `Weekly-Session-`.
    minutes = {"ratelimit-session": 300, "ratelimit-weekly": 10080}.get(name)
    remaining = _number(stated.get("rem"))
    used = 100 - remaining if remaining is not None and remaining <= 100 else None
    window = name.partition("-")[2]
    return _quota(
        window=window_label(minutes) if minutes else window,
        window_name=window,
        window_minutes=minutes,
        kind=QuotaKind.PLAN,
        limit=_count(stated.get("ent")) or None,
        used_ppm=_ppm(used, whole=Decimal(100)),
        status="overage" if _number(stated.get("ov")) else None,
        resets_at=_moment(stated.get("rst"), now),
    )


def _rate(name: str, _limit: str, fields: _Fields, now: datetime) -> Quota | None:
    name = name.removeprefix("ratelimit-")
    limit, remaining = _count(fields.get("limit")), _count(fields.get("remaining"))
    endless = "-1" in (fields.get("limit"), fields.get("remaining"))
    if endless or (limit is None and remaining is None):
        return None
    used = limit - remaining if limit and remaining is not None and remaining <= limit else None
    reset = fields.get("reset")
    return _quota(
        window=name,
        window_name=name,
        window_minutes=MINUTES_OF.get(name.rpartition("-")[2]),
        kind=QuotaKind.RATE,
        limit=limit,
        remaining=remaining,
        used_ppm=_ppm(Decimal(used), whole=Decimal(limit)) if limit and used is not None else None,
        resets_at=_moment(reset, now) or _later(reset, now),
    )


_READERS: dict[str, Callable[[str, str, _Fields, datetime], Quota | None]] = {
    "unified": _unified,
    "api": _rate,
    "codex": _codex,
    "copilot": _copilot,
    "rate": _rate,
}
"""Readers by the group of the pattern that holds a window's name."""


def _quota(**stated: Any) -> Quota | None:
    """The quota; None if it states nothing beside its name."""
    figures = ("limit", "remaining", "used_ppm", "status", "resets_at")
    return Quota(**stated) if any(stated.get(each) is not None for each in figures) else None


def _number(text: str | None) -> Decimal | None:
    return decimal_of(text) if text is not None and _NUMBER.fullmatch(text) else None


def _count(text: str | None) -> int | None:
    number = _number(text)
    return int(number) if number is not None and number <= COUNT_MAX else None


def _ppm(used: Decimal | None, *, whole: Decimal) -> int | None:
    """A share in millionths, rounded half even; None if it is beyond `USED_PPM_MAX`."""
    if used is None or used > whole * 1000:
        return None
    ppm = int((used * 10**6 / whole).to_integral_value())
    assert 0 <= ppm <= USED_PPM_MAX, ppm
    return ppm


def _moment(text: str | None, now: datetime) -> datetime | None:
    """A reset at a moment: seconds or milliseconds since 1970, or RFC 3339.

    None for any other text, for the past, and beyond `AHEAD_MAX`.
    """
    if not text:
        return None
    number = _number(text)
    try:
        if number is not None:
            seconds = number if number < 10**11 else number / 1000
            at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(seconds * 10**6))
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return at if now <= at <= now + AHEAD_MAX else None
    except (ValueError, OverflowError):
        return None


def _later(text: str | None, now: datetime) -> datetime | None:
    """A reset after a duration: plain seconds, or units as in `1d2h6m0.5s` and `120ms`."""
    seconds = _number(text)
    if seconds is None and text and (match := _DURATION.fullmatch(text)):
        parts = (Decimal(each or 0) for each in match.groups())
        scales = (Decimal(86400), Decimal(3600), Decimal(60), Decimal(1), Decimal("0.001"))
        seconds = sum((part * scale for part, scale in zip(parts, scales, strict=True)), Decimal(0))
    if seconds is None or seconds > AHEAD_MAX // timedelta(seconds=1):
        return None
    return now + timedelta(microseconds=int(seconds * 10**6))
