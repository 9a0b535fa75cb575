"""Pure. What a percent of a plan's window bought, and each change of it, as a picture: points in a
box that the page draws as SVG, without a script."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ledger.parts.plans.limit_values import LimitValue
from ledger.parts.plans.percent_value import Value

WIDTH, HEIGHT, FOOT = 360, 120, 16
"""As wide as a card on the narrowest screen, so that its texts are not scaled there."""
SECONDS_MIN = 86_400.0
PICTURES_MAX = 8
"""Limits with a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One limit; places are in the box."""

    title: str
    now: Value
    line: str
    """The value, as points `x,y x,y`: two for each level, its begin and its end."""
    band: str
    """Between its two ends."""
    changes: tuple[float, ...]
    """x of each change."""
    top_usd: float
    """The value at the upper edge; 0 is at the lower one."""
    first: str
    last: str
    """Days at the left and right edge."""
    levels: tuple[tuple[str, Value], ...]
    """The same as text: the day of a level's begin, and its value."""
    notes: tuple[str, ...]
    width: int = WIDTH
    height: int = HEIGHT
    floor: int = HEIGHT - FOOT
    """The y of 0; below are the days."""


def pictures(values: Sequence[LimitValue], notes: Sequence[Sequence[str]]) -> list[Picture]:
    """A picture of each limit whose value is known; `notes`: of each limit, in words."""
    drawn: list[Picture] = []
    for limit, texts in zip(values, notes, strict=True):
        known = limit.estimate
        if not known.levels or len(drawn) == PICTURES_MAX:
            continue
        first, last = known.levels[0][0], limit.observed_at.timestamp()
        scale = WIDTH / max(last - first, SECONDS_MIN)
        top = max(value.high or 0.0 for _, value in known.levels) * 1.05
        ends = [at for at, _ in known.levels[1:]] + [last]
        # A change is a step at its moment.
        sides = [
            pair for (at, _), end in zip(known.levels, ends, strict=True) for pair in (at, end)
        ]
        places = [(side - first) * scale for side in sides]
        levels = [value for _, value in known.levels for _ in range(2)]
        upper = _points([value.high for value in levels], places, top)
        lower = _points([value.low for value in levels], places, top)
        drawn.append(
            Picture(
                title=f"{limit.provider} {limit.window} {limit.holder[:8]}".rstrip(),
                now=known.value,
                line=" ".join(_points([value.usd for value in levels], places, top)),
                band=" ".join([*upper, *reversed(lower)]),
                changes=tuple(round((each.at - first) * scale, 1) for each in known.changes),
                top_usd=top,
                first=_day(first),
                last=_day(last),
                levels=tuple((_day(at), value) for at, value in known.levels),
                notes=tuple(texts),
            )
        )
    return drawn


def _points(heights: Sequence[float | None], places: Sequence[float], top: float) -> list[str]:
    tall = ((HEIGHT - FOOT) * (1 - (height or 0.0) / top) for height in heights)
    return [f"{x:.1f},{y:.1f}" for x, y in zip(places, tall, strict=True)]


def _day(moment: float) -> str:
    at = datetime.fromtimestamp(moment, UTC)
    return f"{at.day} {at:%b}"
