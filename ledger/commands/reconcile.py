"""Wiring. `tokentee reconcile`: compare providers' statements with the ledger."""

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from ledger.commands.options import Format, LedgerOption, Only, Since, TableFormat, Until
from ledger.commands.output import say, write
from ledger.commands.scope import scope_of


def reconcile(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="What a provider exports: OpenAI usage and costs (JSON), Anthropic usage and cost "
            "(JSON or CSV), OpenRouter activity, or a CSV of day, model, tokens, cost_usd.",
        ),
    ],
    *,
    since: Since = None,
    until: Until = None,
    only: Only = None,
    provider: Annotated[
        str | None, typer.Option(help="Whose statement it is, where the export does not say.")
    ] = None,
    tolerance: Annotated[
        str, typer.Option(metavar="PERCENT", help="What may differ and still agree.")
    ] = "0.1",
    differences: Annotated[
        bool, typer.Option("--differences", help="Leave out what agrees.")
    ] = False,
    format: TableFormat = Format.TABLE,  # noqa: A002
    ledger: LedgerOption = None,
) -> None:
    """Lay providers' statements beside the ledger; exit code 1 if they do not agree."""
    from ledger.reconcile import booked, comparison_tables, statement_files
    from ledger.reconcile.comparison import AGREES
    from ledger.reports.queries import open_ledger

    scope, part = scope_of(since, until, only), _percent(tolerance)
    statements = [statement_files.load(file, provider=provider) for file in files]
    for file, statement in zip(files, statements, strict=True):
        of = f" of {statement.provider}" if statement.provider else ""
        say(f"{file}: {statement.kind}{of}, {len(statement.lines)} lines")
        for warning in statement.warnings:
            say(f"{file}: {warning}")
    engine = open_ledger(ledger)
    entries = booked.reconcile(engine, statements, scope, tolerance=part)
    shown = [entry for entry in entries if not differences or entry.verdict not in AGREES]
    write(format, comparison_tables.table(shown), comparison_tables.document(entries))
    say(comparison_tables.summary(entries) or "the statements say nothing of this period")
    if any(entry.verdict not in AGREES for entry in entries):
        raise typer.Exit(1)


def _percent(text: str) -> Decimal:
    from ledger.model.errors import LedgerError

    try:
        percent = Decimal(text.removesuffix("%"))
    except InvalidOperation:
        percent = Decimal(-1)
    if not 0 <= percent <= 100:
        raise LedgerError(f"not a percentage: {text!r}; write --tolerance 0.1")
    return percent / 100
