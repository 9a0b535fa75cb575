"""Wiring. `tokentee show`: explains one request line by line."""

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ledger.commands.options import LedgerOption
from ledger.commands.output import console, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable


HEADING_COLUMNS = 26
"""Width of the headings before the texts."""


def show(
    word: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The exchange's id, the response's id, or how either begins. One that begins "
            "with a dash goes after `--`.",
        ),
    ],
    *,
    format: Annotated[  # noqa: A002
        Literal["text", "json"], typer.Option("--format", "-f")
    ] = "text",
    ledger: LedgerOption = None,
) -> None:
    """Explain one request to the last line: frames, usage, prices and where each came from."""
    from ledger.figures.queries import existing_ledger
    from ledger.reports import explain, render
    from ledger.reports.lookup import AmbiguousError, candidates, find

    with existing_ledger(ledger) as engine:
        try:
            found = find(engine, word)
        except AmbiguousError as error:
            print_line(str(error))
            print_table(candidates(engine, error), is_error=True)
            raise typer.Exit(1) from None
    if format == "json":
        sys.stdout.write(render.as_json(explain.document(found)))
        return
    _facts(explain.facts(found))
    for reading in found.readings:
        sys.stdout.write("\n")
        _facts(explain.reading_facts(reading))
    sys.stdout.write("\n")
    if found.charges:
        print_table(explain.charge_table(found.charges), explain.charge_title(found.charges))
    else:
        sys.stdout.write("No charges: nothing was reported to charge.\n")
    if found.past_charges:
        sys.stdout.write("\nSuperseded, in no total:\n")
        print_table(
            explain.charge_table(found.past_charges), explain.charge_title(found.past_charges)
        )


def _facts(pairs: "Iterable[tuple[str, str]]") -> None:
    from ledger.reports.layout import wrapped
    from ledger.text.printable import printable

    width = console().width
    for heading, text in pairs:
        line = f"{heading:<{HEADING_COLUMNS}}{printable(text)}"
        sys.stdout.write(f"{wrapped(line, width, ' ' * HEADING_COLUMNS)}\n")
