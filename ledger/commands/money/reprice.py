"""Wiring. `tokentee reprice`: price booked readings again."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from ledger.commands.options import (
    LedgerOption,
    NamesOption,
    Only,
    Prices,
    Since,
    TimezoneOption,
    Until,
    scope_of,
)
from ledger.commands.output import print_line, print_table


def reprice(
    *,
    since: Since = None,
    until: Until = None,
    only: Only = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, stored with every added charge.")
    ] = "repriced",
    unpriced: Annotated[
        bool, typer.Option("--unpriced", help="Only requests with a line without a price.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes without making them.")
    ] = False,
    prices: Prices = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Price booked usage again. Superseding charges are added; the old ones stay."""
    from ledger.figures.queries import existing_ledger
    from ledger.maintenance import reprice as repricing
    from ledger.pricing.prices import PriceBook
    from ledger.reports.price_tables import difference
    from ledger.text.figures import counted

    book = PriceBook.load(prices)
    scope, now = scope_of(since, until, only, names, timezone), datetime.now(UTC)
    with existing_ledger(ledger) as engine:
        changes = repricing.changes(engine, book, scope, now=now, only_unpriced=unpriced)
        if not changes:
            print_line("nothing changes: every line has the price it would get today")
            return
        print_table(difference(changes))
        if dry_run:
            print_line("nothing was written")
            return
        added = repricing.apply(engine, book, scope, now=now, reason=reason, only_unpriced=unpriced)
        print_line(
            f"added: {counted(added, 'charge')}; the ones they replace stay in the table charges"
        )
