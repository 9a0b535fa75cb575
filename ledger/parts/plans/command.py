"""Wiring. `tokentee limits`: what answers stated of limits, and who used them; what plans covered,
and what a percent of them buys."""

import json
import sys
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from ledger.commands.options import Form, LedgerOption, NamesOption, scope_of
from ledger.commands.output import console, print_line, write

LIMITS_EVERY_SECONDS = 5.0


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
    plans: Annotated[
        bool,
        typer.Option(
            "--plans", help="By month: what each plan covered at list prices, against its price."
        ),
    ] = False,
    value: Annotated[
        bool,
        typer.Option(
            "--value",
            help="What one percent of each plan's window buys, and what was not recorded.",
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
    if value:
        _values(form, key, provider, ledger)
        return
    from ledger.figures.queries import existing_ledger
    from ledger.parts.plans import limits as figures
    from ledger.parts.plans import limits_text

    with existing_ledger(ledger) as engine:
        while True:
            now = datetime.now(UTC)
            found = figures.limits(engine, now, key=key, provider=provider)
            if form == "json":
                sys.stdout.write(f"{json.dumps([each.as_json() for each in found])}\n")
            else:
                text = limits_text.lines(found, now, console().width)
                sys.stdout.write("\n".join(text) + "\n")
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(LIMITS_EVERY_SECONDS)


def _plans(
    form: Form, key: str | None, provider: str | None, names: str | None, ledger: str | None
) -> None:
    """Prices of plans stand in the names file, as [[plan]]."""
    from ledger.figures.queries import existing_ledger
    from ledger.parts.plans import limits_text, plans
    from ledger.parts.plans.limit_values import limit_values

    only = [f"{word}={value}" for word, value in (("key", key), ("provider", provider)) if value]
    with existing_ledger(ledger) as engine:
        months = plans.plan_months(engine, scope_of(None, None, only, names))
        values = limit_values(engine, datetime.now(UTC), key=key, provider=provider)
    document = [each.as_json() for each in months]
    write(form, limits_text.plan_table(months), document, "Plans by month")
    if form == "table":
        print_line(plans.METHOD if months else "no plan covers a recorded request")
        for line in limits_text.worths(values):
            print_line(line)
        if any(each.picousd_per_month is None for each in months):
            print_line("[[plan]] with usd_per_month in the names file gives a plan its price")


def _values(form: Form, key: str | None, provider: str | None, ledger: str | None) -> None:
    from ledger.figures.queries import existing_ledger
    from ledger.parts.plans import limits_text
    from ledger.parts.plans.limit_values import limit_values

    with existing_ledger(ledger) as engine:
        found = limit_values(
            engine, datetime.now(UTC), key=key, provider=provider, has_full_at=True
        )
    document = [row for each in found for row in each.as_json()]
    write(form, limits_text.value_table(found), document, "What a percent buys")
    if form == "table":
        for note in limits_text.value_notes(found):
            print_line(note)
        print_line(
            limits_text.VALUE_METHOD if found else "no answer has stated how much of a plan is used"
        )
