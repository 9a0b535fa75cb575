"""Wiring. The ledger's commands, and what all commands share.

Exit codes: 0 done, 1 the answer is no, 2 wrong call. Machine formats go to stdout, everything
else to stderr.
"""

import sys
from collections.abc import Callable

import typer

from ledger.commands import db, export, prices, reconcile, report, reprice, show
from ledger.model.errors import LedgerError


def add_commands(app: typer.Typer) -> None:
    """Put the ledger's commands on the `tokentee` command."""
    app.command()(report.report)
    app.command()(show.show)
    app.command()(reprice.reprice)
    app.command()(reconcile.reconcile)
    app.command()(export.export)
    app.add_typer(prices.prices, name="prices")
    db.add(app)


def run(app: Callable[[], None]) -> None:
    """Run a command; what the operator did wrong is one line and exit code 1."""
    try:
        app()
    except LedgerError as error:
        print(f"tokentee: {error}", file=sys.stderr)  # noqa: T201  # the one place that prints it
        sys.exit(1)
