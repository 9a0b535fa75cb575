"""Wiring. `tokentee report`: tokens, cache, cost and times by model, key, day, …"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from ledger.commands.output import print_line, write
from ledger.settings.names import WORDS
from ledger.store.schema.dimensions import COLUMN_OF, TIME_CHARACTERS

if TYPE_CHECKING:
    from ledger.store.scope import Scope


def report(
    *,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="WORD",
            help=f"{', '.join((*COLUMN_OF, *WORDS, 'tag:NAME', *TIME_CHARACTERS))} or block (5 "
            "hours); several make a row of each combination.  [default: model]",
            show_default=False,
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    only: Only = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The rows that cost most, the rest as one."),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Add up every request, not the stored sums of days: slower, with the same result.",
        ),
    ] = False,
    format: TableFormat = "table",  # noqa: A002
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page instead: charts, warnings, tables, in one file."
        ),
    ] = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Tokens, cache, cost and times by model, key, day, …"""
    from ledger.figures import plans, queries
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import WrongCallError
    from ledger.reports import report_tables
    from ledger.store.engines import urls

    words = [word.strip() for group in by or ["model"] for word in group.split(",")]
    scope = scope_of(since, until, only, names, timezone)
    if html is not None:
        given = {
            "--by": by,
            "--top": top,
            "--exact": exact,
            "--format": format != "table",
        }
        if unused := [option for option, value in given.items() if value]:
            raise WrongCallError(
                f"--html writes one page, with tables of its own: leave {', '.join(unused)} out"
            )
        _write_page(ledger, scope, html)
        return
    with existing_ledger(ledger) as engine:
        if plans.BLOCK_WORD in words:
            if len(words) > 1 or top is not None:
                raise WrongCallError("--by block stands alone: no other word, no --top")
            found = plans.report_by_block(engine, scope)
        else:
            found = queries.report(engine, words, scope, top=top, is_exact=exact)
        table = report_tables.flat(found) if format == "csv" else report_tables.screen(found)
        write(format, table, report_tables.document(found), report_tables.title(found))
        if not found.total.figures.requests:
            print_line(f"no requests in {urls.shown(engine.url)}: {report_tables.asked_for(found)}")
        for note in report_tables.notes(found):
            print_line(note)


def _write_page(ledger: str | None, scope: "Scope", file: Path) -> None:
    """Write the page of a scope."""
    from ledger.budgets import budgets_file as budget_files
    from ledger.figures.queries import existing_ledger
    from ledger.pages import html_file, sections

    with existing_ledger(ledger) as engine:
        text = html_file.page(
            engine,
            scope,
            now=datetime.now(scope.zone or UTC),
            shipping=sections.shipping_to(engine.url),
            budgets=budget_files.load(None),
        )
        size = html_file.write(text, file)
        print_line(f"{file}: {size:,} bytes")
