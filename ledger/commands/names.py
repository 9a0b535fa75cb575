"""Wiring. `tokentee names`: who is behind keys, hosts, tags, sessions and projects."""

import sys
from typing import Annotated

import typer

from ledger.commands.options import LedgerOption, NamesOption, Since, TimezoneOption, scope_of
from ledger.commands.output import print_line

names = typer.Typer(
    no_args_is_help=True,
    help="People, teams and cost centres behind keys, hosts, tags, sessions and projects.",
)


@names.command("check")
def check_names(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A names file (TOML).", show_default=False),
    ] = None,
) -> None:
    """Check a names file.

    By default the one in force. Exit code 1: something is wrong.
    """
    from pathlib import Path

    from ledger.model.errors import LedgerError
    from ledger.settings import names_file
    from ledger.settings.small_files import config_directory
    from ledger.text.figures import counted

    path = Path(file) if file else names_file.path_of(None)
    if path is None:
        where = config_directory() / "names.toml"
        raise LedgerError(f"there is no names file: write {where}, or run `tokentee names suggest`")
    found, problems = names_file.check(path)
    for problem in problems:
        print_line(f"{path}: {problem}")
    if problems:
        raise typer.Exit(1)
    plans = f", {counted(len(found.plans), 'plan')}" if found.plans else ""
    typer.echo(f"{path}: {counted(len(found.entries), 'name')}{plans}")


@names.command("suggest")
def suggest_names(
    *,
    since: Since = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Suggest entries for keys that have no team yet.

    Writes a names file of the keys, hosts and tags of the ledger. Every entry is a comment: fill in
    the team or person, and remove the #.
    """
    from ledger.figures.queries import existing_ledger
    from ledger.reports.name_suggestions import suggestions

    scope = scope_of(since, None, None, names, timezone)
    with existing_ledger(ledger) as engine:
        lines = list(suggestions(engine, scope))
    if not lines:
        print_line("every key has a team")
        return
    sys.stdout.write("\n".join(lines) + "\n")
