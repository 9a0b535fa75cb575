"""Pure. What a cause of a difference may be: groups of the ledger's charges, and what each cause
without a free figure makes of them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from ledger.pricing.price_lines import TOKEN_LINES
from ledger.pricing.published import tier_name

TRIED_VALUES_MAX = 10
"""Models, keys, hosts … that are tried, those with the highest costs."""
REGION_FACTORS = (1.1, 1.2, 1.25)
"""Of the published rules that depend on no tier."""
TIER_FACTORS = {
    "batch or flex": (0.5,),
    "priority": (1.75, 1.8, 2.0),
    "fast": (2.0, 6.0),
}
"""Prices of service tiers, as multiples of the standard ones (`billing_rules.toml`, and the prices
of tiers in genai-prices)."""
NAMED, ABSENT, FITTED = 2, 3, 5
"""What a cause counts for: without a free figure, with the amounts of some cells, with a factor."""

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

    @property
    def is_token(self) -> bool:
        """Whether the line is one of tokens."""
        return self.line.rpartition(".")[2] in TOKEN_LINES


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


@dataclass(frozen=True, slots=True)
class Try:
    """A cause with the groups or the cells that it multiplies; without a factor it fills cells."""

    cause: Cause
    weight: int
    members: tuple[int, ...] = ()
    factors: float | tuple[float, ...] | None = None
    cells: tuple[Cell, ...] = ()


def named(groups: Sequence[Alike], last: date) -> Iterator[Try]:
    """Every cause without a free figure. `last`: the statement's last day."""
    # Word, value and members of everything, and of the costliest values of each word.
    scopes = [("", "", list(range(len(groups))))]
    for word in ("model", "host", "key", "project", "tier"):
        by_value: dict[str, list[int]] = defaultdict(list)
        for at, group in enumerate(groups):
            by_value[getattr(group, word) or "(none)"].append(at)
        if len(by_value) > 1:
            ranked = sorted(
                by_value.items(), key=lambda pair: -sum(groups[m].picousd for m in pair[1])
            )
            scopes += [(word, value, of_value) for value, of_value in ranked[:TRIED_VALUES_MAX]]
    for word, value, members in scopes:
        of = f" of {word} {value}" if word else ""
        yield from _tiers_and_regions(groups, of, [m for m in members if groups[m].is_token])
        if word in ("", "model"):
            yield from _caches(groups, of, members)
        if word in ("key", "project", "host", "model"):
            text = f"{word} {value} is not in the statement"
            yield Try(Cause(kind=f"missing {word}", what=text), NAMED, tuple(members), 0.0)
    items: dict[str, list[int]] = defaultdict(list)
    broken: list[int] = []
    hours: dict[int, list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        if not group.is_token:
            items[group.line].append(at)
        if group.outcome != "complete":
            broken.append(at)
        if group.opened.date() == last:
            hours[group.opened.hour].append(at)
    for line, members in items.items():
        cause = Cause(kind="item", what=f"{line} are not billed")
        yield Try(cause, NAMED, tuple(members), 0.0)
    cause = Cause(kind="broken answers", what="answers that did not end are not billed")
    yield Try(cause, NAMED, tuple(broken), 0.0)
    for hour in range(1, 24):
        late = [m for each, found in hours.items() if each >= hour for m in found]
        text = f"the statement ends on {last} at {hour:02}:00 UTC; later rows are to come"
        yield Try(Cause(kind="late rows", what=text), NAMED, tuple(late), 0.0)


def _tiers_and_regions(groups: Sequence[Alike], of: str, members: list[int]) -> Iterator[Try]:
    listed = tuple(m for m in members if groups[m].region == 1)
    for factor in REGION_FACTORS:
        text = f"tokens{of} are billed with a region's factor x{factor:g}, booked without"
        yield Try(Cause(kind="region", what=text), NAMED, listed, factor)
    regional = tuple(m for m in members if groups[m].region != 1)
    text = f"tokens{of} are booked with a region's factor, billed without"
    inverse = tuple(1 / float(groups[m].region) for m in regional)
    yield Try(Cause(kind="region", what=text), NAMED, regional, inverse)
    standard = tuple(m for m in members if tier_name(groups[m].tier) is None)
    for tier, factors in TIER_FACTORS.items():
        for factor in factors:
            text = f"tokens{of} are billed at tier {tier} (x{factor:g}), booked at standard"
            yield Try(Cause(kind="tier", what=text), NAMED, standard, factor)
            other = tuple(m for m in members if groups[m].tier and groups[m].tier in tier)
            text = f"tokens{of} are booked at tier {tier} (x{factor:g}), billed at standard"
            yield Try(Cause(kind="tier", what=text), NAMED, other, 1 / factor)


def _caches(groups: Sequence[Alike], of: str, members: list[int]) -> Iterator[Try]:
    alike: dict[Alike, dict[str, int]] = defaultdict(dict)
    for m in members:
        each = groups[m]
        alike[replace(each, line="", quantity=0, picousd=0)][each.line] = m
    twice: dict[int, float] = {}
    full: dict[int, float] = {}
    inside: dict[int, float] = {}
    for lines in alike.values():
        if "cache_read" not in lines or "uncached_input" not in lines:
            continue
        read, other = groups[lines["cache_read"]], groups[lines["uncached_input"]]
        if read.picousd and other.quantity:
            ratio = other.picousd / other.quantity * read.quantity / read.picousd
            twice[lines["cache_read"]], full[lines["cache_read"]] = 1 + ratio, ratio
        if read.quantity <= other.quantity and other.quantity:
            inside[lines["uncached_input"]] = 1 - read.quantity / other.quantity
    for text, factors in (
        (f"cached tokens{of} are billed twice, as input and as cached", twice),
        (f"cached tokens{of} are billed as input, without the discount", full),
        (f"cached tokens{of} are booked twice, as input and as cached", inside),
    ):
        cause = Cause(kind="cached tokens", what=text)
        yield Try(cause, NAMED, tuple(factors), tuple(factors.values()))
    for line, factor, text in (
        ("cache_read", 0.0, "cached tokens{} are not billed"),
        ("cache_write_1h", 0.625, "cache writes for one hour{} are billed as for five minutes"),
        ("cache_write_5m", 1.6, "cache writes for five minutes{} are billed as for one hour"),
    ):
        found = tuple(m for m in members if groups[m].line == line)
        yield Try(Cause(kind="cached tokens", what=text.format(of)), NAMED, found, factor)


def unique(tries: Iterable[Try]) -> Iterator[Try]:
    """Those that change something, the first of those that change the same."""
    seen: set[tuple[tuple[int, ...], float | tuple[float, ...] | None]] = set()
    for each in tries:
        if each.members and (each.members, each.factors) not in seen:
            seen.add((each.members, each.factors))
            yield each
