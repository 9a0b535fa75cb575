"""Wiring. `tokentee export`: Parquet or CSV files, one per day."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ledger.commands.options import LedgerOption, Only, Since, Until
from ledger.commands.output import say
from ledger.commands.scope import scope_of


class ExportFormat(StrEnum):
    """The kinds of file."""

    PARQUET = "parquet"
    CSV = "csv"


class What(StrEnum):
    """The data sets."""

    REQUESTS = "requests"
    CHARGES = "charges"
    FOCUS = "focus"


def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where the files go, a folder for each day.")
    ],
    *,
    what: Annotated[
        What, typer.Option(help="requests (the view), charges (its lines), or FOCUS 1.2 billing.")
    ] = What.REQUESTS,
    format: Annotated[  # noqa: A002
        ExportFormat, typer.Option("--format", "-f")
    ] = ExportFormat.PARQUET,
    since: Since = None,
    until: Until = None,
    only: Only = None,
    ledger: LedgerOption = None,
) -> None:
    """Write requests, charges or FOCUS billing rows as Parquet or CSV, partitioned by day."""
    from ledger.reports import export as exporting
    from ledger.reports.day_files import FileFormat
    from ledger.reports.queries import open_ledger

    scope = scope_of(since, until, only)
    engine = open_ledger(ledger)
    rows = 0
    for written in exporting.export(engine, what, directory, FileFormat(format), scope):
        rows += written.rows
        say(f"{written.path}: {written.rows:,} rows")
    say(f"{rows:,} rows in all" if rows else "nothing to export in this period")
    if what is What.FOCUS and (left := exporting.unpriced_lines(engine, scope)):
        say(f"{left:,} lines have no price and are left out: FOCUS knows no unknown cost")
