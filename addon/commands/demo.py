"""Wiring. `tokentee demo`."""

from typing import Annotated

import typer


def demo_command(
    *,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Five gateways instead, in all their ways to answer.")
    ] = False,
) -> None:
    """An agent, a team and a bill: what a client saw, and what the ledger has.

    A real recording proxy on this machine, in front of fake providers; without network or key. The
    ledger stays in a folder of its own, which is named at the end.
    """
    from addon.demo import story

    raise typer.Exit(story.demo(story.seeds if seeds else story.story))
