"""Pure. The smallest set of causes that turns the ledger's costs into those of a statement.

Charges of the ledger are grouped by all that a cause can depend on (`Alike`); the statement has
an amount for each day and name (`Cells`). A cause multiplies some of the groups (a region, a tier,
what is counted twice or left out), moves all of them to other days (a time zone), or is the amount
of cells that the ledger has not at all. Causes of one set stack.

A step looks for one cause that explains every cell, then for two, the first of which explains
something alone. A cause without a free figure counts for less than one whose factor is fitted, and
the set that counts least is the answer. Where there is none, the cause that explains the most is
applied, if that is a twentieth of the difference, and the next step begins.

Work is bounded: groups by `GROUPS_MAX`, pairs by `PAIRED_MAX` and `VISITS_MAX`, sets
by `CAUSES_MAX`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial

from ledger.model.errors import LedgerError
from ledger.reconcile.comparison import ROUNDING_PICOUSD
from ledger.reconcile.tries import (
    ABSENT,
    FITTED,
    NAMED,
    TRIED_VALUES_MAX,
    Alike,
    Cause,
    Cell,
    Cells,
    Try,
    named,
    unique,
)

GROUPS_MAX = 200_000
"""Groups of charges that are read."""
MERGED_MAX = 20_000
"""Groups of a day, in which the search works."""
VISITS_MAX = 4_000_000
"""Groups that all pairs of a step look at: half a second."""
PAIRED_MAX = 60
"""Causes that are the first of a pair, those that explain the most."""
CAUSES_MAX = 4
GAIN_MIN = 0.05
"""Of the difference, that a cause explains where the set leaves a rest."""


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


@dataclass(slots=True)
class _State:
    amounts: list[float]
    rest: dict[Cell, float]
    causes: tuple[Cause, ...] = ()
    weight: int = 0
    off: float = 0.0
    left: int = 0
    tried: frozenset[str] = frozenset()
    sums: dict[int, dict[Cell, float]] = field(default_factory=dict)
    """Amounts by cell of the members of a try, by the identity of their tuple."""


def explain(groups: Iterable[Alike], stated: Cells, *, tolerance: Decimal) -> Explanation:
    """The causes that turn the groups into the cells of a statement.

    `groups` begin a day before the statement and end a day after it, for time zones. `tolerance`:
    a part of a cell. LedgerError for more groups than can be searched.
    """
    read = list(groups)
    if not stated:
        raise LedgerError("the statement has no costs to explain")
    if len(read) > GROUPS_MAX:
        raise _too_many(len(read))
    plain = _CauseSearch(read, stated, tolerance, partial(_shifted_day, 0))
    best = plain.run()
    if best.left:
        for cause, day_of in _datings(read, stated):
            found = _CauseSearch(read, stated, tolerance, day_of).run(cause, plain.start)
            if _rank(found) < _rank(best):
                best = found
    total = sum(stated.values())
    booked = round(total - sum(plain.start.rest.values()))
    return Explanation(
        ledger_picousd=booked,
        statement_picousd=total,
        causes=best.causes,
        rest_picousd=total - booked - sum(cause.amount_picousd for cause in best.causes),
        rest_cells=best.left,
    )


def _rank(state: _State) -> tuple[bool, float, float]:
    """Complete sets first, by their weight; others by what they leave."""
    if not state.left:
        return False, state.weight, round(state.off, -6)
    return True, state.off, state.weight


class _CauseSearch:
    """The search for one way to give groups their days."""

    def __init__(
        self,
        groups: Sequence[Alike],
        stated: Cells,
        tolerance: Decimal,
        day_of: Callable[[Alike], date],
    ) -> None:
        first, last = min(day for day, _ in stated), max(day for day, _ in stated)
        merged: dict[Alike, list[int]] = {}
        self.days: list[date] = []
        for group in groups:
            day = day_of(group)
            if not first <= day <= last:
                continue
            hour = group.opened.hour if day == last else 0
            midnight = datetime(day.year, day.month, day.day, hour, tzinfo=group.opened.tzinfo)
            alike = replace(group, opened=midnight, is_late=False, quantity=0, picousd=0)
            sums = merged.setdefault(alike, [0, 0])
            sums[0] += group.quantity
            sums[1] += group.picousd
        if len(merged) > MERGED_MAX:
            raise _too_many(len(merged))
        self.groups = [
            replace(group, quantity=quantity, picousd=amount)
            for group, (quantity, amount) in merged.items()
        ]
        self.cell = [(group.opened.date(), group.name) for group in self.groups]
        self.last, self.stated = last, stated
        self.allowed = {
            cell: max(ROUNDING_PICOUSD, abs(amount) * float(tolerance))
            for cell, amount in stated.items()
        }
        rest: dict[Cell, float] = {cell: float(amount) for cell, amount in stated.items()}
        self.held: dict[Cell, float] = defaultdict(float)
        for group, cell in zip(self.groups, self.cell, strict=True):
            rest[cell] = rest.get(cell, 0.0) - group.picousd
            self.held[cell] += group.picousd
        self.start = self._judged(_State([float(each.picousd) for each in self.groups], rest))
        self.tries = list(unique(named(self.groups, last)))
        self.places: dict[tuple[int, Cell], list[int]] = {}
        """Of the members of a try in a cell, by the identity of their tuple."""
        visits = sum(len(each.members) for each in self.tries) + len(self.groups) + 1
        self.firsts_max = max(2, min(PAIRED_MAX, VISITS_MAX // visits))

    def _judged(self, state: _State) -> _State:
        state.off = sum(abs(each) for each in state.rest.values())
        state.left = sum(self._is_off(cell, each) for cell, each in state.rest.items())
        return state

    def run(self, dating: Cause | None = None, before: _State | None = None) -> _State:
        """The best set; with `dating`, one that has it as its first cause, unless that makes the
        difference larger and no further cause or two explain the rest."""
        state = self.start
        if dating is not None and before is not None:
            # What came to or left the statement's days, and what moved.
            moved = [
                before.rest.get(cell, 0.0) - state.rest.get(cell, 0.0)
                for cell in before.rest.keys() | state.rest.keys()
            ]
            net = sum(moved)
            cause = replace(
                dating,
                amount_picousd=round(net),
                moved_picousd=round((sum(abs(each) for each in moved) - abs(net)) / 2),
            )
            state = replace(
                state,
                sums={},
                causes=(cause,),
                weight=NAMED,
                tried=frozenset({dating.kind}),
            )
        whole = state.off
        while state.left and len(state.causes) < CAUSES_MAX:
            judged = self._judged_tries(state)
            complete = [self._applied(state, each) for _, left, each in judged if not left]
            if all(each.weight - state.weight > ABSENT for each in complete):
                # Two more causes, the first of which explains something: it makes the difference
                # or the number of cells smaller.
                firsts = [one for one in judged if one[0] > 0 or one[1] < state.left]
                firsts.sort(key=lambda one: (one[2].weight, one[1], -one[0]))
                for _, _, first in firsts[: self.firsts_max]:
                    half = self._applied(state, first)
                    worst = max(half.rest, key=lambda cell: abs(half.rest[cell]))
                    seconds = self._judged_tries(half, worst)
                    complete += [self._applied(half, each) for _, left, each in seconds if not left]
            complete = [each for each in complete if not each.left]
            if complete:
                return min(complete, key=_rank)
            if before is not None and state.off >= before.off:
                return state
            gain, _, best = max(judged, key=lambda one: (one[0], -one[2].weight))
            if gain < GAIN_MIN * whole:
                return state
            state = self._applied(state, best)
        return state

    def _judged_tries(
        self, state: _State, mended: Cell | None = None
    ) -> list[tuple[float, int, Try]]:
        """For each cause that is not in the set: what it explains, and the cells that are off with
        it; with `mended` only for those that explain all of this cell."""
        judged = []
        for each in (*self.tries, *self._fitted(state), *self._absent(state)):
            if each.cause.what in state.tried or (
                mended is not None and not self._mends(state, each, mended)
            ):
                continue
            gain, left = 0.0, state.left
            for cell, add in self._delta(state, each).items():
                rest = state.rest[cell]
                gain += abs(rest) - abs(rest - add)
                left += self._is_off(cell, rest - add) - self._is_off(cell, rest)
            judged.append((gain, left, each))
        return judged

    def _mends(self, state: _State, each: Try, cell: Cell) -> bool:
        """Whether a cause explains all of a cell, looked up without its other cells."""
        rest, factors = state.rest[cell], each.factors
        if not each.members:
            return cell in each.cells and not self._is_off(
                cell, rest - self._delta(state, each)[cell]
            )
        places = self.places.get((id(each.members), cell))
        if places is None:
            places = [at for at, member in enumerate(each.members) if self.cell[member] == cell]
            self.places[id(each.members), cell] = places
        for at in places:
            factor = factors[at] if isinstance(factors, tuple) else factors
            rest -= state.amounts[each.members[at]] * ((factor or 0.0) - 1)
        return not self._is_off(cell, rest)

    def _is_off(self, cell: Cell, rest: float) -> bool:
        return abs(rest) > self.allowed.get(cell, ROUNDING_PICOUSD)

    def _delta(self, state: _State, each: Try) -> Mapping[Cell, float]:
        factors = each.factors
        if factors is None:
            return {cell: state.rest[cell] for cell in each.cells}
        if each.cells:
            assert isinstance(factors, float)
            return {
                cell: (self.stated.get(cell, 0) - state.rest[cell]) * (factors - 1)
                for cell in each.cells
            }
        if isinstance(factors, float):
            # Regions and tiers of one scope multiply the same members: the same tuple.
            sums = state.sums.get(id(each.members))
            if sums is None:
                sums = state.sums[id(each.members)] = defaultdict(float)
                for member in each.members:
                    sums[self.cell[member]] += state.amounts[member]
            return {cell: amount * (factors - 1) for cell, amount in sums.items()}
        delta: dict[Cell, float] = defaultdict(float)
        for member, factor in zip(each.members, factors, strict=True):
            delta[self.cell[member]] += state.amounts[member] * (factor - 1)
        return delta

    def _applied(self, state: _State, each: Try) -> _State:
        delta = self._delta(state, each)
        amounts, factors, cells = list(state.amounts), each.factors, set(each.cells)
        for at, member in enumerate(each.members):
            assert factors is not None
            amounts[member] *= factors if isinstance(factors, float) else factors[at]
        if cells and isinstance(factors, float):
            for at, cell in enumerate(self.cell):
                amounts[at] *= factors if cell in cells else 1
        rest = dict(state.rest)
        for cell, add in delta.items():
            rest[cell] -= add
        cause = replace(each.cause, amount_picousd=round(sum(delta.values())))
        return self._judged(
            _State(
                amounts,
                rest,
                (*state.causes, cause),
                state.weight + each.weight,
                tried=state.tried | {each.cause.what},
            )
        )

    def _fitted(self, state: _State) -> Iterator[Try]:
        """One factor for a name, or everything, from a day on, or before it."""
        by_name: dict[str | None, dict[date, list[float]]] = defaultdict(dict)
        whole: dict[date, list[float]] = {}
        for (day, name), rest in state.rest.items():
            stated = self.stated.get((day, name), 0)
            for sums in (
                by_name[name].setdefault(day, [0.0, 0.0]),
                whole.setdefault(day, [0.0, 0.0]),
            ):
                sums[0] += stated
                sums[1] += stated - rest
        found = sorted(by_name.items(), key=lambda pair: -sum(s for s, _ in pair[1].values()))
        named = [(f"prices of {name or 'everything'}", {name}, days) for name, days in found]
        if len(by_name) > 1:
            named.insert(0, ("all prices", set(by_name), whole))
        for text, names, days in named[:TRIED_VALUES_MAX]:
            ordered = sorted(days)
            for at, day in enumerate(ordered):
                for part, when in ((ordered[at:], f"since {day}"), (ordered[:at], f"before {day}")):
                    billed, booked = (sum(days[d][column] for d in part) for column in (0, 1))
                    if booked <= 0 or not 0.02 <= billed / booked <= 50:
                        continue
                    cells = tuple((d, n) for d in part for n in names if (d, n) in state.rest)
                    of = f"{when if at else 'on every day'} are x{billed / booked:.4g}"
                    cause = Cause(kind="price", what=f"{text} {of} of those booked")
                    yield Try(cause, FITTED, cells=cells, factors=billed / booked)

    def _absent(self, state: _State) -> Iterator[Try]:
        """Cells that the ledger lacks, by day and by name, and those of requests without price."""
        days: dict[date, list[Cell]] = defaultdict(list)
        names: dict[str | None, list[Cell]] = defaultdict(list)
        booked_days = {day for day, _ in self.held}
        booked_names = {name for _, name in self.held}
        for cell in self.stated:
            if cell[0] not in booked_days:
                days[cell[0]].append(cell)
            if cell[1] not in booked_names:
                names[cell[1]].append(cell)
        for day, cells in days.items():
            cause = Cause(kind="missing in the ledger", what=f"{day} is not in the ledger")
            yield Try(cause, ABSENT, cells=tuple(cells))
        for name, cells in names.items():
            cause = Cause(kind="missing in the ledger", what=f"{name} is not in the ledger")
            yield Try(cause, ABSENT, cells=tuple(cells))
        unpriced: dict[str, set[Cell]] = defaultdict(set)
        for group, cell in zip(self.groups, self.cell, strict=True):
            if not group.is_priced and state.rest[cell] > 0:
                unpriced[group.model].add(cell)
        for model, found in unpriced.items():
            text = f"requests of {model} have no price, or a part of it, in the ledger"
            yield Try(
                Cause(kind="no price", what=text), ABSENT, cells=tuple(sorted(found, key=str))
            )


def _shifted_day(hours: int, group: Alike) -> date:
    return (group.opened + timedelta(hours=hours)).date()


def _datings(
    groups: Sequence[Alike], stated: Cells
) -> Iterator[tuple[Cause, Callable[[Alike], date]]]:
    """Up to three ways to give groups other days: those that fit best, by the amounts, and by the
    share that each name has of its own total."""
    every: list[tuple[Cause, Callable[[Alike], date]]] = [
        (
            Cause(kind="time zone", what=f"the statement's days are those of UTC{hours:+d}"),
            partial(_shifted_day, hours),
        )
        for hours in sorted(range(-12, 15), key=abs)
        if hours
    ]
    cause = Cause(kind="late rows", what="the statement counts a request on the day of its end")
    every.append((cause, lambda group: group.opened.date() + timedelta(days=group.is_late)))
    by_hour: dict[tuple[datetime, bool, str | None], int] = defaultdict(int)
    for group in groups:
        by_hour[group.opened, group.is_late, group.name] += group.picousd
    hours = [
        Alike(opened=at, is_late=late, name=name, line="", quantity=0, picousd=amount)
        for (at, late, name), amount in by_hour.items()
    ]
    first, last = min(day for day, _ in stated), max(day for day, _ in stated)
    off: list[tuple[float, float, int]] = []
    for place, (_, day_of) in enumerate(every):
        sums: dict[Cell, float] = defaultdict(float)
        for group in hours:
            day = day_of(group)
            if first <= day <= last:
                sums[day, group.name] += group.picousd
        cells = sums.keys() | stated.keys()
        shares: dict[str | None, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for cell in cells:
            shares[cell[1]][0] += stated.get(cell, 0)
            shares[cell[1]][1] += sums.get(cell, 0)
        scale = {name: ours and theirs / ours for name, (theirs, ours) in shares.items()}
        raw = sum(abs(stated.get(cell, 0) - sums.get(cell, 0)) for cell in cells)
        scaled = sum(
            abs(stated.get(cell, 0) - scale[cell[1]] * sums.get(cell, 0)) for cell in cells
        )
        off.append((raw, scaled, place))
    by_share = sorted(off, key=lambda one: one[1])
    chosen = {min(off)[2], *(place for *_, place in by_share[:2])}
    yield from (every[place] for place in sorted(chosen))


def _too_many(count: int) -> LedgerError:
    return LedgerError(
        f"{count} groups of charges are too many to explain; "
        "choose a shorter period with --since and --until, or a part with --only"
    )
