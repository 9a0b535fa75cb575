"""Pure. What one percent of a plan's window buys, from the percents that answers state and the list
value of the requests between them. docs/percent.md has the method in words, and its limits.

1. A figure that rises says that the use passed a whole percent between two answers. So each window
   has one ratio: the list value of the requests between its first rise and its last one, over the
   percents between them. Where the window began and how figures are rounded does not matter.
2. The value is the median of these ratios, each weighted by its percents.
3. The interval is that of the sign test: a ratio is above the true value as often as below, so the
   weight below it is half of all, give or take. A ratio itself is known to half a request.
4. A change is a moment whose ratios before and after have intervals that do not overlap.

These are estimates: they are floats, and no sum of money is made of them.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from math import inf, sqrt
from statistics import NormalDist
from types import MappingProxyType
from typing import NamedTuple

CONFIDENCE = 0.90
"""Of an interval that is stated."""
CHANGE_CONFIDENCE = 0.97
"""Of the intervals before and after a change: many moments are tried."""
CHANGE_MIN = 1.03
"""The factor that the intervals are apart at a change."""
STRETCHES_MIN = 4
"""Ratios that a value is made of, at least."""
STRETCHES_MAX = 400
"""Ratios that are looked at, the newest: three months of windows of five hours."""
RISE_MIN = 2.0
"""Percents of a ratio; below, one request decides."""
UNSURE = 3.0
"""An interval whose ends differ by more than this factor says nothing: the value is not known."""
FULL = 100.0
"""Figures from here on may be cut off or paid for: they are left out."""
STEP = 1.0
"""Percents: answers that overtake each other differ by no more, nor do two ways of rounding."""
FALLS_MAX = 0.1
"""If more of the figures fall without a reset, they are not those of one account."""
DAY = 86_400.0


class StatedPercent(NamedTuple):
    """A figure that an answer stated and that differs from the one before. Times are seconds."""

    at: float
    percent: float
    window_from: float
    """When its window began; the time of its first figure, if that is not known."""


class Use(NamedTuple):
    """A request of the account that may have used some of its limits."""

    arrived_at: float
    model: str
    usd: float | None
    """At list prices; None: no price is known."""
    is_answered: bool
    """Its answer stated the figure, if only as it was: it was no error."""
    exchange_id: str = ""
    session: str | None = None
    value_picousd: int = 0
    """`usd`, exactly; 0: not known."""


class Value(NamedTuple):
    """What one percent buys, in USD at list prices; None: too little is known. The true value is
    between `low` and `high` with 90 %."""

    usd: float | None
    low: float | None
    high: float | None


class ValueChange(NamedTuple):
    """Of what a percent buys, in USD."""

    at: float
    before: float
    after: float


UNKNOWN = Value(None, None, None)
_TOO_FEW = "the used share has not risen often enough yet"


class Estimate(NamedTuple):
    """What is known of one limit."""

    value: Value = UNKNOWN
    """Since the last change."""
    models: Mapping[str, Value] = MappingProxyType({})
    """By model, from windows in which it was used alone."""
    percent_of_model: Mapping[str, float] = MappingProxyType({})
    """Of `recorded`, by list value at the model's own value of a percent, where it is known."""
    intervals: int = 0
    """Ratios that the value is made of."""
    recorded: float | None = None
    """Percent points that recorded requests used; None: not known, as the value is not."""
    unrecorded: float | None = None
    """Percent points that were used beside them."""
    changes: tuple[ValueChange, ...] = ()
    levels: tuple[tuple[float, Value], ...] = ()
    """From when, and the value until the next change."""
    why: str = ""
    """Why the value is not known; empty: it is."""

    def rows(self) -> Iterator[tuple[str | None, Value, float | None]]:
        """Over all models (None), then of each, that with most use first: value and percents."""
        yield None, self.value, self.recorded
        for model in sorted(self.models, key=lambda model: -self.percent_of_model[model]):
            yield model, self.models[model], self.percent_of_model[model]


class _Stretch(NamedTuple):
    """What lies between two rises of one window."""

    at: float
    percent: float
    usd: float
    requests: int
    models: frozenset[str]

    @property
    def ratio(self) -> float:
        return self.usd / self.percent


def estimate(figures: Sequence[StatedPercent], uses: Sequence[Use]) -> Estimate:
    """What is known of one limit: its figures, the earliest first, and its account's requests."""
    uses = sorted(uses, key=lambda use: use.arrived_at)
    figures = [figure for figure in figures if figure.percent < FULL]
    windows = [[*group] for _, group in groupby(figures, key=lambda each: each.window_from)]
    pairs = [pair for window in windows for pair in pairwise(window)]
    falls = sum(after.percent < before.percent - STEP for before, after in pairs)
    if falls > max(2, FALLS_MAX * len(figures)):
        return Estimate(why="figures fall without a reset: are they of two accounts?")
    stretches = [*_stretches(windows, uses)][-STRETCHES_MAX:]
    if not stretches and windows and not any(use.usd for use in uses):
        return Estimate(why="no recorded request between two figures has a price")
    periods = _periods(stretches)
    levels = [(period[0].at, _value(period, CONFIDENCE)) for period in periods if period]
    if not levels or levels[-1][1].usd is None:
        return Estimate(why=_TOO_FEW)
    value = levels[-1][1]
    recorded, unrecorded = _shares(windows, uses, levels)
    used: dict[str, float] = defaultdict(float)
    for use in uses:
        if use.usd:  # what used nothing, as an error, is no model of the plan
            used[use.model] += use.usd
    models = {
        model: _value([each for each in periods[-1] if each.models == {model}], CONFIDENCE)
        for model in used
    }
    used = {model: usd / (models[model].usd or value.usd or 1.0) for model, usd in used.items()}
    return Estimate(
        value=value,
        models=models,
        percent_of_model={
            model: recorded * percent / sum(used.values()) for model, percent in used.items()
        },
        intervals=len(periods[-1]),
        recorded=recorded,
        unrecorded=unrecorded,
        changes=tuple(
            ValueChange(at, before.usd, after.usd)
            for (_, before), (at, after) in pairwise(levels)
            if before.usd is not None and after.usd is not None
        ),
        levels=tuple(level for level in levels if level[1].usd is not None),
    )


def _stretches(
    windows: Sequence[Sequence[StatedPercent]], uses: Sequence[Use]
) -> Iterator[_Stretch]:
    """The longest stretch of each window whose requests all have a price, from rise to rise. A
    window that is longer than a day has one for each day."""
    times = [use.arrived_at for use in uses]
    unpriced = [use.arrived_at for use in uses if use.usd is None]
    for window in windows:
        # The first figure is no rise: the use is anywhere within its step.
        top = window[0].percent
        by_day = groupby(window[1:], key=lambda figure: (figure.at - figure.window_from) // DAY)
        for _, figures in by_day:
            runs: list[list[StatedPercent]] = [[]]
            for figure in figures:
                if figure.percent < top - STEP:  # it was corrected
                    top = figure.percent
                    runs.append([])
                elif figure.percent > top:
                    top = figure.percent
                    before = runs[-1][-1].at if runs[-1] else figure.at
                    if bisect_right(unpriced, before) < bisect_right(unpriced, figure.at):
                        runs.append([])
                    runs[-1].append(figure)
            begin, end = max(
                ((run[0], run[-1]) for run in runs if run),
                key=lambda ends: ends[1].percent - ends[0].percent,
                default=(window[0], window[0]),
            )
            its = uses[bisect_right(times, begin.at) : bisect_right(times, end.at)]
            priced = [use for use in its if use.usd]
            if priced and end.percent - begin.percent >= RISE_MIN:
                yield _Stretch(
                    at=begin.at,
                    percent=end.percent - begin.percent,
                    usd=sum(use.usd or 0.0 for use in priced),
                    requests=len(priced),
                    models=frozenset(use.model for use in priced),
                )


def _value(stretches: Sequence[_Stretch], confidence: float) -> Value:
    """The weighted median of the ratios, and the interval of the sign test."""
    if len(stretches) < STRETCHES_MIN:
        return UNKNOWN
    whole = sum(each.percent for each in stretches)
    # Half of the weight is below the true value, with the deviation of as many coins as ratios.
    deviation = sqrt(sum(each.percent**2 for each in stretches)) / whole / 2
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * deviation
    if reach >= 0.5:  # one end of the interval is beyond all ratios
        return UNKNOWN
    found = []
    # The use passes a percent somewhere within a request: a ratio is known to half of one.
    for share, requests in ((0.5, 0.0), (0.5 - reach, -0.5), (0.5 + reach, 0.5)):
        ratios = sorted((s.ratio * (1 + requests / s.requests), s.percent) for s in stretches)
        below = [*accumulate(weight for _, weight in ratios)]
        place = bisect_left(below, share * whole)
        found.append(ratios[min(place, len(ratios) - 1)][0])
    usd, low, high = found
    return Value(usd, low, high) if low > 0 and high <= UNSURE * low else UNKNOWN


def _periods(stretches: Sequence[_Stretch]) -> list[Sequence[_Stretch]]:
    """The stretches cut at each change of what a percent buys: of the moments whose intervals
    before and after are apart, the one that leaves the ratios nearest to their medians."""
    least, cut = inf, 0
    for at in range(STRETCHES_MIN, len(stretches) - STRETCHES_MIN + 1):
        sides = [(its, _value(its, CHANGE_CONFIDENCE)) for its in (stretches[:at], stretches[at:])]
        (_, (_, low, high)), (_, (_, low_after, high_after)) = sides
        if low and high and low_after and high_after:
            distance = sum(
                each.percent * abs(each.ratio - (value.usd or 0.0))
                for its, value in sides
                for each in its
            )
            if max(low / high_after, low_after / high) > CHANGE_MIN and distance < least:
                least, cut = distance, at
    if not cut:
        return [stretches]
    return _periods(stretches[:cut]) + _periods(stretches[cut:])


def _shares(
    windows: Sequence[Sequence[StatedPercent]],
    uses: Sequence[Use],
    levels: Sequence[tuple[float, Value]],
) -> tuple[float, float]:
    """Percent points that recorded requests used in all windows, and those beyond them. What
    a step of the figure leaves open is no unrecorded use."""
    times = [use.arrived_at for use in uses]
    sums = [0.0, *accumulate(use.usd or 0.0 for use in uses)]
    begins = [at for at, _ in levels]
    recorded = unrecorded = 0.0
    for window in windows:
        stated = max(figure.percent for figure in window)
        since = bisect_left(times, window[0].window_from)
        usd = max(0.0, sums[bisect_right(times, window[-1].at)] - sums[since])
        value = levels[max(0, bisect_right(begins, window[-1].at) - 1)][1]
        more = 0.0
        if value.usd and stated > usd / value.usd + STEP:
            more = stated - usd / value.usd
        recorded += stated - more
        unrecorded += more
    return recorded, unrecorded
