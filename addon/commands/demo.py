"""Wiring. `tokentee demo`."""

import typer


def demo_command() -> None:
    """Show what clients saw and what the ledger has, with fake providers behind a real proxy.

    All of it runs on this machine, without network or key. The ledger stays in a folder of its own,
    which is named at the end.
    """
    from addon.demo import story

    raise typer.Exit(story.demo())
