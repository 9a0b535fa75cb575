"""Pure. A reconciliation as a table, and as a document for JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from ledger.model.money import sum_of_known, usd
from ledger.parts.reconcile.causes import Explanation
from ledger.parts.reconcile.comparison import AGREES, Compared, Dimension
from ledger.reports.layout import Amount, Cell, Table, TableColumn

ALL_NAMES = "(all)"
"""The name of a row that the statement does not split further."""


def table(entries: Iterable[Compared], by: Dimension = Dimension.MODEL) -> Table:
    """One line per figure."""
    amounts = ("ledger", "statement", "difference")
    names = ("day", str(by), "figure", *amounts, "verdict")
    return Table(
        columns=tuple(
            TableColumn(name=name, heading=name.capitalize(), is_number=name in amounts)
            for name in names
        ),
        rows=tuple(
            (
                entry.day.isoformat(),
                f"({entry.item})" if entry.item else entry.name or ALL_NAMES,
                _name(entry).replace("_", " "),
                _shown(entry, entry.ledger),
                _shown(entry, entry.statement),
                _shown(entry, entry.difference) if entry.difference else None,
                str(entry.verdict),
            )
            for entry in entries
        ),
    )


def totals_table(entries: Iterable[Compared]) -> Table:
    """One line per figure: the sums of all days and names, and how many of them differ."""
    rows = []
    by_figure: dict[str, list[Compared]] = {}
    for entry in entries:
        by_figure.setdefault(entry.figure, []).append(entry)
    for of in by_figure.values():
        sides = (sum_of_known(e.ledger for e in of), sum_of_known(e.statement for e in of))
        amounts = (*sides, sum(entry.difference for entry in of) or None)
        differ = sum(entry.verdict not in AGREES for entry in of)
        shown = (_shown(of[0], value) for value in amounts)
        rows.append((_name(of[0]).replace("_", " "), *shown, len(of), differ))
    names = ("figure", "ledger", "statement", "difference", "compared", "differ")
    return Table(
        columns=tuple(
            TableColumn(name=name, heading=name.capitalize(), is_number=name != "figure")
            for name in names
        ),
        rows=tuple(rows),
    )


def document(entries: Iterable[Compared]) -> dict[str, Any]:
    """All entries, and the count of each verdict."""
    listed = list(entries)
    return {
        "agrees": all(entry.verdict in AGREES for entry in listed),
        "verdicts": dict(Counter(str(entry.verdict) for entry in listed)),
        "entries": [
            {
                "day": entry.day.isoformat(),
                "name": entry.name,
                "item": entry.item,
                "figure": _name(entry),
                "ledger": _exact(entry, entry.ledger),
                "statement": _exact(entry, entry.statement),
                "difference": _exact(entry, entry.difference),
                "verdict": str(entry.verdict),
            }
            for entry in listed
        ],
    }


def causes_table(explained: Sequence[tuple[str, Explanation]]) -> Table:
    """From the ledger's cost to the statement's, cause by cause."""
    rows: list[tuple[Cell, ...]] = []
    for provider, found in explained:
        steps = [("the ledger", found.ledger_picousd, 0)]
        steps += [(each.what, each.amount_picousd, each.moved_picousd) for each in found.causes]
        rest = f"the rest, in {found.rest_cells} figures beyond the tolerance"
        steps.append((rest if found.rest_cells else "the rest", found.rest_picousd, 0))
        steps.append(("the statement", found.statement_picousd, 0))
        rows += [
            (provider, what, Amount(picousd=amount), Amount(picousd=moved) if moved else None)
            for what, amount, moved in steps
        ]
    return Table(
        columns=(
            TableColumn(name="provider", heading="Provider", is_number=False, drop=2),
            TableColumn(name="cause", heading="Cause", is_number=False, wraps=True),
            TableColumn(name="amount_usd", heading="USD"),
            TableColumn(name="moved_usd", heading="To another day", drop=1),
        ),
        rows=tuple(rows),
    )


def causes_document(explained: Sequence[tuple[str, Explanation]]) -> list[dict[str, Any]]:
    """The same for JSON, exact."""
    return [
        {
            "provider": provider or None,
            "ledger_usd": usd(found.ledger_picousd),
            "causes": [
                {
                    "kind": each.kind,
                    "cause": each.what,
                    "amount_usd": usd(each.amount_picousd),
                    "moved_usd": usd(each.moved_picousd),
                }
                for each in found.causes
            ],
            "rest_usd": usd(found.rest_picousd),
            "rest_figures": found.rest_cells,
            "statement_usd": usd(found.statement_picousd),
        }
        for provider, found in explained
    ]


def summary(entries: Iterable[Compared]) -> str:
    """The number of figures per verdict, in one line."""
    counts = Counter(str(entry.verdict) for entry in entries)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


def _name(entry: Compared) -> str:
    return "cost_usd" if entry.figure == "cost_picousd" else entry.figure


def _shown(entry: Compared, value: int | None) -> Cell:
    return Amount(picousd=value) if entry.figure == "cost_picousd" and value is not None else value


def _exact(entry: Compared, value: int | None) -> int | Decimal | None:
    return usd(value) if entry.figure == "cost_picousd" else value
