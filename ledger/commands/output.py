"""Wiring. How commands print: results to stdout, everything else to stderr."""

import errno
import os
import sys
from typing import TYPE_CHECKING, TextIO

import typer

from ledger.commands.options import Format
from ledger.text.hints import as_typed, named_ledger
from ledger.text.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

    from ledger.reports.layout import Table

PIPE_COLUMNS = 100
"""Width of a table if neither `COLUMNS` nor a terminal gives one."""


def print_line(line: str) -> None:
    """Print a line that is not the result, to stderr; for a terminal it is wrapped at spaces. Its
    commands can be typed as they stand."""
    line = as_typed(printable(line), os.environ, named_ledger(sys.argv))
    if sys.stderr.isatty():
        from ledger.reports.layout import wrapped

        line = wrapped(line, console(is_error=True).width, indent="  ")
    typer.echo(line, err=True)


def write(
    format: Format,  # noqa: A002
    table: "Table",
    document: object,
    title: str = "",
) -> None:
    """Write one result in the requested format."""
    from ledger.reports import render

    if format == "json":
        sys.stdout.write(render.as_json(document))
    elif format == "csv":
        sys.stdout.write(render.as_csv(table))
    elif format == "markdown":
        sys.stdout.write(render.as_markdown(table, title))
    elif table.rows:
        left_out = print_table(table, title)
        if left_out:
            print_line(
                f"no room for {', '.join(left_out)}; a wider terminal or --format csv has them"
            )


def print_table(table: "Table", title: str = "", *, is_error: bool = False) -> tuple[str, ...]:
    """Print a table; returns the headings of the columns that did not fit."""
    from ledger.reports import render

    return render.print_table(table, console(is_error=is_error), title)


def console(*, is_error: bool = False) -> "Console":
    """Standard output or error, as wide as its terminal; bold and dim only, so that it is readable
    on light and dark backgrounds."""
    from rich.console import Console

    class LeavingPipes(Console):
        """Leaves a pipe without a reader to `ledger.cli`, as all other output does."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    stream: TextIO = sys.stderr if is_error else sys.stdout
    is_sized = "COLUMNS" in os.environ or stream.isatty()
    return LeavingPipes(file=stream, width=None if is_sized else PIPE_COLUMNS, highlight=False)
