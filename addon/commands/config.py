"""Wiring. `tokentee config`: check a config file, show the settings in force."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from addon.run.call import config_file
from ledger.model.errors import LedgerError
from ledger.store.engines import urls
from ledger.text.printable import without_passwords

config = typer.Typer(no_args_is_help=True, help="The config file of `tokentee run`.")

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="Default: TOKENTEE_CONFIG, ./tokentee.toml, the user's config folder, /etc/tokentee.",
        show_default=False,
    ),
]


@config.command()
def check(file: File = None) -> None:
    """Check a config file.

    Every problem is named with its line; exit code 1 if there is any.
    """
    path = _found(file)
    _, problems = config_file.check(path)
    for problem in problems:
        sys.stdout.write(f"{path}: {problem}\n")
    if problems:
        raise typer.Exit(1)
    sys.stderr.write(f"{path}: no problem found\n")


@config.command()
def show(
    file: File = None,
    *,
    format: Annotated[Literal["text", "json"], typer.Option("--format", "-f")] = "text",  # noqa: A002  # the option's name
) -> None:
    """Show the settings in force, and the source of each.

    Passwords are hidden.
    """
    path = _found(file)
    loaded = config_file.load(path)
    rows = [
        (
            option.name,
            urls.shown(option.value)
            if option.name == "ledger_url"
            else without_passwords(option.value),
            option.source if option.source != "file" else str(path),
        )
        for option in config_file.options_of(loaded, os.environ)
    ]
    rows += [("mode", mode, str(path)) for mode in config_file.modes_of(loaded.settings)]
    if format == "json":
        document = [{"name": name, "value": value, "from": source} for name, value, source in rows]
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, value, source in rows:
        sys.stdout.write(f"{name:<{width}}  {value}  ({source})\n")


@config.command()
def trust(
    file: File = None,
    *,
    revoke: Annotated[bool, typer.Option("--revoke", help="Trust it no longer.")] = False,
    lists: Annotated[bool, typer.Option("--list", help="Print the trusted files.")] = False,
) -> None:
    """Let a config file in the current folder set everything.

    Such a file was found, not named, so by itself it sets only what is harmless: tags, names, log
    lines, budgets without alerts. Trust holds for its content and that of the files that it names:
    any change ends it.
    """
    if lists:
        for trusted, known in config_file.remembered().items():
            sys.stdout.write(f"{known[:12]}  {trusted}\n")
        return
    path = _found(file)
    digest = None if revoke else config_file.load(path).digest
    config_file.remember(path, digest)
    sys.stderr.write(f"{path}: {'no longer trusted' if revoke else 'trusted as it is now'}\n")


def _found(file: Path | None) -> Path:
    path = config_file.path_of(str(file) if file else None)
    if path is None:
        looked = ", ".join(str(place) for place in config_file.places())
        raise LedgerError(f"no config file: looked for {looked}; name one")
    return path
