"""Pure. What narrows a list of requests, beside the conditions of a scope."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal, get_args

from ledger.model.errors import WrongCallError
from ledger.model.money import PICOUSD_PER_USD

NUMBER_MAX = 1_000_000
type Kind = Literal[
    "errors",
    "refused",
    "without_usage",
    "complete_without_usage",
    "unpriced",
    "estimated",
    "covered",
    "degraded",
]
"""Requests that the figure of this name counts."""
KINDS: tuple[Kind, ...] = get_args(Kind.__value__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which requests of a scope."""

    kinds: tuple[str, ...] = ()
    """Of `KINDS`; of all of them."""
    cost_min_picousd: int | None = None
    """At list prices where a plan covers them."""
    duration_min_ms: int | None = None
    before: str | None = None
    """The last request of the page before, as `Request.place` says it."""


NO_FILTER = Filter()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """How requests ended in an error, and how many did so."""

    http_status: int | None
    error_type: str | None
    requests: int

    @property
    def text(self) -> str:
        """`HTTP 429: rate limit error`: a status is no number of what the type names (`tokens`)."""
        status = f"HTTP {self.http_status}" if self.http_status else ""
        words = (status, (self.error_type or "").replace("_", " "))
        return ": ".join(each for each in words if each) or "in the answer"


def filter_of(
    kinds: Sequence[str],
    *,
    min_cost: str | None = None,
    min_seconds: str | None = None,
    before: str | None = None,
) -> Filter:
    """What somebody wrote: `KINDS`, USD, seconds. WrongCallError names what is wrong."""
    if unknown := [each for each in kinds if each not in KINDS]:
        raise WrongCallError(
            f"not a kind of requests: {unknown[0][:40]!r}; use one of {', '.join(KINDS)}"
        )
    return Filter(
        kinds=tuple(dict.fromkeys(kinds)),
        cost_min_picousd=_number(min_cost, "USD", PICOUSD_PER_USD),
        duration_min_ms=_number(min_seconds, "seconds", 1000),
        before=before,
    )


def _number(text: str | None, unit: str, factor: int) -> int | None:
    if text is None:
        return None
    try:
        value = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        value = Decimal(-1)
    if not (value.is_finite() and 0 <= value < NUMBER_MAX):
        raise WrongCallError(f"not a number of {unit}: {text[:20]!r}; write 0.05 or 30")
    return int(value * factor)
