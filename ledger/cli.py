"""Wiring. The ledger's commands, and the parts that all commands share.

Exit codes: 0 done, 1 the answer is no, 2 wrong call. Machine formats go to stdout, everything
else to stderr.

A command is a row here and a function or `typer.Typer` in a module of its own. The module is
imported when the command is called: importing SQLAlchemy alone takes longer than `tokentee --help`
may.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from ledger.model.errors import LedgerError, WrongCallError
from ledger.text.extras import missing_extra
from ledger.text.passwords import without_passwords
from ledger.text.printable import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of `tokentee`."""

    name: str
    module: str
    attribute: str
    """Of the module: a function for Typer, or a `typer.Typer` with sub-commands."""
    summary: str
    """For `tokentee --help`; fits one line of 80 columns with the name."""


COMMANDS = (
    Command(
        name="report",
        module="ledger.commands.report",
        attribute="report",
        summary="Tokens, cache and cost by model, key, day, ...",
    ),
    Command(
        name="requests",
        module="ledger.commands.requests",
        attribute="requests",
        summary="Single requests, the latest first, filtered",
    ),
    Command(
        name="serve",
        module="ledger.commands.serve",
        attribute="serve",
        summary="The ledger as pages in your browser, live",
    ),
    Command(
        name="show",
        module="ledger.commands.show",
        attribute="show",
        summary="Explain one request to the last line",
    ),
    Command(
        name="export",
        module="ledger.commands.export",
        attribute="export",
        summary="Write the ledger as CSV, Parquet or FOCUS",
    ),
    Command(
        name="prices",
        module="ledger.commands.money.prices",
        attribute="prices",
        summary="What a model costs; check a price file",
    ),
    Command(
        name="names",
        module="ledger.commands.names",
        attribute="names",
        summary="Who is behind keys, hosts, tags, projects",
    ),
    Command(
        name="budget",
        module="ledger.commands.money.budget",
        attribute="budget",
        summary="Budgets: spent, forecast; check exits 1 when over",
    ),
    Command(
        name="statusline",
        module="ledger.commands.statusline",
        attribute="statusline",
        summary="One line for Claude Code, tmux and prompts",
    ),
    Command(
        name="digest",
        module="ledger.commands.digest",
        attribute="digest",
        summary="Yesterday or last week, for cron, mail and Slack",
    ),
    Command(
        name="mcp",
        module="ledger.commands.mcp_server",
        attribute="mcp",
        summary="Tools for agents that ask what they cost (MCP)",
    ),
    Command(
        name="limits",
        module="ledger.commands.limits",
        attribute="limits",
        summary="Limits of plans and keys, and who used them",
    ),
    Command(
        name="cache",
        module="ledger.commands.why",
        attribute="cache",
        summary="What broke prompt caches, and what it cost",
    ),
    Command(
        name="context",
        module="ledger.commands.why",
        attribute="context",
        summary="What fills the input: tools, messages, images",
    ),
    Command(
        name="what-if",
        module="ledger.commands.why",
        attribute="what_if",
        summary="What another model would have cost",
    ),
    Command(
        name="top",
        module="ledger.commands.top",
        attribute="top",
        summary="Running requests and today's cost, live",
    ),
    Command(
        name="reprice",
        module="ledger.commands.money.reprice",
        attribute="reprice",
        summary="Price what has no price, with a price file",
    ),
    Command(
        name="reconcile",
        module="ledger.commands.money.reconcile",
        attribute="reconcile",
        summary="Compare the ledger with a provider's statement",
    ),
    Command(
        name="sync",
        module="ledger.commands.db",
        attribute="sync",
        summary="Merge a ledger into another one",
    ),
    Command(
        name="db",
        module="ledger.commands.db",
        attribute="db_commands",
        summary="The ledger's schema: upgrade, current, check, describe, drop",
    ),
)


def run(app: Callable[[], None]) -> None:
    """Run a command. An error that the operator can fix prints one line and exits with 1, or with 2
    for a wrong call.
    """
    try:
        app()
    except WrongCallError as error:
        fail(str(error), 2)
    except LedgerError as error:
        fail(str(error), 1)
    except ModuleNotFoundError as error:
        text = missing_extra(error)
        if text is None:
            raise
        fail(text, 1)


def fail(text: str, exit_code: int) -> None:
    """Print one line and exit."""
    print(f"tokentee: {printable(without_passwords(text))}", file=sys.stderr)  # noqa: T201  # the one place that prints it
    sys.exit(exit_code)
