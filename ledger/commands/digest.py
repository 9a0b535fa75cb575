"""Wiring. `tokentee digest`: the last day or week on one screen, for cron and mail."""

import json
import sys
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from ledger.commands.options import Budgets, LedgerOption, NamesOption, TimezoneOption


def digest(
    *,
    daily: Annotated[bool, typer.Option("--daily", help="The last whole day (default).")] = False,
    weekly: Annotated[
        bool, typer.Option("--weekly", help="The last whole week, Monday to Sunday.")
    ] = False,
    form: Annotated[
        Literal["text", "html", "slack"],
        typer.Option("--format", "-f", help="slack: JSON for an incoming webhook."),
    ] = "text",
    budgets: Budgets = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """What was spent, what is wrong, and who spent it: yesterday, or last week.

    The figures are those of `report` and of the page. In a crontab:
    5 0 * * 1 tokentee digest --weekly | mail -s "LLM costs" team@example.com
    """
    from ledger.budgets import budgets_file
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import WrongCallError
    from ledger.pages import digest as made
    from ledger.pages import sections
    from ledger.settings import names_file
    from ledger.text.period import DAY, WEEK, zone_of

    if daily and weekly:
        raise WrongCallError("--daily or --weekly, not both")
    zone = zone_of(timezone) if timezone else UTC
    period = made.last_whole(datetime.now(zone), WEEK if weekly else DAY)
    with existing_ledger(ledger) as engine:
        found = made.digest(
            engine,
            period,
            names=names_file.load(names),
            budgets=budgets_file.load(budgets),
            shipping=sections.shipping_to(engine.url),
        )
    if form == "slack":
        text = json.dumps(made.as_slack(found), ensure_ascii=False) + "\n"
    else:
        text = made.as_html(found) if form == "html" else made.as_text(found)
    sys.stdout.write(text)
