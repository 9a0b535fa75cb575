"""Wiring. `tokentee demo`."""

import typer


def demo_command() -> None:
    """An agent, a team and a bill: what a client saw, and what the ledger has.

    A real recording proxy on this machine, in front of fake providers; without network or key. The
    ledger stays in a folder of its own, which is named at the end.
    """
    from addon.demo import story

    raise typer.Exit(story.demo())
