"""Pure. What one percent of a plan's window buys, from the percents that answers state and the list
value of the requests between them. docs/percent.md has the method in words, and its limits.

A figure that rises from 41 to 42 says that the use of the window passed 42 % between two answers.
There it is known as exactly as what was asked between them is small. So within a window

    use at a rise = where the run begins + percent for a USD x USD recorded until the rise

Where a run begins is not known: other devices, the way of rounding, and whether a figure holds its
own request. A run ends with its window, at a request without a price, and where the figure rises by
more than the requests explain: that is unrecorded use.

1. Each rise alone, with a weight that forgets rises far from the others (Tukey's biweight), gives
   first rates. With them, what a figure holds is chosen: what fits best.
2. Slopes of some percents each, and the path through them that is likely and seldom jumps (Viterbi
   over a grid). Its jumps are changes of what a percent buys.
3. Of each time between changes: runs, and weighted least squares over their figures, with a column
   for each model, in turns. The scatter is measured, so the interval is Student's t.

These are estimates: they are floats, and no sum of money is made of them.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from ledger.figures.least_squares import EVEN, Point, Solution, dot, solution, student90

COLUMNS_MAX = 5
"""Columns of models: the dearest have one each, the others share the last."""
FULL = 100.0
"""Figures from here on may be cut off or paid for: they are left out."""
CHUNK = 5
"""Steps of the figure after which a local slope ends, though it is not exact."""
GRID_STEP = 0.04
GRID_MAX = 250
"""Values of the grid, each 1.04 times the one before: a factor of 18 000."""
SURPRISE_MAX = 4.5
"""The most that one local slope costs, so that one with unrecorded use makes no change."""
JUMP_COST = 10.0
"""A change needs three local slopes of its own."""
CHANGE_MIN = 0.06
"""A smaller change of what a percent buys is not told from scatter."""
TUKEY = 4.7
ROUNDS = 8
ORDER_ROWS = 400
"""The newest figures that choose what a figure holds."""
WIDER = 1.25
"""Intervals are wider by this: the runs are found from the figures that they are measured on. In
nine settings of the simulation (3, 6, 14 days; 1, 2, 3 models) 83-98 % of 894 hold the true value,
90 % in all; with 1.15 it was 76-96 %."""
RISES_MIN = 5
"""Rises within runs that a value needs."""
UNSURE = 3.0
"""An interval whose ends differ by more than this factor says nothing: the value is not known."""
FALLS_MAX = 0.1
"""If more of the figures fall without a reset, they are not those of one account."""
UNSURE_KIND = 0.5
"""Nor does a factor of a kind of token that is known less exactly."""
SPANS_MAX = 200
"""Spans of unrecorded use that are given, the largest."""
WEEK = 7 * 86_400.0
KINDS = ("input", "cache_read", "cache_write", "output")


class Figure(NamedTuple):
    """A figure that an answer stated and that differs from the one before. Times are seconds."""

    at: float
    percent: float
    window_from: float
    """When its window began; the time of its first figure, if that is not known."""


class Use(NamedTuple):
    """A request of the account that may have used some of its limits."""

    arrived_at: float
    ended_at: float
    model: str
    usd: float | None
    """At list prices; None: no price is known."""
    usd_of_kind: tuple[float, ...]
    """`usd` by KINDS, without cached tokens in `input`."""
    tokens: tuple[int | None, ...]
    """By KINDS, cached tokens within `input`; None: not reported."""
    is_answered: bool
    """Its answer stated the figure, if only as it was: it was no error."""
    exchange_id: str = ""
    session: str | None = None
    value_picousd: int = 0
    """`usd`, exactly; 0: not known."""


class Span(NamedTuple):
    """Use that was not recorded."""

    since: float
    until: float
    percent: float


class Change(NamedTuple):
    """Of what a percent buys, in USD."""

    at: float
    before: float
    after: float


class Value(NamedTuple):
    """What one percent buys, in USD at list prices; None: too little is known. The true value is
    between `low` and `high` with 90 %."""

    usd: float | None
    low: float | None
    high: float | None


UNKNOWN = Value(None, None, None)
_TOO_FEW = "the used share has not risen often enough yet"


class Estimate(NamedTuple):
    """What is known of one limit."""

    value: Value
    models: Mapping[str, Value]
    percent_of_model: Mapping[str, float]
    """Percent points that the recorded requests of a model used."""
    intervals: int
    """Rises of the figure that the value is measured on."""
    recorded: float | None
    """Percent points; None: not known, as the value is not."""
    unrecorded: tuple[Span, ...]
    changes: tuple[Change, ...]
    weeks: tuple[tuple[float, Value], ...]
    """From when, and the value of that week."""
    kinds: Mapping[str, tuple[float, float]]
    """Between which factors of its list price a kind of token counts, with 90 %."""
    since: float
    """Since when the value is as it is; the first figure, or the last change."""
    why: str
    """Why the value is not known; empty: it is."""


class _Row(NamedTuple):
    """A figure beside the value that was recorded until then, by column."""

    window: int
    since: float
    """When the answer before came."""
    at: float
    percent: float
    whole: tuple[float, ...]
    last: tuple[float, ...]
    """Of it, what came since the answer before."""
    begun: tuple[float, ...]
    """`whole` when the window began."""
    is_begin: bool
    """The first of its window, or of a run whose requests all have a price."""
    is_first: bool
    """No request came between the beginning of the window and the last answer: the use passed
    nothing, so where it is within a step is no chance."""


def _value(rate: float, error: float, freedom: int) -> Value:
    """Of percent for a USD, and its standard error."""
    reach = WIDER * student90(freedom) * error
    if rate <= reach or rate + reach > UNSURE * (rate - reach):
        return UNKNOWN
    return Value(1 / rate, 1 / (rate + reach), 1 / (rate - reach))


class _Recorded:
    """The recorded value until a moment, by column."""

    def __init__(
        self,
        uses: Sequence[Use],
        values: Callable[[Use], Sequence[tuple[int, float]]],
        columns: int,
    ) -> None:
        self._sums = {}
        for order in ("arrived_at", "ended_at"):
            whole, sums, times = [0.0] * columns, [(0.0,) * columns], []
            for use in sorted(uses, key=lambda use: getattr(use, order)):
                for column, value in values(use):
                    whole[column] += value
                sums.append(tuple(whole))
                times.append(getattr(use, order))
            self._sums[order] = times, sums

    def until(self, at: float, order: str) -> tuple[float, ...]:
        """`own`: of all that arrived until then; `before`: before then; `ended`: that ended."""
        times, sums = self._sums["ended_at" if order == "ended" else "arrived_at"]
        return sums[(bisect_left if order == "before" else bisect_right)(times, at)]


def _rows(
    figures: Sequence[Figure], uses: Sequence[Use], recorded: _Recorded, order: str, step: float
) -> tuple[list[_Row], int]:
    """The rows, and how many figures fall without a reset. What falls by a step and rises again is
    the figure of an answer that was overtaken."""
    answered = sorted(use.arrived_at for use in uses if use.is_answered)
    unpriced = sorted(use.arrived_at for use in uses if use.usd is None)
    rows: list[_Row] = []
    falls = 0
    for window, (begin, group) in enumerate(groupby(figures, key=lambda each: each.window_from)):
        begun = recorded.until(begin, "before")
        last: Figure | None = None
        for each in group:
            if last and last.percent - 1.5 * step <= each.percent <= last.percent:
                continue
            is_fall = last is not None and each.percent < last.percent
            falls += is_fall
            place = bisect_left(answered, each.at)
            since = max(answered[place - 1] if place else begin, last.at if last else begin)
            before, whole = recorded.until(since, order), recorded.until(each.at, order)
            passed = bisect_right(unpriced, last.at if last else begin)
            if each.percent < FULL:
                rows.append(
                    _Row(
                        window=window,
                        since=since,
                        at=each.at,
                        percent=each.percent,
                        whole=whole,
                        last=tuple(a - b for a, b in zip(whole, before, strict=True)),
                        begun=begun,
                        is_begin=not last or is_fall or passed < bisect_right(unpriced, each.at),
                        is_first=not last or before == begun,
                    )
                )
            last = each
    return rows, falls


def _width(row: _Row, rates: Sequence[float], step: float) -> float:
    """How exactly the use is known at a figure: to what came since the answer before."""
    return min(step, max(dot(rates, row.last), step / 100))


def _point(row: _Row, rates: Sequence[float], step: float, *, is_loose: bool = False) -> Point:
    """The use passed the figure in the middle of what came since the answer before; where that is a
    step or more, or is not all (`is_loose`), the use is in the middle of the step."""
    width = _width(row, rates, step)
    if is_loose or width >= step:
        return step**-2, row.percent + step / 2, [*row.whole]
    half = [whole - last / 2 for whole, last in zip(row.whole, row.last, strict=True)]
    return width**-2, row.percent, half


def _first_rates(
    rows: Sequence[_Row], start: float, step: float
) -> tuple[list[float], float, float]:
    """Rates by each rise alone, their error as a share of the use, and the scatter: the median
    distance of a rise in widths."""
    rises = [(a, b) for a, b in pairwise(rows) if not (b.is_begin or a.is_first)]
    rates = [start] * (len(rows[0].whole) if rows else 0)
    trust, error, scatter = 0.6, 1.0, math.inf
    for _ in range(ROUNDS):
        points: list[Point] = []
        distances = []
        for before, row in rises:
            (weight_a, a, from_), (weight_b, b, to) = (
                _point(r, rates, step) for r in (before, row)
            )
            value = [new - old for old, new in zip(from_, to, strict=True)]
            expected = dot(rates, value)
            spread = math.sqrt(EVEN / weight_a + EVEN / weight_b)
            distances.append(abs(b - a - expected) / spread)
            far = (b - a - expected) / max(spread, trust * expected) / TUKEY
            if abs(far) < 1:
                points.append(((1 - far**2) ** 2 / spread**2, b - a, value))
        fitted = solution(points, len(points), start)
        if fitted is None:
            break
        rates = [max(rate, start / 20) for rate in fitted.rates]
        whole = [sum(values) for values in zip(*(x for _, _, x in points), strict=True)]
        error = fitted.error(whole) / max(dot(whole, rates), step)
        scatter = sorted(distances)[len(distances) // 2]
        trust = max(0.0, trust / 2 - 0.01)
    return rates, error, scatter


def _runs(
    rows: Sequence[_Row], rates: Sequence[float], step: float, loose: float
) -> list[list[_Row]]:
    """The rows by runs: a new one where the figure leaves what the recorded value allows. `loose`:
    how much of the use since the run began is allowed beside it."""
    runs: list[list[_Row]] = []
    low = high = begun = 0.0
    for row in rows:
        recorded = dot(rates, row.whole)
        offset, width = row.percent - recorded, _width(row, rates, step)
        slack = loose * (recorded - begun) + step / 50
        if row.is_begin or not runs or offset > high + slack or offset + width < low - slack:
            runs.append([])
            low, high, begun = offset, offset + step, recorded
        low, high = max(low, offset), min(high, offset + (width if runs[-1] else step))
        runs[-1].append(row)
    return runs


def _centred(
    runs: Iterable[Sequence[_Row]], rates: Sequence[float], step: float
) -> list[list[Point]]:
    """The points of each run with several, less their mean."""
    found = []
    for run in runs:
        points = [_point(r, rates, step, is_loose=r is run[0]) for r in run if not r.is_first]
        if len(points) > 1:
            whole = sum(weight for weight, _, _ in points)
            mean = sum(w * y for w, y, _ in points) / whole
            columns = zip(*([w * value for value in x] for w, _, x in points), strict=True)
            means = [sum(column) / whole for column in columns]
            found.append(
                [
                    (w, y - mean, [v - m for v, m in zip(x, means, strict=True)])
                    for w, y, x in points
                ]
            )
    return found


class _Fit(NamedTuple):
    """The runs of a time without a change, and their rates."""

    solution: Solution
    runs: list[list[_Row]]
    rises: int
    value: Value
    """Over all columns, at the shares in which they were recorded."""


def _fit(rows: Sequence[_Row], start: float, step: float, whole: Sequence[float]) -> _Fit | None:
    """The runs and the rates that agree; `whole`: what was recorded of each column."""
    found: _Fit | None = None
    if not rows or (usd := sum(whole)) <= 0:
        return found
    shares = [each / usd for each in whole]
    rates, error, _ = _first_rates(rows, start, step)
    for _ in range(ROUNDS // 2):
        runs = _runs(rows, rates, step, min(0.3, 2 * error + 0.0002))
        centred = _centred(runs, rates, step)
        rises = sum(len(points) - 1 for points in centred)
        fitted = solution([point for points in centred for point in points], rises, start)
        if fitted is None:
            break
        ends = ([b - a for a, b in zip(r[0].whole, r[-1].whole, strict=True)] for r in runs)
        in_runs = [sum(values) for values in zip(*ends, strict=True)]
        rate, wrong = dot(shares, fitted.rates), fitted.error(shares)
        is_enough = rises >= RISES_MIN
        value = _value(rate, wrong, fitted.freedom) if is_enough else UNKNOWN
        found = _Fit(fitted, runs, rises, value)
        rates = [max(rate, start / 20) for rate in fitted.rates]
        error = fitted.error(in_runs) / max(dot(in_runs, rates), step)
    return found


def _slopes(
    rows: Sequence[_Row], rates: Sequence[float], step: float
) -> Iterator[tuple[float, float, float]]:
    """Local slopes against the first rates: when each begins, its logarithm and its deviation."""
    begin: _Row | None = None
    for row in rows:
        if begin is None or row.is_begin or begin.is_first:
            begin = row
            continue
        (weight_a, a, from_), (weight_b, b, to) = (_point(r, rates, step) for r in (begin, row))
        rise, expected = b - a, dot(rates, to) - dot(rates, from_)
        if rise < 2 * step or expected <= 0:
            continue
        deviation = math.sqrt(EVEN / weight_a + EVEN / weight_b) / rise
        if deviation <= GRID_STEP or rise >= CHUNK * step:
            yield begin.at, math.log(rise / expected), max(GRID_STEP, deviation)
            begin = row


def _change_times(slopes: Sequence[tuple[float, float, float]]) -> list[float]:
    """When the most likely path through the slopes jumps."""
    low = min(value for _, value, _ in slopes)
    size = min(GRID_MAX, int((max(value for _, value, _ in slopes) - low) / GRID_STEP) + 2)
    cost = [0.0] * size
    came_from: list[list[int]] = []
    for _, value, deviation in slopes:
        best = min(range(size), key=cost.__getitem__)
        jump = cost[best] + JUMP_COST
        came_from.append([at if cost[at] <= jump else best for at in range(size)])
        far = (((value - low - GRID_STEP * at) / deviation) ** 2 / 2 for at in range(size))
        cost = [min(cost[at], jump) + min(each, SURPRISE_MAX) for at, each in enumerate(far)]
    at = min(range(size), key=cost.__getitem__)
    path = []
    for came in reversed(came_from):
        path.append(at)
        at = came[at]
    path.reverse()
    return [slopes[at + 1][0] for at, (a, b) in enumerate(pairwise(path)) if a != b]


def estimate(figures: Sequence[Figure], uses: Sequence[Use]) -> Estimate:
    """What is known of one limit: its figures, the earliest first, and its account's requests."""
    if len(figures) < 2:
        return _unknown(figures, _TOO_FEW)
    usd: dict[str, float] = defaultdict(float)
    for use in uses:
        if use.usd:  # what used nothing, as an error, is no model of the plan
            usd[use.model] += use.usd
    dearest = sorted(usd, key=lambda model: -usd[model])
    column = {model: min(at, COLUMNS_MAX - 1) for at, model in enumerate(dearest)}
    columns = min(len(column), COLUMNS_MAX)
    step = math.gcd(*(round(each.percent * 10_000) for each in figures)) / 10_000 or 1.0
    recorded = _Recorded(
        uses, lambda use: [(column[use.model], use.usd)] if use.usd else [], columns
    )
    best: tuple[float, str, list[_Row], int] | None = None
    rates: list[float] = []
    for order in ("own", "before", "ended"):
        rows, falls = _rows(figures, uses, recorded, order, step)
        pairs = [(a, b) for a, b in pairwise(rows) if not b.is_begin]
        value = sum(sum(b.whole) - sum(a.whole) for a, b in pairs)
        if value <= 0:
            continue
        start = sum(b.percent - a.percent for a, b in pairs) / value
        _, _, scatter = _first_rates(rows[-ORDER_ROWS:], start, step)
        if best is None or scatter < best[0]:
            best = scatter, order, rows, falls
            rates = [start] * columns
    if best is None:
        return _unknown(figures, "no recorded request between two figures has a price")
    _, order, rows, falls = best
    if falls > max(2, FALLS_MAX * len(figures)):
        return _unknown(figures, "figures fall without a reset: are they of two accounts?")
    fits = _fits(rows, rates[0], step, recorded)
    if not fits or fits[-1][1].value.usd is None:
        return _unknown(figures, _TOO_FEW)
    since, fit = fits[-1]
    spans = sorted(_spans(fits, step), key=lambda span: -span.percent)
    stated = 0.0
    for _, window in groupby(figures, key=lambda each: each.window_from):
        stated += min(FULL, max(each.percent for each in window))
    total = max(0.0, stated - sum(span.percent for span in spans))
    by_column = [max(rate, 0.0) for rate in fit.solution.rates]
    used = {model: by_column[at] * usd[model] for model, at in column.items()}
    scale = total / (sum(used.values()) or 1.0)
    singles = [[float(at == other) for other in range(columns)] for at in range(columns)]
    of_column = [
        _value(fit.solution.rates[at], fit.solution.error(single), fit.solution.freedom)
        for at, single in enumerate(singles)
    ]
    return Estimate(
        value=fit.value,
        models={model: of_column[at] for model, at in column.items()},
        percent_of_model={model: percent * scale for model, percent in used.items()},
        intervals=fit.rises,
        recorded=total,
        unrecorded=tuple(sorted(spans[:SPANS_MAX])),
        changes=tuple(
            Change(at, before.value.usd, after.value.usd)
            for (_, before), (at, after) in pairwise(fits)
            if before.value.usd is not None and after.value.usd is not None
        ),
        weeks=tuple(_weeks(fits, step)),
        kinds=_kinds(
            figures,
            uses,
            [by_column[column.get(use.model, 0)] for use in uses],
            fit.runs,
            order=order,
            step=step,
        ),
        since=since,
        why="",
    )


def _unknown(figures: Sequence[Figure], why: str) -> Estimate:
    since = figures[0].at if figures else 0.0
    return Estimate(UNKNOWN, {}, {}, 0, None, (), (), (), {}, since, why)


def _fits(
    rows: Sequence[_Row], start: float, step: float, recorded: _Recorded
) -> list[tuple[float, _Fit]]:
    """The times without a change, and when each begins. A change by too little is none."""
    rates, _, _ = _first_rates(rows, start, step)
    slopes = [*_slopes(rows, rates, step)]
    times = _change_times(slopes) if slopes else []
    while True:
        begins = [rows[0].at, *times]
        fits = []
        for at, begin in enumerate(begins):
            end = times[at] if at < len(times) else math.inf
            until, since = recorded.until(end, "before"), recorded.until(begin, "before")
            whole = [b - a for a, b in zip(since if at else [0.0] * len(since), until, strict=True)]
            fit = _fit([row for row in rows if begin <= row.at < end], start, step, whole)
            if fit is not None:
                fits.append((begin, fit))
        for (_, before), (changed_at, after) in pairwise(fits):
            old, new = before.value.usd, after.value.usd
            if old is None or new is None or abs(math.log(new / old)) < CHANGE_MIN:
                times = [time for time in times if time != changed_at]
                break
        else:
            return fits


def _offset(run: Sequence[_Row], rates: Sequence[float], step: float) -> float:
    """Where a run begins: the use beside what was recorded."""
    points = [_point(row, rates, step, is_loose=row is run[0]) for row in run]
    whole = sum(weight for weight, _, _ in points)
    return sum(w * (y - dot(rates, x)) for w, y, x in points) / whole


def _spans(fits: Sequence[tuple[float, _Fit]], step: float) -> Iterator[Span]:
    """Unrecorded use: before the first figure of a window, and between two runs of one."""
    for _, fit in fits:
        rates, before = fit.solution.rates, None
        for run in fit.runs:
            offset, first = _offset(run, rates, step), run[0]
            if before is None or before[0].window != first.window:
                percent, least, since = offset + dot(rates, first.begun), 1.5 * step, first.since
            else:
                percent, least, since = offset - _offset(before, rates, step), step / 4, first.since
            if percent > least and not (
                before is not None and before[0].window == first.window and first.is_begin
            ):
                yield Span(since, first.at, percent)
            before = run


def _weeks(fits: Sequence[tuple[float, _Fit]], step: float) -> Iterator[tuple[float, Value]]:
    """The value of each week, at the models' shares of its time without a change."""
    for since, fit in fits:
        value = fit.value
        if value.usd is None:
            continue
        rates = fit.solution.rates
        for week, group in groupby(fit.runs, key=lambda run: run[0].at // WEEK):
            centred = _centred(group, rates, step)
            points = [(w, y, [dot(rates, x)]) for points in centred for w, y, x in points]
            fitted = solution(points, sum(len(points) - 1 for points in centred), 1.0)
            if fitted is not None:
                factor = _value(fitted.rates[0], fitted.error([1.0]), fitted.freedom)
                if factor.usd is not None and factor.low is not None and factor.high is not None:
                    scaled = (value.usd * each for each in (factor.usd, factor.low, factor.high))
                    yield max(since, week * WEEK), Value(*scaled)


def _kinds(
    figures: Sequence[Figure],
    uses: Sequence[Use],
    rates: Sequence[float],
    runs: Sequence[Sequence[_Row]],
    *,
    order: str,
    step: float,
) -> dict[str, tuple[float, float]]:
    """How each kind of token counts beside the others: the same runs, with a column of the percent
    that the kind should have used and one of the rest. `rates`: of each request."""
    found: dict[str, tuple[float, float]] = {}
    rate_of = {id(use): rate for use, rate in zip(uses, rates, strict=True)}
    for at, kind in enumerate(KINDS):

        def split(use: Use, at: int = at) -> Sequence[tuple[int, float]]:
            rate, part = rate_of[id(use)], use.usd_of_kind[at]
            return (0, rate * ((use.usd or 0.0) - part)), (1, rate * part)

        recorded = _Recorded(uses, split, 2)
        rows = {(r.at, r.percent): r for r in _rows(figures, uses, recorded, order, step)[0]}
        alike = ([rows[row.at, row.percent] for row in run] for run in runs)
        centred = _centred(alike, (1.0, 1.0), step)
        rises = sum(len(points) - 1 for points in centred)
        fitted = solution([point for points in centred for point in points], rises, 0.0)
        if fitted is not None and fitted.rates[0] > 0:
            factor = fitted.rates[1] / fitted.rates[0]
            error = fitted.error([-factor, 1.0]) / fitted.rates[0]
            reach = student90(fitted.freedom) * error
            if reach < UNSURE_KIND:
                found[kind] = max(0.0, factor - reach), factor + reach
    return found
