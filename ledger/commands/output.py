"""Wiring. How commands print: results to stdout, everything else to stderr."""

import sys
from typing import TYPE_CHECKING

import typer

from ledger.commands.options import Format

if TYPE_CHECKING:
    from ledger.reports.render import Table


def say(line: str) -> None:
    """Print a line that is not the result, to stderr."""
    typer.echo(line, err=True)


def write(format: Format, table: "Table", document: object) -> None:  # noqa: A002
    """Write one result in the format that was asked for."""
    from ledger.reports import render

    if format is Format.JSON:
        sys.stdout.write(render.as_json(document))
    elif format is Format.CSV:
        sys.stdout.write(render.as_csv(table))
    elif format is Format.MARKDOWN:
        sys.stdout.write(render.as_markdown(table))
    elif table.rows:
        print_table(table)


def print_table(table: "Table") -> None:
    """Print a table to stdout."""
    from rich.console import Console

    from ledger.reports import render

    # A pipe has no width of its own, and a table that wraps is of no use to grep.
    console = Console(width=None if sys.stdout.isatty() else 200)
    render.print_table(table, console)
