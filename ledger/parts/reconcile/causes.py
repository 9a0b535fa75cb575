"""Pure. The fewest causes that turn the ledger's costs into those of a statement.

Charges of the ledger are grouped by all that a cause can depend on (`Alike`); the statement has
an amount for each day and name (`Cells`). A cause multiplies some groups by a factor of the table
(`single_causes.py`), moves all groups to other days, multiplies cells by one fitted factor, or
fills cells that the ledger lacks. Each is tried alone. If none explains every cell, each is tried
behind the sixteen best ones and the three best ways to move the days. The answer is the complete
set with the fewest causes, those with fitted factors last. Where there is none, it is the best
cause and the best one behind it, each if it explains a twentieth of what is left.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal

from ledger.model.errors import LedgerError
from ledger.parts.reconcile.comparison import ROUNDING_PICOUSD
from ledger.parts.reconcile.single_causes import VALUES_MAX, Alike, single_causes

GROUPS_MAX = 100_000
"""Groups of charges that are searched, in some ten seconds."""
FIRSTS_MAX = 16
"""By the amount that they leave, and as many by the cells."""
MOVES_MAX = 3
"""Time zones, or days of the end, by how the days of each name compare."""
GAIN_MIN = 0.05
"""Of the difference, that a cause explains where a set leaves a rest."""

type Cell = tuple[date, str | None]
type Cells = Mapping[Cell, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause, and what it adds to the ledger's costs."""

    kind: str
    what: str
    """A sentence."""
    amount_picousd: int = 0
    """What the statement has more than the ledger by this cause."""
    moved_picousd: int = 0
    """What is on another day in the statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The causes of a difference; their amounts and the rest add up to it."""

    ledger_picousd: int
    statement_picousd: int
    causes: tuple[Cause, ...]
    rest_picousd: int
    """The sum of what is left; cells of both signs may cancel."""
    rest_cells: int
    """Cells that differ still, beyond the tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A cause with the groups, by their places, and the cells that it multiplies."""

    cause: Cause
    factors: Mapping[int, float] = field(default_factory=dict)
    cells: Mapping[Cell, float | None] = field(default_factory=dict)
    """None: the cell is filled."""


@dataclass(frozen=True, slots=True)
class _State:
    """What a set of causes makes of the groups."""

    causes: tuple[Cause, ...]
    amounts: list[float]
    places: Mapping[Cell, list[int]]
    """The groups of a cell."""
    rest: Mapping[Cell, float]
    """What the statement has more."""


def explain(
    groups: Iterable[Alike],
    stated: Cells,
    *,
    at_list: Cells | None = None,
    periods: Mapping[date, date] | None = None,
    tolerance: Decimal,
) -> Explanation:
    """The causes that turn the groups into the cells of a statement.

    `groups` begin a day before the statement and end a day after it, for time zones. `at_list`: the
    same cells before the vendor's discount, which is a cause of its own where fewer others explain
    them. `periods`: a day -> the first day of the period that the statement sums, which is the
    day of its cells. `tolerance`: a part of a cell. LedgerError for more groups than can be
    searched.
    """
    found = list(groups)
    if not stated:
        raise LedgerError("the statement has no costs to explain")
    if len(found) > GROUPS_MAX:
        raise LedgerError(
            f"{len(found)} groups of charges are too many to explain; "
            "choose a shorter period with --since and --until, or a part with --only"
        )
    results = []
    for cells in (stated, at_list):
        if cells is not None:
            search = _Search(found, cells, float(tolerance), periods or {})
            results.append((search, search.run()))
    search, best = min(results, key=lambda result: (result[0].left(result[1]), _causes(result[1])))
    total, undiscounted = sum(stated.values()), sum(search.stated.values())
    booked = round(undiscounted - sum(search.start.rest.values()))
    causes = best.causes
    if undiscounted != total:
        part = (undiscounted - total) / undiscounted if undiscounted else 0
        what = f"the vendor's discount, {part:.4%} of its list prices, as the statement has both"
        discount = Cause(kind="discount", what=what, amount_picousd=total - undiscounted)
        causes = (*causes, discount)
    return Explanation(
        ledger_picousd=booked,
        statement_picousd=total,
        causes=causes,
        rest_picousd=total - booked - sum(cause.amount_picousd for cause in causes),
        rest_cells=search.left(best),
    )


class _Search:
    def __init__(
        self,
        groups: Sequence[Alike],
        stated: Cells,
        tolerance: float,
        periods: Mapping[date, date],
    ) -> None:
        self.groups, self.stated, self.tolerance = groups, stated, tolerance
        self.periods = periods
        self.days = sorted({day for day, _ in stated})
        self.start = self._dated(group.opened.date() for group in groups)
        self.singles = [
            _Change(cause=Cause(kind=kind, what=what), factors=factors)
            for kind, what, factors in single_causes(groups, max((*periods, self.days[-1])))
        ]

    def run(self) -> _State:
        """The best set."""
        start = self.start
        if not self.left(start):
            return start
        alone = [self._applied(start, change) for change in self._changes(start)]
        moved = sorted(self._moved(), key=self._off_by_shares)[:MOVES_MAX]
        exact = [state for state in alone if state.causes[0].kind != "price"]
        firsts = [*moved, *sorted(exact, key=_off)[:FIRSTS_MAX]]
        firsts += sorted(exact, key=self.left)[:FIRSTS_MAX]
        complete = [state for state in (*moved, *alone) if not self.left(state)]
        for first in () if complete else firsts:
            # Behind it those that explain all of the cell that is off the most.
            worst = max(first.rest, key=lambda cell: abs(first.rest[cell]))
            complete += [
                self._applied(first, change)
                for change in self._changes(first)
                if not self._is_off(worst, first.rest[worst] - self._added(first, change, worst))
            ]
        complete = [state for state in complete if not self.left(state)]
        if complete:
            return min(complete, key=_causes)
        best = min((*moved, *alone), key=_off, default=start)
        if _off(best) > (1 - GAIN_MIN) * _off(start):
            return start
        both = [self._applied(best, change) for change in self._changes(best)]
        then = min(both, key=_off, default=best)
        return then if _off(then) <= (1 - GAIN_MIN) * _off(best) else best

    def left(self, state: _State) -> int:
        """The cells beyond the tolerance."""
        return sum(self._is_off(cell, amount) for cell, amount in state.rest.items())

    def _is_off(self, cell: Cell, amount: float) -> bool:
        allowed = abs(self.stated.get(cell, 0)) * self.tolerance
        return abs(amount) > max(ROUNDING_PICOUSD, allowed)

    def _dated(self, days: Iterable[date]) -> _State:
        """The groups on these days."""
        places: dict[Cell, list[int]] = defaultdict(list)
        rest = {cell: float(amount) for cell, amount in self.stated.items()}
        for place, (opened, group) in enumerate(zip(days, self.groups, strict=True)):
            day = self.periods.get(opened, opened)
            if self.days[0] <= day <= self.days[-1]:
                cell = (day, group.name)
                places[cell].append(place)
                rest[cell] = rest.get(cell, 0.0) - group.picousd
        return _State((), [float(group.picousd) for group in self.groups], places, rest)

    def _moved(self) -> Iterator[_State]:
        """The groups on other days."""
        ways = [
            ("time zone", f"the statement's days are those of UTC{hours:+d}", hours, 0)
            for hours in sorted(range(-12, 15), key=abs)
            if hours
        ]
        ways.append(("late rows", "the statement counts a request on the day of its end", 0, 1))
        for kind, what, hours, late in ways:
            state = self._dated(
                (group.opened + timedelta(hours=hours, days=late * group.is_late)).date()
                for group in self.groups
            )
            # What came to or left the statement's days, and what moved between them.
            cells = self.start.rest.keys() | state.rest.keys()
            came = [self.start.rest.get(c, 0.0) - state.rest.get(c, 0.0) for c in cells]
            net = sum(came)
            between = round((sum(abs(amount) for amount in came) - abs(net)) / 2)
            cause = Cause(kind=kind, what=what, amount_picousd=round(net), moved_picousd=between)
            yield replace(state, causes=(cause,))

    def _off_by_shares(self, state: _State) -> float:
        """What differs if the days of each name are compared by their shares of its total."""
        totals: dict[str | None, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for cell, rest in state.rest.items():
            totals[cell[1]][0] += self.stated.get(cell, 0)
            totals[cell[1]][1] += self.stated.get(cell, 0) - rest
        off = 0.0
        for cell, rest in state.rest.items():
            stated, (theirs, ours) = self.stated.get(cell, 0), totals[cell[1]]
            off += abs(stated - (stated - rest) * (theirs / ours if ours else 0))
        return off

    def _changes(self, state: _State) -> Iterator[_Change]:
        """The table, then what the rest itself gives: missing cells, and factors of prices."""
        tried = {cause.what for cause in state.causes}
        for change in (*self.singles, *self._missing(state), *self._fitted(state)):
            if change.cause.what not in tried:
                yield change

    def _missing(self, state: _State) -> Iterator[_Change]:
        """Days, names and prices that the ledger lacks."""
        lacks: dict[Cause, dict[Cell, float | None]] = defaultdict(dict)
        days, names = {day for day, _ in state.places}, {name for _, name in state.places}
        for cell in self.stated:
            for value in ({cell[0]} - days) | ({cell[1]} - names):
                what = f"{value} is not in the ledger"
                lacks[Cause(kind="missing in the ledger", what=what)][cell] = None
        for cell, places in state.places.items():
            for model in {self.groups[p].model for p in places if not self.groups[p].is_priced}:
                what = f"requests of {model} have no price, or a part of it, in the ledger"
                if state.rest[cell] > 0:
                    lacks[Cause(kind="no price", what=what)][cell] = None
        for cause, cells in lacks.items():
            yield _Change(cause=cause, cells=cells)

    def _fitted(self, state: _State) -> Iterator[_Change]:
        """One factor for a name, or everything, from a day on, or before it."""
        names: dict[str | None, int] = defaultdict(int)
        for (_, name), amount in self.stated.items():
            names[name] += amount
        costliest = sorted(names, key=lambda name: -names[name])[:VALUES_MAX]
        tried = [(f"prices of {name or 'everything'}", {name}) for name in costliest]
        if len(names) > 1:
            tried.insert(0, ("all prices", {*names}))
        for text, of in tried:
            for at, day in enumerate(self.days):
                for part, when in (
                    (self.days[at:], f"since {day}" if at else "on every day"),
                    (self.days[:at], f"before {day}"),
                ):
                    cells = [(d, n) for d in part for n in of if (d, n) in state.rest]
                    theirs = sum(self.stated.get(cell, 0) for cell in cells)
                    ours = theirs - sum(state.rest[cell] for cell in cells)
                    if ours > 0 and 0.02 <= theirs / ours <= 50:
                        what = f"{text} {when} are x{theirs / ours:.4g} of those booked"
                        factors = dict.fromkeys(cells, theirs / ours)
                        yield _Change(cause=Cause(kind="price", what=what), cells=factors)

    def _added(self, state: _State, change: _Change, cell: Cell) -> float:
        """What a cause adds to a cell."""
        if cell in change.cells:
            factor, rest = change.cells[cell], state.rest[cell]
            return rest if factor is None else (self.stated.get(cell, 0) - rest) * (factor - 1)
        factors, places = change.factors, state.places.get(cell, ())
        return sum(state.amounts[p] * (factors[p] - 1) for p in places if p in factors)

    def _applied(self, state: _State, change: _Change) -> _State:
        amounts, rest, total = list(state.amounts), dict(state.rest), 0.0
        for cell in rest:
            added = self._added(state, change, cell)
            rest[cell] -= added
            total += added
            for place in state.places.get(cell, ()) if added else ():
                amounts[place] *= change.factors.get(place, change.cells.get(cell) or 1)
        cause = replace(change.cause, amount_picousd=round(total))
        return _State((*state.causes, cause), amounts, state.places, rest)


def _off(state: _State) -> float:
    return sum(abs(amount) for amount in state.rest.values())


def _causes(state: _State) -> tuple[int, int, float]:
    """How many causes a set has, how many of them are fitted, and what is left within the
    tolerance, in micro-USD."""
    fitted = sum(cause.kind == "price" for cause in state.causes)
    return len(state.causes), fitted, round(_off(state), -6)
