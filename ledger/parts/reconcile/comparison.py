"""Pure. Compares a vendor's statement with the ledger, per day and model, key or project.

Statements and ledgers spell models a little differently (dated snapshots, "Claude Opus 4.6"), so
both are compared under a common spelling. Cost items without a model (searches, storage) form one
row per day, compared with the ledger's charges for such items. A statement whose costs name no
model at all is compared by day.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any

from ledger.parts.reconcile.statement import LIST_COST, STATEMENT_FIGURES, Line

ROUNDING_PICOUSD = 10**10 // 2
"""Half a cent: statements round to cents, so a smaller difference is ignored."""

type ComparedKey = tuple[date, str | None, str | None]
"""Day, model in the common spelling, and the item or None."""


class Dimension(StrEnum):
    """The dimension of a comparison, beside the day: a field of a line."""

    MODEL = "model"
    KEY = "key"
    PROJECT = "project"
    SESSION = "session"


class Agreement(StrEnum):
    """How one figure compares."""

    EQUAL = "equal"
    WITHIN = "within tolerance"
    DIFFERS = "differs"
    ONLY_LEDGER = "only in the ledger"
    ONLY_STATEMENT = "only in the statement"


AGREES = frozenset({Agreement.EQUAL, Agreement.WITHIN})

OTHER_ITEMS = "items without a model"
"""The row of items that are billed in addition to the tokens of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of one day and model (or key, or project) on both sides. None: that side lacks the
    figure."""

    day: date
    name: str | None
    """The model, key or project; None: all of them together."""
    item: str | None = None
    """The billed item, if the row is not about a model's tokens; `name` is then None."""
    figure: str
    ledger: int | None
    statement: int | None
    verdict: Agreement

    @property
    def difference(self) -> int:
        """The ledger's figure less the statement's."""
        return (self.ledger or 0) - (self.statement or 0)


def spelling(model: str) -> str:
    """The common spelling of a model's name: lower case, no date, dashes only."""
    name = re.sub(r"[\s._@]+", "-", model.strip().lower())
    return re.sub(r"-(20\d{6}|20\d\d-\d\d-\d\d|latest)$", "", name)


def renamed(line: Line, by: Dimension, name: str | None) -> Line:
    """The line with this model, key or project."""
    change: dict[str, Any] = {by: name}
    return replace(line, **change)


def compare(
    ledger: Iterable[Line],
    statement: Iterable[Line],
    *,
    by: Dimension = Dimension.MODEL,
    tolerance: Decimal,
) -> tuple[Compared, ...]:
    """Every figure that the statement reports, by day and `by`.

    `tolerance` is a part of the statement's figure: 0.001 for a thousandth.
    """
    booked, stated = list(ledger), list(statement)
    names: dict[
        str, str
    ] = {}  # the common spelling -> the first in use, the ledger's if it has one
    for line in (*booked, *stated):
        if name := _name(line, by):
            names.setdefault(_common(name, by) or "", name)
    entries: list[Compared] = []
    for figure in STATEMENT_FIGURES:
        of_figure = [line for line in stated if figure in line.figures]
        if not of_figure:
            continue
        is_split = any(_name(line, by) is not None for line in of_figure)
        has_items = is_split and any(_is_item(line, by) for line in of_figure)
        theirs = _sums(of_figure, figure, by, is_split=is_split, has_items=has_items)
        ours = _sums(booked, figure, by, is_split=is_split, has_items=has_items)
        for key in theirs.keys() | ours.keys():
            left, right = ours.get(key), theirs.get(key)
            if left or right:
                rounding = ROUNDING_PICOUSD if figure == "cost_picousd" else 0
                if right is None:
                    verdict = Agreement.ONLY_LEDGER
                elif left is None:
                    verdict = Agreement.ONLY_STATEMENT
                elif left == right:
                    verdict = Agreement.EQUAL
                elif (gap := abs(left - right)) <= rounding or gap <= abs(right) * tolerance:
                    verdict = Agreement.WITHIN
                else:
                    verdict = Agreement.DIFFERS
                day, spelling, item = key
                entries.append(
                    Compared(
                        day=day,
                        name=names[spelling] if spelling else None,
                        item=item,
                        figure=figure,
                        ledger=left,
                        statement=right,
                        verdict=verdict,
                    )
                )
    entries.sort(
        key=lambda e: (e.day, e.item is not None, e.name or "", STATEMENT_FIGURES.index(e.figure))
    )
    return tuple(entries)


def cost_cells(
    statement: Sequence[Line], by: Dimension
) -> tuple[
    dict[tuple[date, str | None], int],
    dict[tuple[date, str | None], int] | None,
    Callable[[Line], str | None],
]:
    """The costs of a statement by day and name, as `compare` has them; the same at list prices
    (None: the statement has none); and the name of any line."""
    figure = "cost_picousd"
    lines = [line for line in statement if figure in line.figures]
    is_split = any(_name(line, by) is not None for line in lines)
    has_items = is_split and any(_is_item(line, by) for line in lines)

    def name_of(line: Line) -> str | None:
        if has_items and _is_item(line, by):
            return OTHER_ITEMS
        return _common(_name(line, by), by) if is_split else None

    def cells(of: Iterable[Line]) -> dict[tuple[date, str | None], int]:
        sums = _sums(of, figure, by, is_split=is_split, has_items=has_items)
        return {(day, item or name): amount for (day, name, item), amount in sums.items()}

    if not any(LIST_COST in line.figures for line in lines):
        return cells(lines), None, name_of
    at_list = (
        replace(line, figures={figure: line.figures.get(LIST_COST, line.figures[figure])})
        for line in lines
    )
    return cells(lines), cells(at_list), name_of


def unnamed_items(lines: Sequence[Line]) -> Mapping[str, int]:
    """The items of `OTHER_ITEMS`: the statement's own word for each item -> pico-USD."""
    found: dict[str, int] = defaultdict(int)
    for line in lines:
        if line.model is None and "cost_picousd" in line.figures:
            found[line.item or "not named"] += line.figures["cost_picousd"]
    return dict(found)


def _sums(
    lines: Iterable[Line], figure: str, by: Dimension, *, is_split: bool, has_items: bool
) -> dict[ComparedKey, int]:
    """The figure by day and name. Items without a model are summed separately only if the statement
    has some; otherwise the statement counts them with their models."""
    sums: dict[ComparedKey, int] = defaultdict(int)
    for line in lines:
        if figure not in line.figures:
            continue
        item = OTHER_ITEMS if has_items and _is_item(line, by) else None
        name = _name(line, by) if is_split and item is None else None
        sums[line.day, _common(name, by), item] += line.figures[figure]
    return sums


def _is_item(line: Line, by: Dimension) -> bool:
    return by is Dimension.MODEL and (line.item is not None or line.model is None)


def _name(line: Line, by: Dimension) -> str | None:
    name: str | None = getattr(line, by)
    return name


def _common(name: str | None, by: Dimension) -> str | None:
    return spelling(name) if name and by is Dimension.MODEL else name
