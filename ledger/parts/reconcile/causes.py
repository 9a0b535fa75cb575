"""Pure. The fewest causes that turn the ledger's costs into those of a statement.

Charges of the ledger are grouped by all that a cause can depend on (`Alike`); the statement has
an amount for each day and name (`Cells`). A cause multiplies some groups by a factor of the table,
moves all groups to other days, or adds to cells: what the ledger lacks, or what one fitted factor
makes of them. Each is tried alone. If none explains every cell, all are tried behind each way to
move the days and behind the best causes, a few of which have a fitted factor. The answer is the
complete set with the fewest causes, of those with the fewest fitted ones. Where there is none, it
is the best cause, or the best pair, and a rest.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial

from ledger.model.errors import LedgerError
from ledger.parts.reconcile.comparison import ROUNDING_PICOUSD
from ledger.pricing.price_lines import is_token_line
from ledger.pricing.published import tier_name

GROUPS_MAX = 100_000
"""Groups of charges that are searched, in some ten seconds."""
FIRSTS_MAX = 32
"""Single causes that others are tried behind."""
FITTED_FIRSTS_MAX = 4
"""Of these, causes with a fitted factor: two models may have new prices each."""
VALUES_MAX = 50
"""Models, keys, hosts ... that a row of the table is tried with, those with the highest costs."""
GAIN_MIN = 0.05
"""Of the difference, that a cause explains where a set leaves a rest."""
REGION_FACTORS = (1.1, 1.2, 1.25)
"""Of the published rules that depend on no tier."""
TIER_FACTORS = {"batch or flex": (0.5,), "priority": (1.75, 1.8, 2.0), "fast": (2.0, 6.0)}
"""Prices of service tiers, as multiples of the standard ones (`billing_rules.toml`, and the prices
of tiers in genai-prices)."""
READS = ("cache_read",)
CACHED = (*READS, "cache_write", "cache_write_5m", "cache_write_1h")

type Cell = tuple[date, str | None]
type Cells = Mapping[Cell, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Charges of one line that are alike in all that a cause depends on."""

    opened: datetime
    """The hour, in UTC."""
    is_late: bool = False
    """The requests ended on a later day."""
    name: str | None
    """As the cells have it: the model, key or project, or the word for items without a model."""
    model: str = ""
    host: str = ""
    tier: str = ""
    key: str = ""
    project: str = ""
    outcome: str = "complete"
    line: str
    region: Decimal = Decimal(1)
    """The factor of a region's rule that is in the price."""
    quantity: int
    picousd: int
    is_priced: bool = True


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class _Change:
    """A cause that is tried."""

    kind: str
    what: str
    factors: Mapping[int, float] = field(default_factory=dict)
    """Of groups, by their places."""
    cells: Mapping[Cell, float] = field(default_factory=dict)
    """What is added to cells."""


@dataclass(frozen=True, slots=True)
class _State:
    """What a set of causes makes of the groups."""

    causes: tuple[Cause, ...]
    places: Mapping[Cell, Sequence[int]]
    """The groups of a cell."""
    rest: Mapping[Cell, float]
    """What the statement has more."""
    factors: Mapping[int, float] = field(default_factory=dict)
    """Of groups, by its last cause."""


def explain(
    groups: Sequence[Alike],
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
    if not stated:
        raise LedgerError("the statement has no costs to explain")
    if len(groups) > GROUPS_MAX:
        raise LedgerError(
            f"{len(groups)} groups of charges are too many to explain; "
            "choose a shorter period with --since and --until, or a part with --only"
        )
    search = _Search(groups, stated, float(tolerance), periods or {})
    best, total = search.best(), sum(stated.values())
    booked = round(total - sum(search.start.rest.values()))
    found = Explanation(
        ledger_picousd=booked,
        statement_picousd=total,
        causes=best.causes,
        rest_picousd=total - booked - sum(cause.amount_picousd for cause in best.causes),
        rest_cells=search.left(best),
    )
    if at_list is None or at_list == stated:
        return found
    listed = explain(groups, at_list, periods=periods, tolerance=tolerance)
    if (found.rest_cells, _rank(found.causes)) <= (listed.rest_cells, _rank(listed.causes)):
        return found
    undiscounted = listed.statement_picousd
    part = (undiscounted - total) / undiscounted if undiscounted else 0
    what = f"the vendor's discount, {part:.4%} of its list prices, as the statement has both"
    discount = Cause("discount", what, total - undiscounted)
    return replace(listed, statement_picousd=total, causes=(*listed.causes, discount))


class _Search:
    def __init__(
        self,
        groups: Sequence[Alike],
        stated: Cells,
        tolerance: float,
        periods: Mapping[date, date],
    ) -> None:
        self.groups, self.stated, self.tolerance, self.periods = groups, stated, tolerance, periods
        self.days = sorted({day for day, _ in stated})
        self.singles = list(_singles(groups, max((*periods, self.days[-1]))))
        self.start = self._dated()

    def best(self) -> _State:
        """The best set."""
        if not self.left(self.start):
            return self.start
        moved, alone = list(self._moved()), list(self._behind(self.start))
        exact = sorted((s for s in alone if s.causes[0].kind != "price"), key=_off)
        fitted = sorted((s for s in alone if s.causes[0].kind == "price"), key=_off)
        firsts = [*moved, *exact[:FIRSTS_MAX], *fitted[:FITTED_FIRSTS_MAX]]
        complete = [state for state in (*moved, *alone) if not self.left(state)]
        for first in () if complete else firsts:
            complete += self._behind(first, completing=True)
        if complete:
            return min(complete, key=lambda s: (_rank(s.causes), round(_off(s), -6)))
        pair = min(self._behind(min(firsts, key=_off)), key=_off)
        best = self.start
        for state in (min((*moved, *alone), key=_off), pair):
            if _off(state) <= (1 - GAIN_MIN) * _off(best):
                best = state
        return best

    def _behind(self, state: _State, *, completing: bool = False) -> Iterator[_State]:
        """The state with each further cause; `completing`: those alone that leave nothing."""
        worst_first = sorted(state.rest, key=lambda cell: -abs(state.rest[cell]))
        for change in (*self.singles, *self._missing(state), *self._fitted(state)):
            if change.what in {cause.what for cause in state.causes}:
                continue
            if completing and any(
                self._is_off(cell, state.rest[cell] - self._added(state, change, cell))
                for cell in worst_first
            ):
                continue
            added = {cell: self._added(state, change, cell) for cell in worst_first}
            yield _State(
                causes=(
                    *state.causes,
                    Cause(change.kind, change.what, round(sum(added.values()))),
                ),
                places=state.places,
                rest={cell: state.rest[cell] - added[cell] for cell in state.rest},
                factors=change.factors,
            )

    def _added(self, state: _State, change: _Change, cell: Cell) -> float:
        """What a cause adds to a cell."""
        factors, groups = change.factors, self.groups
        return change.cells.get(cell, 0.0) + sum(
            groups[place].picousd * state.factors.get(place, 1) * (factors[place] - 1)
            for place in state.places.get(cell, ())
            if place in factors
        )

    def left(self, state: _State) -> int:
        """The cells beyond the tolerance."""
        return sum(self._is_off(cell, amount) for cell, amount in state.rest.items())

    def _is_off(self, cell: Cell, amount: float) -> bool:
        allowed = abs(self.stated.get(cell, 0)) * self.tolerance
        return abs(amount) > max(ROUNDING_PICOUSD, allowed)

    def _dated(self, hours: int = 0, late: int = 0) -> _State:
        """The groups on days that begin `hours` earlier; `late`: 1 for those of their ends."""
        places: dict[Cell, list[int]] = defaultdict(list)
        rest = {cell: float(amount) for cell, amount in self.stated.items()}
        for place, group in enumerate(self.groups):
            day = (group.opened + timedelta(hours=hours, days=late * group.is_late)).date()
            day = self.periods.get(day, day)
            if self.days[0] <= day <= self.days[-1]:
                cell = (day, group.name)
                places[cell].append(place)
                rest[cell] = rest.get(cell, 0.0) - group.picousd
        return _State((), places, rest)

    def _moved(self) -> Iterator[_State]:
        """The groups on other days."""
        ways = [(hours, 0) for hours in sorted(range(-12, 15), key=abs) if hours]
        for hours, late in (*ways, (0, 1)):
            kind, what = "time zone", f"the statement's days are those of UTC{hours:+d}"
            if late:
                kind, what = "late rows", "the statement counts a request on the day of its end"
            state = self._dated(hours, late)
            # What came to or left the statement's days, and what moved between them.
            cells = self.start.rest.keys() | state.rest.keys()
            came = [self.start.rest.get(c, 0.0) - state.rest.get(c, 0.0) for c in cells]
            between = (sum(abs(amount) for amount in came) - abs(sum(came))) / 2
            cause = Cause(kind, what, round(sum(came)), round(between))
            yield replace(state, causes=(cause,))

    def _missing(self, state: _State) -> Iterator[_Change]:
        """Days, names and prices that the ledger lacks."""
        lacks: dict[tuple[str, str], dict[Cell, float]] = defaultdict(dict)
        days, names = {day for day, _ in state.places}, {name for _, name in state.places}
        for cell, rest in state.rest.items():
            for value in ({cell[0]} - days) | ({cell[1]} - names):
                lacks["missing in the ledger", f"{value} is not in the ledger"][cell] = rest
            unpriced = (p for p in state.places.get(cell, ()) if not self.groups[p].is_priced)
            for model in {self.groups[place].model for place in unpriced if rest > 0}:
                what = f"requests of {model} have no price, or a part of it, in the ledger"
                lacks["no price", what][cell] = rest
        for (kind, what), cells in lacks.items():
            yield _Change(kind, what, cells=cells)

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
                    ours = {cell: self.stated.get(cell, 0) - state.rest[cell] for cell in cells}
                    theirs = sum(self.stated.get(cell, 0) for cell in cells)
                    booked = sum(ours.values())
                    if booked > 0 and 0.02 <= (by := theirs / booked) <= 50:
                        what = f"{text} {when} are x{by:.4g} of those booked"
                        added = {cell: amount * (by - 1) for cell, amount in ours.items()}
                        yield _Change("price", what, cells=added)


def _off(state: _State) -> float:
    return sum(abs(amount) for amount in state.rest.values())


def _rank(causes: Sequence[Cause]) -> tuple[int, int]:
    """How many causes a set has, and how many of them are fitted."""
    return len(causes), sum(cause.kind == "price" for cause in causes)


type Factor = Callable[[Alike], float]
"""What a cause multiplies a group by; 1: nothing."""


def _singles(groups: Sequence[Alike], last: date) -> Iterator[_Change]:
    """The causes of the table, each for everything and for the costliest values of its words."""
    for kind, text, words, factor in _table(groups, last):
        values: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for place, group in enumerate(groups):
            if (by := factor(group)) != 1:
                for word in words:
                    values[word, getattr(group, word, "")][place] = by
        changes = []
        for (word, value), factors in values.items():
            of = f" of {word} {value or '(none)'}" if word else ""
            what = text.format(of=of, value=value or "(none)")
            changes.append(_Change(kind, what, factors))
        costs = {c.what: sum(groups[place].picousd for place in c.factors) for c in changes}
        yield from sorted(changes, key=lambda c: -costs[c.what])[:VALUES_MAX]


def _table(
    groups: Sequence[Alike], last: date
) -> Iterator[tuple[str, str, tuple[str, ...], Factor]]:
    """Kind, sentence, the words whose values it is tried with ("": everything), factor."""

    def request(group: Alike) -> Alike:
        return replace(group, line="", quantity=0, picousd=0)

    def priced_alike(group: Alike) -> tuple[str, str, str, Decimal]:
        return group.model, group.host, group.tier, group.region

    input_prices: dict[object, float] = {}
    cached = {request(group): group.quantity for group in groups if group.line == "cache_read"}
    for group in groups:
        if group.line == "uncached_input" and group.quantity:
            # Requests whose input was cached as a whole show no price: others of their model do.
            for key in (request(group), priced_alike(group)):
                input_prices[key] = group.picousd / group.quantity

    def at_input_price(group: Alike, of: tuple[str, ...]) -> float:
        if group.line not in of or not group.picousd:
            return 0
        price = input_prices.get(request(group)) or input_prices.get(priced_alike(group), 0)
        return price * group.quantity / group.picousd

    def without_cached(group: Alike) -> float:
        count = cached.get(request(group), 0) if group.line == "uncached_input" else 0
        return 1 - count / group.quantity if 0 < count <= group.quantity else 1

    def times(by: float, is_of: Callable[[Alike], bool]) -> Factor:
        return lambda group: by if is_of(group) else 1

    def is_since(moment: datetime, group: Alike) -> bool:
        return group.opened >= moment

    def is_at(*tiers: str | None) -> Callable[[Alike], bool]:
        return lambda group: is_token_line(group.line) and tier_name(group.tier) in tiers

    every, by_model = ("", "model", "host", "key", "project", "tier"), ("", "model")
    for by in REGION_FACTORS:
        text = f"tokens{{of}} are billed with a region's factor x{by:g}, booked without"
        yield "region", text, every, times(by, lambda g: is_token_line(g.line) and g.region == 1)
    text = "tokens{of} are booked with a region's factor, billed without"
    yield "region", text, every, lambda g: 1 / float(g.region) if is_token_line(g.line) else 1
    for tier, multiples in TIER_FACTORS.items():
        for by in multiples:
            text = f"tokens{{of}} are billed at tier {tier} (x{by:g}), booked at standard"
            yield "tier", text, every, times(by, is_at(None))
            text = f"tokens{{of}} are booked at tier {tier} (x{by:g}), billed at standard"
            yield "tier", text, every, times(1 / by, is_at(*tier.split(" or ")))
    # Azure billed gpt-5.6 so (https://github.com/Azure/azure-rest-api-specs/issues/45178).
    text = "cached tokens{of} are billed twice, as input and as cached"
    yield "cached tokens", text, by_model, lambda g: 1 + at_input_price(g, READS)
    text = "cached and written tokens{of} are billed twice, as input and on their own"
    yield "cached tokens", text, by_model, lambda g: 1 + at_input_price(g, CACHED)
    text = "cached tokens{of} are billed as input, without the discount"
    yield "cached tokens", text, by_model, lambda g: at_input_price(g, READS) or 1
    text = "cached tokens{of} are booked twice, as input and as cached"
    yield "cached tokens", text, by_model, without_cached
    text = "cached tokens{of} are not billed"
    yield "cached tokens", text, by_model, times(0, lambda g: g.line == "cache_read")
    text = "cache writes for one hour{of} are billed as for five minutes"
    yield "cached tokens", text, by_model, times(0.625, lambda g: g.line == "cache_write_1h")
    text = "cache writes for five minutes{of} are billed as for one hour"
    yield "cached tokens", text, by_model, times(1.6, lambda g: g.line == "cache_write_5m")
    for word in ("key", "project", "host", "model"):
        yield f"missing {word}", f"{word} {{value}} is not in the statement", (word,), lambda _: 0
    yield "item", "{value} are not billed", ("line",), lambda g: is_token_line(g.line)
    text = "answers that did not end are not billed"
    yield "broken answers", text, ("",), lambda g: g.outcome == "complete"
    for hour in range(1, 24):
        text = f"the statement ends on {last} at {hour:02}:00 UTC; later rows are to come"
        end = datetime(last.year, last.month, last.day, hour, tzinfo=UTC)
        yield "late rows", text, ("",), times(0, partial(is_since, end))
