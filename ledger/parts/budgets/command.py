"""Wiring. `tokentee budget`: the state of budgets, for people, CI and cron."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from ledger.commands.options import Budgets, Format, LedgerOption, NamesOption, TableFormat
from ledger.commands.output import print_line, write

if TYPE_CHECKING:
    from ledger.parts.budgets.status import Status

budget = typer.Typer(
    invoke_without_command=True,
    help="The state of budgets, with a forecast, and of caps. A budget never stops traffic; a cap "
    "does.",
)


@budget.callback()
def show_budgets(
    context: typer.Context,
    *,
    budgets: Budgets = None,
    format: TableFormat = "table",  # noqa: A002
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Show each budget in its current period, with a forecast to the period's end."""
    if context.invoked_subcommand is None:
        _show(budgets, names, ledger, format)


@budget.command("check")
def check_budgets(
    *,
    budgets: Budgets = None,
    format: TableFormat = "table",  # noqa: A002
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Show the budgets; exit code 1 if one is over its limit. For CI and cron."""
    if any(status.is_over for status in _show(budgets, names, ledger, format)):
        raise typer.Exit(1)


@budget.command("alert")
def alert(
    *, budgets: Budgets = None, names: NamesOption = None, ledger: LedgerOption = None
) -> None:
    """Send the alerts that are due.

    A running proxy does so by itself. Each alert is sent once per budget, period and threshold, by
    the proxy or by this command. Exit code 1: one failed.
    """
    from ledger.figures.queries import existing_ledger
    from ledger.parts.budgets import budgets_file
    from ledger.parts.budgets.alerts import CLAIM_SECONDS, send_due, waiting
    from ledger.settings import names_file
    from ledger.text.figures import counted, seconds_text

    found = budgets_file.load(budgets)
    budgets_file.check_persons(found.caps, names)
    with existing_ledger(ledger) as engine:
        now = datetime.now(UTC)
        _, taken = send_due(engine, found, names_file.load(names), now, _log)
        left = waiting(engine, now)
    again = f"; not delivered: {left}, tried again after {seconds_text(CLAIM_SECONDS)}"
    print_line(f"sent: {counted(taken, 'alert')}{again if left else ''}")
    if left:
        raise typer.Exit(1)


def _log(_level: str, line: str) -> None:
    print_line(line)


def _show(
    budgets: str | None,
    names: str | None,
    ledger: str | None,
    format: Format,  # noqa: A002
) -> "list[Status]":
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import LedgerError
    from ledger.parts.budgets import budgets_file, status
    from ledger.settings import names_file
    from ledger.settings.small_files import config_directory

    path = budgets_file.path_of(budgets)
    if path is None:
        where = config_directory() / "budgets.toml"
        raise LedgerError(f"there are no budgets: write {where}, or name a file with --budgets")
    known, named, now = budgets_file.load(str(path)), names_file.load(names), datetime.now(UTC)
    budgets_file.check_persons(known.caps, names)
    with existing_ledger(ledger) as engine:
        found = status.statuses(engine, known.budgets, named, now)
        caps = status.statuses(engine, known.caps, named, now)
    document = status.document([*found, *caps])
    if found or not caps or format == "json":
        write(format, status.table(found), document, "Budgets")
    if caps and format != "json":
        write(format, status.caps_table(caps), document, "Caps")
    for note in status.notes(found):
        print_line(note)
    return found
