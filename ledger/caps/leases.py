"""Pure. How processes share a cap: what each may take of what is left.

Each process has a part of an account: what it spent there, what its requests hold, and a slice that
it may use without asking. What all of them took is never more than the limit:

    taken = used + slice,  used = spent + held,  sum of taken <= limit

- A request that does not fit into the slice asks for as much as it needs, in its turn.
- Ahead of requests, a process takes at most an equal share of half of what is left, and all slices
  together are at most half of it.
- Who does not get what it needs says so; then the others give their slices back.
- A slice lasts for `SLICE_SECONDS`, unless it is renewed. A process that was silent for
  `SILENT_SECONDS`, as another one measures it, is dead: its slice returns, what it used stays.

Durations are monotonic and measured by one process each, so clocks need not agree.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ledger.caps.caps import NOTHING, Amounts

SLICE_SECONDS = 8.0
"""From the begin of the last renewal that succeeded."""
SILENT_SECONDS = 11.0
"""Longer, so that no slice is used after it was given back; within 15 s with the time to notice."""

LOOK_SECONDS_MAX = 3.0
"""Who has not looked for longer does not know whether others were silent."""


class CapPart(NamedTuple):
    """What one process, or several together, have of an account."""

    spent: Amounts = NOTHING
    used: Amounts = NOTHING
    """Spent and held."""
    taken: Amounts = NOTHING
    """Used, and the slice."""


NO_CAP_PART = CapPart()


class Grant(NamedTuple):
    """What a process may take."""

    taken: Amounts
    ahead: Amounts
    """The slice to keep if no request needs more."""
    is_short: bool
    """A request fits in principle, and not beside what others took."""


class Silence:
    """How long other processes have been silent, as one process measures it."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[object, float]] = {}
        """Process -> its last heartbeat, and when that was first seen."""
        self._looked_at = float("-inf")

    def gone(self, beats: Mapping[str, object], now: float) -> set[str]:
        """Those of these that are dead. `beats`: what changes with each heartbeat."""
        if now - self._looked_at > LOOK_SECONDS_MAX:
            self._heard.clear()  # nobody could send one, perhaps
        self._looked_at = now
        self._heard = {
            process: heard
            if (heard := self._heard.get(process)) is not None and heard[0] == beat
            else (beat, now)
            for process, beat in beats.items()
        }
        return {
            process for process, (_, since) in self._heard.items() if now - since > SILENT_SECONDS
        }


def grant(
    limits: Amounts,
    own: CapPart,
    others: CapPart,
    wants: Sequence[Amounts],
    *,
    processes: int,
    is_contended: bool,
) -> Grant:
    """What a process may take that already uses and keeps `own`. `wants`: what its waiting requests
    would hold, in their order; `is_contended`: another process is short."""
    used, is_short = own.used, False
    for want in wants:
        more = plus(used, want)
        if not fits(plus(more, others.taken), limits):
            is_short = fits(plus(plus(own.spent, others.spent), want), limits)
            break
        used = more
    ahead, taken = [], []
    columns = zip(limits, own.taken, used, others.used, others.taken, strict=True)
    for limit, kept, needed, others_used, others_taken in columns:
        most = 0
        if limit is not None and not (is_short or is_contended):
            left = limit - (others_used or 0) - (needed or 0)
            slices = (others_taken or 0) - (others_used or 0)
            most = max(0, min(left // (2 * processes), left // 2 - slices))
        ahead.append(most)
        taken.append(max(kept or 0, (needed or 0) + most))
    return Grant(Amounts(*taken), Amounts(*ahead), is_short)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """The sum, of known amounts."""
    a, b, c, d = one
    e, f, g, h = other
    return Amounts(
        (a or 0) + (e or 0), (b or 0) + (f or 0), (c or 0) + (g or 0), (d or 0) + (h or 0)
    )


def minus(one: Amounts, other: Amounts) -> Amounts:
    """The difference, of known amounts."""
    a, b, c, d = one
    e, f, g, h = other
    return Amounts(
        (a or 0) - (e or 0), (b or 0) - (f or 0), (c or 0) - (g or 0), (d or 0) - (h or 0)
    )


def fits(amounts: Amounts, limits: Amounts) -> bool:
    """Whether no amount exceeds its limit."""
    for amount, limit in zip(amounts, limits, strict=True):
        if limit is not None and amount is not None and amount > limit:
            return False
    return True
