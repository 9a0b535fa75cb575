"""Wiring. The `tokentee` command: run, demo, replay, and the ledger's commands."""

import typer

from ledger import cli as ledger_cli

app = typer.Typer(
    name="tokentee",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A tee for LLM token streams: records usage and cost of every request that passes.",
)
ledger_cli.add_commands(app)


@app.callback()
def tokentee() -> None:
    """Keep sub-commands named even while there is only one."""


@app.command()
def demo() -> None:
    """Play five gateways through a real mitmdump on this machine, and print the ledger."""
    from addon.demo.play import demo as play

    raise typer.Exit(play())


def main() -> None:
    ledger_cli.run(app)
