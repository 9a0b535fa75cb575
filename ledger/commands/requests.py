"""Wiring. `tokentee requests`: single requests, the latest first, page by page."""

from datetime import UTC
from typing import Annotated

import typer

from ledger.commands.options import (
    CurrencyOption,
    Format,
    LedgerOption,
    NamesOption,
    Only,
    RatesOption,
    Since,
    TableFormat,
    TimezoneOption,
    Until,
    scope_of,
)
from ledger.commands.output import print_line, write


def requests(
    *,
    since: Since = None,
    until: Until = None,
    only: Only = None,
    errors: Annotated[
        bool, typer.Option("--errors", help="Only requests that ended in an error.")
    ] = False,
    without_usage: Annotated[
        bool,
        typer.Option("--without-usage", help="Only answers whose usage is not known."),
    ] = False,
    unpriced: Annotated[
        bool, typer.Option("--unpriced", help="Only requests with tokens that have no price.")
    ] = False,
    degraded: Annotated[
        bool, typer.Option("--degraded", help="Only requests that were not read to the end.")
    ] = False,
    min_cost: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Only from this cost on; list value if a plan pays."),
    ] = None,
    min_duration: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Only from this duration on.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=200, metavar="N", help="Requests of a page.")
    ] = 50,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="The next page: what the page before printed at its end."
        ),
    ] = None,
    format: TableFormat = Format.TABLE,  # noqa: A002
    timezone: TimezoneOption = None,
    currency: CurrencyOption = None,
    rates: RatesOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Single requests, the latest first: of a model, key, session, with errors, without usage, …

    --only takes the words of `report --by`, so also outcome, http_status (4*), error_type and
    usage_source. `tokentee show ID` explains one request line by line.
    """
    from ledger.figures.queries import existing_ledger
    from ledger.figures.request_filter import filter_of
    from ledger.figures.request_list import latest
    from ledger.reports import requests_text
    from ledger.settings.rates_file import load
    from ledger.store.engines import urls
    from ledger.store.scope import snapshot

    chosen = {
        "errors": errors,
        "without_usage": without_usage,
        "unpriced": unpriced,
        "degraded": degraded,
    }
    narrowed = filter_of(
        [kind for kind, is_chosen in chosen.items() if is_chosen],
        min_cost=min_cost,
        min_seconds=min_duration,
        before=before,
    )
    scope = scope_of(since, until, only, names, timezone)
    shown_in = load(currency, rates)
    with existing_ledger(ledger) as engine:
        with snapshot(engine) as connection:
            page = latest(connection, scope, narrowed, limit=limit)
        found = page.requests
        is_flat = format is Format.CSV
        as_table = requests_text.flat if is_flat else requests_text.table
        table = as_table(found, scope.zone, shown_in)
        write(format, table, requests_text.document(found, scope.zone, shown_in), "Requests")
        if page.looked_to:
            print_line(
                f"looked back to {page.looked_to:%Y-%m-%d %H:%M} {scope.zone or UTC}; "
                f"older ones: the same with --before {page.older}"
            )
        elif not found:
            print_line(f"no such requests in {urls.shown(engine.url)}")
        elif page.older:
            print_line(f"more: the same with --before {page.older}")
