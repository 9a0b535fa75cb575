"""Pure. Data of charts for the script: bars stacked by name, and lines over time.

Amounts are whole micro-USD: the script divides them for its axis; a table beside the chart has
every exact figure.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from ledger.parts.pages.period import Period, bar_name
from ledger.parts.pages.period_sums import Groups, ranked_names
from ledger.text.printable import short_text

COLOURS = 8
LEVELS_MAX = 4
"""Lines of budgets; more than two budgets of everything are a slip."""
STACKED_MAX = 7
"""Names with a colour of their own; the rest is grey."""
OTHER_NAMES = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Bars over time, stacked by name: cost, tokens and requests of each."""

    word: str
    title: str
    bar: str
    bars: tuple[str, ...]
    names: tuple[str, ...]
    """The costliest first; the last may stand for the rest."""
    rest: bool
    colours: tuple[int, ...]
    """The colour of each name, 0 to 7."""
    microusd: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[int, ...], ...]
    requests: tuple[tuple[int, ...], ...]

    @property
    def measure(self) -> str:
        """What is drawn at first: what has figures."""
        names = ("microusd", "tokens")
        return next((name for name in names if any(map(any, getattr(self, name)))), "requests")

    def members(self) -> dict[str, Any]:
        """As JSON for the script."""
        return {"kind": "stack", **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines over time in one unit; None if nothing was measured."""

    title: str
    unit: str
    """ms or percent."""
    bars: tuple[str, ...]
    names: tuple[str, ...]
    values: tuple[tuple[int | None, ...], ...]
    """Milliseconds, or hundredths of a percent."""

    @property
    def is_drawn(self) -> bool:
        """Whether there is a line: one point says no more than the figure beside it."""
        return any(sum(value is not None for value in line) > 1 for line in self.values)

    def members(self) -> dict[str, Any]:
        """As JSON for the script."""
        return {"kind": "lines", **asdict(self)}


def stack(
    word: str, title: str, groups: Groups, period: Period, labels: Mapping[str | None, str]
) -> Stack:
    """The groups as bars of a period, the costliest names first and the rest as one."""
    ranked = ranked_names(groups)
    shown, rest = ranked[:STACKED_MAX], ranked[STACKED_MAX:]
    if len(rest) == 1:
        shown, rest = ranked, []
    place = {name: index for index, name in enumerate(shown)}
    # Includes requests that a wrong clock dates after now: they are in the totals.
    bars = sorted({*period.bars(), *(bar_name(time, period.bar) for time, _ in groups)})
    at = {name: index for index, name in enumerate(bars)}
    rows = len(shown) + bool(rest)
    microusd, tokens, requests = ([[0] * len(bars) for _ in range(rows)] for _ in range(3))
    for (time, name), sums in groups.items():
        column = at[bar_name(time, period.bar)]
        row = place.get(name, len(shown))
        microusd[row][column] += (sums.cost_picousd or 0) // 10**6
        tokens[row][column] += (sums.input_tokens or 0) + (sums.output_tokens or 0)
        requests[row][column] += sums.requests
    names = [short_text(labels.get(name, name or f"(no {word})")) for name in shown]
    return Stack(
        word=word,
        title=title,
        bar=period.bar,
        bars=tuple(bars),
        names=(*names, f"{OTHER_NAMES} ({len(rest)})") if rest else tuple(names),
        rest=bool(rest),
        colours=colours_of([name or "" for name in shown]),
        microusd=tuple(map(tuple, microusd)),
        tokens=tuple(map(tuple, tokens)),
        requests=tuple(map(tuple, requests)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A line across the bars of cost."""

    name: str
    microusd: int
    """For one bar."""


BARS_A_DAY = {
    "hour": Fraction(24),
    "day": Fraction(1),
    "week": Fraction(1, 7),
    "month": Fraction(12, 365),
}


def levels(rates: Iterable[tuple[str, Fraction]], bar: str) -> tuple[Level, ...]:
    """Pico-USD a day -> lines across the bars."""
    found = [
        Level(name=name, microusd=int(a_day / BARS_A_DAY[bar]) // 10**6) for name, a_day in rates
    ]
    return tuple(found[:LEVELS_MAX])


def colours_of(names: Sequence[str]) -> tuple[int, ...]:
    """A colour for each name, by the name and not by its rank: whatever the period, a model has the
    colour that it had, unless another one that is shown takes it."""
    found: dict[str, int] = {}
    for name in sorted(names):
        colour = zlib.crc32(name.encode("utf-8", "surrogatepass")) % COLOURS
        while colour in found.values() and len(found) < COLOURS:
            colour = (colour + 1) % COLOURS
        found[name] = colour
    return tuple(found[name] for name in names)
