"""Wiring. `tokentee requests`: single requests, the latest first, page by page; and `show`: one
request, line by line."""

import sys
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ledger.commands.options import (
    LedgerOption,
    NamesOption,
    Only,
    Since,
    TableFormat,
    TimezoneOption,
    Until,
    scope_of,
)
from ledger.commands.output import console, print_line, print_table, write

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    outcome: Annotated[
        str | None,
        typer.Option(metavar="OUTCOME", help="Only with this outcome: refused, lost, ..."),
    ] = None,
    degraded: Annotated[
        bool, typer.Option("--degraded", help="Only requests that were not read to the end.")
    ] = False,
    min_cost: Annotated[
        str | None,
        typer.Option(
            metavar="USD", help="Only if it cost at least this; list value if a plan pays."
        ),
    ] = None,
    min_duration: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Only if it took at least this long.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=200, metavar="N", help="Requests of a page.")
    ] = 50,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="Next page: the value that the page before printed at its end."
        ),
    ] = None,
    format: TableFormat = "table",  # noqa: A002
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Single requests, the latest first: of a model, key, session, with errors, without usage, …

    --only takes the words of `report --by`, so also outcome, http_status (4*), error_type and
    usage_source. `tokentee show ID` explains one request line by line.
    """
    from ledger.figures.queries import existing_ledger, nothing_found
    from ledger.figures.request_filter import filter_of
    from ledger.figures.request_list import latest
    from ledger.reports import requests_text
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
    if outcome is not None:
        only = [*(only or ()), f"outcome={outcome}"]
    scope = scope_of(since, until, only, names, timezone)
    with existing_ledger(ledger) as engine:
        with snapshot(engine) as connection:
            page = latest(connection, scope, narrowed, limit=limit)
        found = page.requests
        is_flat = format == "csv"
        table = requests_text.flat(found) if is_flat else requests_text.table(found, scope.zone)
        write(format, table, requests_text.document(found), "Requests")
        if page.looked_to:
            print_line(
                f"looked back to {page.looked_to:%Y-%m-%d %H:%M} {scope.zone or UTC}; "
                f"add --before {page.older} for older ones"
            )
        elif not found:
            print_line(nothing_found(engine, f"no such requests in {urls.shown(engine.url)}"))
        elif page.older:
            print_line(f"there are more: add --before {page.older}")


HEADING_COLUMNS = 26
"""Width of the headings before the texts."""


def show(
    word: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The exchange's id, the response's id, or how either begins. One that begins "
            "with a dash goes after `--`.",
        ),
    ],
    *,
    format: Annotated[  # noqa: A002
        Literal["text", "json"], typer.Option("--format", "-f")
    ] = "text",
    ledger: LedgerOption = None,
) -> None:
    """Explain one request line by line: frames, usage, prices and where each came from."""
    from ledger.figures.queries import existing_ledger
    from ledger.reports import explain, render
    from ledger.reports.lookup import AmbiguousError, candidates, find

    with existing_ledger(ledger) as engine:
        try:
            found = find(engine, word)
        except AmbiguousError as error:
            print_line(str(error))
            print_table(candidates(engine, error), is_error=True)
            raise typer.Exit(1) from None
    if format == "json":
        sys.stdout.write(render.as_json(explain.document(found)))
        return
    _facts(explain.facts(found))
    for reading in found.readings:
        sys.stdout.write("\n")
        _facts(explain.reading_facts(reading))
    sys.stdout.write("\n")
    if found.charges:
        print_table(explain.charge_table(found.charges), explain.charge_title(found.charges))
    else:
        sys.stdout.write("No charges: no usage was reported.\n")
    if found.past_charges:
        sys.stdout.write("\nSuperseded, in no total:\n")
        print_table(
            explain.charge_table(found.past_charges), explain.charge_title(found.past_charges)
        )


def _facts(pairs: "Iterable[tuple[str, str]]") -> None:
    from ledger.reports.layout import wrapped
    from ledger.text.printable import printable

    width = console().width
    for heading, text in pairs:
        line = f"{heading:<{HEADING_COLUMNS - 1}} {printable(text)}"
        sys.stdout.write(f"{wrapped(line, width, ' ' * HEADING_COLUMNS)}\n")
