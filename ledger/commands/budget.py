"""Wiring. `tokentee budget`: the state of budgets, for people, CI and cron."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from ledger.commands.options import Budgets, Format, LedgerOption, NamesOption, TableFormat
from ledger.commands.output import print_line, write

if TYPE_CHECKING:
    from ledger.budgets.status import BudgetStatus

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
    import time

    from ledger.budgets import alerts, budgets_file
    from ledger.budgets.sender import send
    from ledger.figures.queries import existing_ledger
    from ledger.settings import names_file as name_files
    from ledger.text.figures import counted

    now, found = datetime.now(UTC), budgets_file.load(budgets)
    with existing_ledger(ledger) as engine:
        due = alerts.claim_alerts(engine, found, name_files.load(names), now)
        sent = [each for each in due if send(each, found.destinations, log=_log, pause=time.sleep)]
        alerts.mark_sent(engine, sent, now)
    print_line(f"sent: {counted(len(sent), 'alert')}")
    if len(sent) < len(due):
        raise typer.Exit(1)


def _log(_level: str, line: str) -> None:
    print_line(line)


def _show(
    budgets: str | None,
    names: str | None,
    ledger: str | None,
    format: Format,  # noqa: A002
) -> "list[BudgetStatus]":
    from ledger.budgets import budgets_file, cap_status, status
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import LedgerError
    from ledger.settings import names_file as name_files
    from ledger.settings.small_files import config_directory

    path = budgets_file.path_of(budgets)
    if path is None:
        where = config_directory() / "budgets.toml"
        raise LedgerError(f"there are no budgets: write {where}, or name a file with --budgets")
    known, named, now = budgets_file.load(str(path)), name_files.load(names), datetime.now(UTC)
    with existing_ledger(ledger) as engine:
        found = status.statuses(engine, known.budgets, named, now)
        caps = cap_status.statuses(engine, known.caps, named, now)
    document = status.document(found) | {"caps": cap_status.document(caps)}
    if found or not caps or format == "json":
        write(format, status.table(found), document, "Budgets")
    if caps and format != "json":
        write(format, cap_status.table(caps), document, "Caps")
    for note in status.notes(found):
        print_line(note)
    return found
