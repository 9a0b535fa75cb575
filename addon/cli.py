"""Wiring. The `tokentee` command: names its sub-commands, and imports them when they are called.

`--help`, `--version` and a mistyped command are answered here, without importing anything.
"""

import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from addon.attach import PARTS, attached
from addon.run.imports import uncollected_imports
from ledger import attach
from ledger import cli as ledger_cli
from ledger.attach import commands_of
from ledger.part import Command, commands_in
from ledger.text.hints import as_typed

if TYPE_CHECKING:
    import typer

OF_PARTS, MISSING = commands_of(PARTS)
"""Commands of the parts that are there; and those of missing parts -> what is missing for them."""
COMMANDS = (
    *commands_in(
        "addon.commands",
        "Record",
        ("run", "run", "run", "Record what a command sends to LLMs, or be a recording proxy"),
        ("demo", "demo", "demo_command", "Fake providers, a real proxy, a bill; needs no key"),
        ("path", "run", "path_command", 'Print the script\'s path: mitmdump -s "$(tokentee path)"'),
        ("replay", "replay", "replay_command", "Read recorded exchanges into the ledger"),
        ("rebuild", "rebuild", "rebuild_command", "Read recordings again and correct their rows"),
    ),
    *ledger_cli.COMMANDS,
    *commands_in(
        "addon.commands",
        "Operate",
        (
            "verify",
            "verify",
            "verify_command",
            "Check the ledger: bytes, digests, readings, charges, sums",
        ),
    ),
    *OF_PARTS,
)
GROUPS = ("Record", "Look", "Money", "Operate")
"""The headings of the overview."""
GONE = {
    "config": "`tokentee run --config FILE` names every mistake in FILE; what lies in the current "
    "folder is read only if it is named",
    "digest": "`tokentee report --since yesterday --format markdown`, or `tokentee report --html "
    "FILE`",
    "mcp": "an agent calls the commands with --format json: report, requests, show, limits, cache",
    "what-if": "`tokentee report --format json` has the tokens, `tokentee prices show MODEL` what "
    "they cost",
    "deploy": "its files lie in docs/deploy of a clone: Docker, systemd, Kubernetes, Prometheus …",
}
"""Command of before -> what is there instead."""
ELSEWHERE = {
    "daily": "report --by day",
    "weekly": "report --by week",
    "monthly": "report --by month",
    "today": "report --since today",
    "month": "report --since this-month",
    "session": "report --by session",
    "blocks": "report --by block",
    "cost": "report",
    "models": "report --by model",
    "ui": "serve --open",
}
"""Command of ccusage, codeburn and others -> ours that does it."""
GONE_WORDS: dict[tuple[str, ...], str] = {
    ("prices", "history"): "`tokentee prices show MODEL --at DAY` has the prices of a day",
    ("prices", "rollback"): "`tokentee prices update FILE` puts an older list into force again",
}
"""Word of a command before -> what is there instead."""
GONE_OPTIONS = {
    "--currency": "amounts are in USD",
    "--rates": "amounts are in USD",
}
"""Option of before, of any command but `run` -> what is there instead. Those of `run` are in
`addon.run.call.arguments`, which tells its options from those of the command behind it."""
BY_NAME = {command.name: command for command in COMMANDS}
ABOUT = "A tee for LLM token streams: records usage and cost of every request that passes."
COMPLETION_WORDS = ("--install-completion", "--show-completion")


def main() -> None:
    """The entry point: `tokentee ...`."""
    ledger_cli.run(lambda: _call(sys.argv[1:]), logs_there)


def _call(words: list[str]) -> None:
    ours = words[1 : words.index("--") if "--" in words else None]
    for word in ours if words[:1] != ["run"] else ():
        if (option := word.partition("=")[0]) in GONE_OPTIONS:
            ledger_cli.fail(f"there is no {option} any more; {GONE_OPTIONS[option]}", 2)
    if (gone := GONE_WORDS.get(tuple(words[:2]))) is not None:
        ledger_cli.fail(f"there is no {' '.join(words[:2])} any more; {gone}", 2)
    if "_TOKENTEE_COMPLETE" in os.environ or (words[:1] and words[0] in COMPLETION_WORDS):
        application(COMMANDS)(prog_name="tokentee")
        return
    match words[0] if words else "--help":
        case "--help" | "-h" | "help":
            sys.stdout.write(overview())
        case "--version" | "-V":
            sys.stdout.write(f"tokentee {version()} ({runs_on()})\n")
        case "run":
            sys.exit(_loaded(BY_NAME["run"])(words[1:]))
        case name if name in BY_NAME:
            application([BY_NAME[name]])(words, prog_name="tokentee")
        case name if name in MISSING:
            ledger_cli.fail(f"{name} belongs to a part that is missing here: {MISSING[name]}", 2)
        case name if name in GONE:
            ledger_cli.fail(f"there is no {name} any more; {GONE[name]}", 2)
        case name if name in ELSEWHERE:
            ledger_cli.fail(f"there is no {name}; this does it: tokentee {ELSEWHERE[name]}", 2)
        case name:
            kind = "option" if name.startswith("-") else "command"
            known = ["--help", "--version", *BY_NAME]
            near = get_close_matches(name, known, 1)
            ending = f"did you mean {near[0]}?" if near else "tokentee --help lists them"
            ledger_cli.fail(f"there is no {kind} {name!r}; {ending}", 2)


def application(commands: Iterable[Command] = COMMANDS) -> "typer.Typer":
    """A Typer application of these commands; their modules are imported."""
    import typer
    from typer.core import TyperCommand

    class Plain(TyperCommand):
        """Names what a call must have as other programs do: `FILE`, not Typer's `{FILE}`."""

        def collect_usage_pieces(self, ctx: Any) -> list[str]:
            return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    app = typer.Typer(
        name="tokentee",
        help=ABOUT,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,  # plain text: rich takes as long to import as all of Typer
    )
    app.callback()(_nothing)  # or a single command would swallow its own name
    for command in commands:
        found = _loaded(command)
        if isinstance(found, typer.Typer):
            for each in found.registered_commands:
                each.cls = Plain
            app.add_typer(found, name=command.name)
        elif command.name == "run":  # takes its words as they are
            raw = {"ignore_unknown_options": True, "allow_extra_args": True}

            def run(context: typer.Context) -> None:
                raise typer.Exit(_loaded(BY_NAME["run"])(context.args))

            app.command("run", context_settings=raw, add_help_option=False)(run)
        else:
            options = attached(f"option of {command.name}")
            app.command(command.name, cls=Plain)(attach.with_options(found, options))
    return app


def logs_there() -> str:
    """What could fill a ledger that is not there or empty, for the end of the error: `; 97 logs of
    Claude Code: tokentee import`."""
    found = (count() for count in attached("logs to import"))
    return "".join(f"; {text}" for text in found if text)


def overview() -> str:
    """The text of `tokentee --help`."""
    width = max(map(len, BY_NAME)) + 2
    groups = "".join(
        f"\n{heading}:\n"
        + "".join(
            f"  {command.name:<{width}}{command.summary}\n"
            for command in COMMANDS
            if command.group == heading
        )
        for heading in GROUPS
    )
    return (
        f"Usage: tokentee COMMAND [OPTIONS] ...\n\n{ABOUT}\n{groups}\n"
        "Options:\n"
        "  --version             Print the version.\n"
        "  -h, --help            Print this; after a command, what it does.\n"
        "  --install-completion  Let your shell complete commands and options.\n"
        f"\nTry: {as_typed('tokentee demo', os.environ)}\n"
    )


def runs_on() -> str:
    """What this installation runs on, for a report of a bug."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    found = [f"Python {platform.python_version()}"]
    for name in ("mitmproxy", "sqlalchemy", "genai-prices"):
        try:
            found.append(f"{name} {version_of(name)}")
        except PackageNotFoundError:
            found.append(f"{name} is missing")
    return ", ".join([*found, f"{platform.system()} {platform.machine()}"])


def version() -> str:
    """The version of the installed package."""
    from importlib.metadata import version as version_of

    return version_of("tokentee")


def _loaded(command: Command) -> Any:
    with uncollected_imports():
        return attach.loaded(command.module, command.attribute)


def _nothing() -> None:
    """Options before the command: there are none."""
