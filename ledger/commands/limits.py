"""Wiring. `tokentee limits`: what answers stated of limits, and who used them."""

import json
import sys
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from ledger.commands.options import LedgerOption
from ledger.commands.output import console
from ledger.commands.why import Form

EVERY_SECONDS = 5.0


def limits(
    *,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Only of this key: its fingerprint or last characters."),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this provider.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", "-f", help="Output format.")] = Form.TABLE,
    watch: Annotated[bool, typer.Option("--watch", help="Print again until Ctrl-C.")] = False,
    line: Annotated[
        bool, typer.Option("--line", help="One line for a status bar: the fullest plan windows.")
    ] = False,
    ledger: LedgerOption = None,
) -> None:
    """How much of plans and rate limits is used, when they reset, and who used them.

    Figures are those that the providers' answers stated, so a limit is known from the first answer
    on. Without an answer since its reset, the status is `reset` and no figure is shown. Shares are
    percent points of the limit: each change from one answer to the next belongs to the sessions
    answered between them, by list value.
    """
    from ledger.figures import limits as figures
    from ledger.figures.queries import existing_ledger
    from ledger.reports import limits_text

    with existing_ledger(ledger) as engine:
        while True:
            now = datetime.now(UTC)
            found = figures.limits(engine, now, key=key, provider=provider)
            if line:
                sys.stdout.write(f"{limits_text.one_line(found, now)}\n")
            elif form is Form.JSON:
                sys.stdout.write(f"{json.dumps([each.as_json() for each in found])}\n")
            else:
                text = limits_text.lines(found, now, console().width)
                sys.stdout.write("\n".join(text) + "\n")
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(EVERY_SECONDS)
