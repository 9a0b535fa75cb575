"""Pure. A provider's statement beside the ledger, per day and model.

Statements and ledgers name models a little differently (dated snapshots, "Claude Opus 4.6"), so
they meet under a common spelling. Costs that a statement does not give by model (searches, an
ungrouped report) are compared by day.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum

from ledger.reconcile.statements import FIGURES, Line

CENT_PICOUSD = 10**10
"""Statements are rounded to cents and their fractions; half of one is no difference."""

type Key = tuple[date, str | None]
type Figures = Mapping[str, int]


class Verdict(StrEnum):
    EQUAL = "equal"
    WITHIN = "within tolerance"
    DIFFERS = "differs"
    ONLY_LEDGER = "only in the ledger"
    ONLY_STATEMENT = "only in the statement"


AGREES = frozenset({Verdict.EQUAL, Verdict.WITHIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One figure of one day and model on both sides. None: that side has nothing there."""

    day: date
    model: str | None
    """None: of all models."""
    figure: str
    ledger: int | None
    statement: int | None
    verdict: Verdict

    @property
    def difference(self) -> int:
        return (self.ledger or 0) - (self.statement or 0)


def spelling(model: str) -> str:
    """What two names of one model have in common: no case, no date, dashes only."""
    name = re.sub(r"[\s._@]+", "-", model.strip().lower())
    return re.sub(r"-(20\d{6}|20\d\d-\d\d-\d\d|latest)$", "", name)


def compare(
    ledger: Iterable[Line], statement: Iterable[Line], *, tolerance: Decimal
) -> tuple[Entry, ...]:
    """Every figure that the statement speaks of, by day and model.

    `tolerance` is a part of the statement's figure: 0.001 for a thousandth.
    """
    booked, stated = list(ledger), list(statement)
    names = _names([*booked, *stated])
    entries: list[Entry] = []
    for figure in FIGURES:
        of_figure = [line for line in stated if figure in line.figures]
        if not of_figure:
            continue
        by_model = all(line.model is not None for line in of_figure)
        theirs = _sums(of_figure, figure, by_model=by_model)
        ours = _sums(booked, figure, by_model=by_model)
        for key in sorted(theirs.keys() | ours.keys(), key=lambda key: (key[0], key[1] or "")):
            left, right = ours.get(key), theirs.get(key)
            if not left and not right:
                continue
            day, model = key
            entries.append(
                Entry(
                    day=day,
                    model=names[model] if model else None,
                    figure=figure,
                    ledger=left,
                    statement=right,
                    verdict=_verdict(figure, left, right, tolerance),
                )
            )
    entries.sort(key=lambda entry: (entry.day, entry.model or "", FIGURES.index(entry.figure)))
    return tuple(entries)


def _verdict(figure: str, ledger: int | None, statement: int | None, tolerance: Decimal) -> Verdict:
    if statement is None:
        return Verdict.ONLY_LEDGER
    if ledger is None:
        return Verdict.ONLY_STATEMENT
    difference = abs(ledger - statement)
    if difference == 0:
        return Verdict.EQUAL
    rounding = CENT_PICOUSD // 2 if figure == "cost_picousd" else 0
    is_within = difference <= rounding or difference <= abs(statement) * tolerance
    return Verdict.WITHIN if is_within else Verdict.DIFFERS


def _sums(lines: Iterable[Line], figure: str, *, by_model: bool) -> dict[Key, int]:
    sums: dict[Key, int] = defaultdict(int)
    for line in lines:
        if figure in line.figures:
            model = spelling(line.model) if by_model and line.model else None
            sums[line.day, model] += line.figures[figure]
    return sums


def _names(lines: Iterable[Line]) -> dict[str, str]:
    """The common spelling -> a name as it is used; the ledger's if it has one."""
    names: dict[str, str] = {}
    for line in lines:
        if line.model:
            names.setdefault(spelling(line.model), line.model)
    return names
