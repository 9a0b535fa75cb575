"""Wiring. `tokentee path`: where the script for mitmproxy is."""

from pathlib import Path

import typer

SCRIPT = Path(__file__).parent.parent / "tee.py"


def path_command() -> None:
    """Print the path of the script for mitmdump, mitmweb and mitmproxy.

    mitmdump -s "$(tokentee path)" --mode reverse:https://api.openai.com@127.0.0.1:8080

    mitmproxy has to be installed in the same environment as tokentee, as it is by default.
    """
    typer.echo(SCRIPT)
