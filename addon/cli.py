"""Wiring. The `tokentee` command: run, demo, replay, and the ledger's commands."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ledger import cli as ledger_cli
from ledger.command_options import LedgerOption

app = typer.Typer(
    name="tokentee",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A tee for LLM token streams: records usage and cost of every request that passes.",
)


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": ["-h", "--help"],
    }
)
def run(context: typer.Context) -> None:
    """Record: as a proxy, or around a command.

    tokentee run [MITMDUMP OPTIONS]                a recording proxy, until Ctrl-C

    tokentee run [MITMDUMP OPTIONS] -- COMMAND …   records what the command sends

    A command is given base URLs and proxy variables that lead here, on loopback; nothing outside
    of it is changed. When it ends, what it used is printed to stderr, and its exit code is ours.

    All of mitmdump's options go, and --set ledger_url=…, ledger_commit=before_end|async,
    tee_inject=auto|always|never, tee_hosts=HOST[:PORT][=PROVIDER],…, tee_capture=FOLDER,
    tee_tags=K=V,…, tee_prices=FILE.
    """
    from addon import run as running

    command: list[str] | None = context.obj
    if command is None:
        running.run_proxy(context.args)
        return
    raise typer.Exit(running.run_around(context.args, command))


@app.command()
def demo() -> None:
    """Play five gateways through a real mitmdump on this machine, and print the ledger."""
    from addon.demo.play import demo as play

    raise typer.Exit(play())


@app.command()
def replay(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Files or folders: captures and corpora (*.jsonl[.gz]), flow files (*.mitm, "
            "*.flow), *.har, or single bodies (*.sse, *.json, *.ndjson, *.eventstream) with --url.",
            show_default=False,
        ),
    ],
    *,
    ledger: LedgerOption = None,
    url: Annotated[
        str | None, typer.Option(help="Where a single body came from: decides how it is read.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Price override file (TOML).")] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve the recorded answers as an upstream instead, in the pieces and at the pace "
            "in which they came, until Ctrl-C.",
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0, help="With --serve: 2 is twice as fast, 0 without pauses.")
    ] = 1.0,
) -> None:
    """Read recorded exchanges into the ledger, with the meter that reads live traffic.

    Reading the same material again adds nothing.
    """
    from addon import replaying

    if serve is not None:
        raise typer.Exit(replaying.serve(paths, url=url, address=serve, speed=speed))
    raise typer.Exit(replaying.main(paths, ledger=ledger, url=url, prices=prices))


ledger_cli.add_commands(app)


def main() -> None:
    words, command = _split(sys.argv[1:])
    ledger_cli.run(lambda: app(args=words, obj=command))


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """The command behind `--` of `tokentee run`, which is not ours to parse."""
    if words[:1] != ["run"] or "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :] or None
