"""Wiring. The `tokentee` command: run, demo, replay, and the ledger's commands."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ledger import cli as ledger_cli
from ledger.commands.options import LedgerOption, Prices, Since

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
    from addon.commands.run import run as running

    raise typer.Exit(running(context.obj))


@app.command()
def demo() -> None:
    """Play five gateways through a real mitmdump on this machine, and print the ledger."""
    from addon.demo.play import demo as play

    raise typer.Exit(play())


Recordings = Annotated[
    list[Path],
    typer.Argument(
        help="Files or folders: captures and corpora (*.jsonl[.gz]), flow files (*.mitm, *.flow), "
        "*.har, or single bodies (*.sse, *.json, *.ndjson, *.eventstream) with --url.",
        show_default=False,
    ),
]
Url = Annotated[
    str | None, typer.Option(help="Where a single body came from: decides how it is read.")
]


@app.command()
def replay(
    paths: Recordings,
    *,
    ledger: LedgerOption = None,
    url: Url = None,
    prices: Annotated[Path | None, typer.Option(help="Price override file (TOML).")] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", help="Processes that read at a time.", show_default=True)
    ] = 1,
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

    Reading the same material again adds nothing, and takes a tenth of the time: interrupt it and
    run it again to go on where it was. At the end it says how many exchanges were new, how many
    the ledger had, and what was skipped and why.

    Exit code 1: something was not readable or not written, or there was no LLM call in it.
    """
    from addon.commands import replay

    if serve is not None:
        raise typer.Exit(replay.serve(paths, url=url, address=serve, speed=speed))
    raise typer.Exit(replay.main(paths, ledger=ledger, url=url, prices=prices, jobs=jobs))


@app.command()
def rebuild(
    paths: Recordings,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    ledger: LedgerOption = None,
    url: Url = None,
    prices: Prices = None,
) -> None:
    """Read what is booked once more from its recordings, with the meter of this version.

    Where a figure comes out otherwise, a further reading is added, priced as of the exchange's
    own time; it counts from then on and says what changed. The ones before stay. Doing it again
    adds nothing. Exchanges that the ledger does not have are left alone: `tokentee replay` reads
    those in.

    Exit code 1: something was not readable, not what upstream had sent, or refused by the ledger,
    or none of it is in the ledger.
    """
    from addon.commands import rebuild as rebuilding

    code = rebuilding.main(paths, ledger=ledger, url=url, prices=prices, dry_run=dry_run)
    raise typer.Exit(code)


@app.command()
def verify(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Captures to hold the ledger against; files and folders as for replay.",
            show_default=False,
        ),
    ] = None,
    *,
    since: Since = None,
    ledger: LedgerOption = None,
    url: Url = None,
) -> None:
    """Prove the ledger: bytes, digests, readings, charges, duplicates and sums.

    Every promise is asked of the database itself. With captures, each answer in them is also held
    against the digest of what upstream sent, edited once more where usage had been asked for, and
    metered once more; a meter that reads it differently now is no breach (`tokentee rebuild`).

    Each breach is a line on stdout: the promise, the row, what was found. Exit code 1 if there is
    any.
    """
    from addon.commands import verify as verifying

    raise typer.Exit(verifying.main(paths or [], ledger=ledger, url=url, since=since))


ledger_cli.add_commands(app)


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["run"]:
        from addon.commands.run import run as running

        ledger_cli.run(lambda: sys.exit(running(words[1:])))
    ledger_cli.run(lambda: app(args=words))
