"""Wiring. `tokentee export`: Parquet or CSV files, one per day."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ledger.commands.options import (
    LedgerOption,
    NamesOption,
    Only,
    Since,
    TimezoneOption,
    Until,
    scope_of,
)
from ledger.commands.output import print_line

NOTHING = ("nothing to export in this period", "nothing new since the last export")


def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where the files go, a folder for each day.")
    ],
    *,
    what: Annotated[
        Literal["requests", "charges", "focus", "events", "audr"],
        typer.Option(
            help="requests (the view), charges (its lines), FOCUS billing, or of what the cursor "
            "has not told yet: events (CloudEvents) or audr (AUDR records)."
        ),
    ] = "requests",
    format: Annotated[  # noqa: A002
        Literal["parquet", "csv"] | None,
        typer.Option(
            "--format",
            "-f",
            metavar="parquet|csv",
            help="default: parquet; events are lines of JSON.",
            show_default=False,
        ),
    ] = None,
    cursor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --what events, audr: whose progress the ledger keeps; default: that name.",
            show_default=False,
        ),
    ] = None,
    environment: Annotated[
        Literal["production", "staging", "development", "test", "evaluation"] | None,
        typer.Option(
            metavar="NAME",
            help="With --what audr: where requests ran whose tags name no environment.",
            show_default=False,
        ),
    ] = None,
    focus_version: Annotated[
        Literal["1.2", "1.4"] | None,
        typer.Option(
            metavar="1.2|1.4",
            help="With --what focus; 1.2, the latest that the validator checks, is the default.",
            show_default=False,
        ),
    ] = None,
    statement: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="With --what focus: a vendor's statement that names its invoice (AWS, Azure); "
            "fills InvoiceId. May be repeated.",
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    only: Only = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Write requests, charges or FOCUS billing rows as Parquet or CSV, partitioned by day; or
    billing events, resumed where the last export ended."""
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import WrongCallError
    from ledger.parts.exports import events
    from ledger.parts.exports import export as exporting
    from ledger.text.figures import counted

    if focus_version is not None and what != "focus":
        raise WrongCallError("--focus-version is for --what focus")
    is_events = what in ("events", "audr")
    if cursor is not None and not is_events:
        raise WrongCallError("--cursor is for --what events and audr")
    if format is not None and is_events:
        raise WrongCallError(f"--what {what} writes lines of JSON; leave --format out")
    if (environment is not None) != (what == "audr"):
        raise WrongCallError("--what audr needs --environment, and nothing else takes it")
    name = exporting.FOCUS[focus_version or "1.2"] if what == "focus" else what
    scope = scope_of(since, until, only, names, timezone)
    with existing_ledger(ledger) as engine:
        wanted = exporting.Wanted(invoices=_invoices(statement or []))
        rows = 0
        form = format or "parquet"
        for written in (
            events.export_events(engine, directory, cursor or what, scope, environment)
            if is_events
            else exporting.export(engine, name, directory, form, scope, wanted=wanted)
        ):
            rows += written.rows
            print_line(f"{written.path}: {counted(written.rows, 'row')}")
        print_line(f"{counted(rows, 'row')} in all" if rows else NOTHING[is_events])
        if what == "focus" and (left := exporting.count_unpriced_charges(engine, scope)):
            print_line(
                f"left out, as they have no price: {counted(left, 'line')}; "
                "FOCUS cannot say that a cost is not known"
            )


def _invoices(files: list[str]) -> dict[tuple[str, str], str]:
    """(provider, month) -> the invoice, if the statements name exactly one."""
    from ledger.attach import attached
    from ledger.model.errors import LedgerError

    readers = attached("statement")
    if files and not readers:
        raise LedgerError("--statement needs the part `reconcile`, which is missing")
    found: dict[tuple[str, str], set[str]] = {}
    for file in files:
        statement = readers[0](file, provider=None)
        for line in statement.lines:
            if line.invoice is not None and statement.provider is not None:
                key = (statement.provider, f"{line.day:%Y-%m}")
                found.setdefault(key, set()).add(line.invoice)
        if not any(line.invoice for line in statement.lines):
            raise LedgerError(f"--statement {file}: a {statement.kind} names no invoice")
    for (provider, month), ids in found.items():
        if len(ids) > 1:
            print_line(
                f"{provider} {month}: several invoices, InvoiceId is left empty: {sorted(ids)}"
            )
    return {key: ids.pop() for key, ids in found.items() if len(ids) == 1}
