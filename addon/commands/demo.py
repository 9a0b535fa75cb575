"""Wiring. `tokentee demo`."""

import typer


def demo_command() -> None:
    """Play five gateways through a real mitmdump on this machine, and print the ledger."""
    from addon.demo.play import demo

    raise typer.Exit(demo())
