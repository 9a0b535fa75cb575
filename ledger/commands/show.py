"""Wiring. `tokentee show`: one request to the last line."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.commands.options import LedgerOption
from ledger.commands.output import print_table

if TYPE_CHECKING:
    from collections.abc import Iterable


class ShowFormat(StrEnum):
    """What `show` writes."""

    TEXT = "text"
    JSON = "json"


def show(
    word: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The exchange's id, the response's id, or how either begins."
        ),
    ],
    *,
    format: Annotated[  # noqa: A002
        ShowFormat, typer.Option("--format", "-f")
    ] = ShowFormat.TEXT,
    ledger: LedgerOption = None,
) -> None:
    """Explain one request to the last line: frames, usage, prices and where each came from."""
    from ledger.reports import explain, render
    from ledger.reports.lookup import find
    from ledger.reports.queries import open_ledger

    found = find(open_ledger(ledger), word)
    if format is ShowFormat.JSON:
        sys.stdout.write(render.as_json(explain.document(found)))
        return
    _facts(explain.facts(found))
    for reading in found.readings:
        sys.stdout.write("\n")
        _facts(explain.reading_facts(reading))
    if found.charges:
        print_table(explain.charge_table(found.charges))
    else:
        sys.stdout.write("\nNo charges: nothing was reported to charge.\n")
    if found.past_charges:
        sys.stdout.write("Before, and in no total:\n")
        print_table(explain.charge_table(found.past_charges))


def _facts(pairs: "Iterable[tuple[str, str]]") -> None:
    from ledger.reports.render import printable

    for heading, text in pairs:
        sys.stdout.write(f"{heading:<26}{printable(text)}\n")
