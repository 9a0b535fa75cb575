"""Wiring. `tokentee limits`: what answers stated of limits, and who used them."""

import json
import sys
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from ledger.commands.options import Form, Format, LedgerOption, NamesOption, scope_of
from ledger.commands.output import console, print_line, write

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
    form: Form = "table",
    watch: Annotated[bool, typer.Option("--watch", help="Print again until Ctrl-C.")] = False,
    line: Annotated[
        bool, typer.Option("--line", help="One line for a status bar: the fullest plan windows.")
    ] = False,
    plans: Annotated[
        bool,
        typer.Option(
            "--plans", help="By month: what each plan covered at list prices, against its price."
        ),
    ] = False,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """How much of plans and rate limits is used, when they reset, and who used them.

    Figures are those that the providers' answers stated, so a limit is known from the first answer
    on. Without an answer since its reset, the status is `reset` and no figure is shown. Shares are
    percent points of the limit: each change from one answer to the next belongs to the sessions
    answered between them, by list value.
    """
    if plans:
        _plans(form, key, provider, names, ledger)
        return
    from ledger.figures import limits as figures
    from ledger.figures.queries import existing_ledger
    from ledger.reports import limits_text

    with existing_ledger(ledger) as engine:
        while True:
            now = datetime.now(UTC)
            found = figures.limits(engine, now, key=key, provider=provider)
            if line:
                sys.stdout.write(f"{limits_text.one_line(found, now)}\n")
            elif form == "json":
                sys.stdout.write(f"{json.dumps([each.as_json() for each in found])}\n")
            else:
                text = limits_text.lines(found, now, console().width)
                sys.stdout.write("\n".join(text) + "\n")
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(EVERY_SECONDS)


def _plans(
    form: Form, key: str | None, provider: str | None, names: str | None, ledger: str | None
) -> None:
    """Prices of plans stand in the names file, as [[plan]]."""
    from ledger.figures import plans
    from ledger.figures.queries import existing_ledger
    from ledger.reports import limits_text

    only = [f"{word}={value}" for word, value in (("key", key), ("provider", provider)) if value]
    with existing_ledger(ledger) as engine:
        months = plans.plan_months(engine, scope_of(None, None, only, names))
    document = [each.as_json() for each in months]
    write(Format(form), limits_text.plan_table(months), document, "Plans by month")
    if form == "table":
        print_line(plans.METHOD if months else "no plan covers a recorded request")
        if any(each.picousd_per_month is None for each in months):
            print_line("[[plan]] with usd_per_month in the names file gives a plan its price")
