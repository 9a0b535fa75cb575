"""Wiring. `tokentee report`: tokens, cache, cost and times by model, key, day, …"""

from typing import Annotated

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
from ledger.commands.output import console, print_line, write
from ledger.settings.names import WORDS
from ledger.store.schema.dimensions import COLUMN_OF, TIME_CHARACTERS


def report(
    *,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="WORD",
            help=f"{', '.join((*COLUMN_OF, *WORDS, 'tag:NAME', *TIME_CHARACTERS))}, block (5 "
            "hours) or commit (of the git repository you are in); several make a row of each "
            "combination.  [default: model]",
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
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Tokens, cache, cost and times by model, key, day, …"""
    from ledger.attach import attached
    from ledger.figures import blocks, queries
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import WrongCallError
    from ledger.reports import report_tables
    from ledger.store.engines import urls

    words = [word.strip() for group in by or ["model"] for word in group.split(",")]
    scope = scope_of(since, until, only, names, timezone)
    alone = {blocks.BLOCK_WORD: blocks.report_by_block}
    if any(word not in COLUMN_OF for word in words):
        alone |= attached("word of report")
    word = next((word for word in words if word in alone), None)
    with existing_ledger(ledger) as engine:
        if word is not None:
            if len(words) > 1 or top is not None:
                raise WrongCallError(f"--by {word} stands alone: no other word, no --top")
            found = alone[word](engine, scope)
        else:
            found = queries.report(engine, words, scope, top=top, is_exact=exact)
        screen = console()
        has_bars = format == "table" and screen.is_terminal and not screen.options.ascii_only
        table = (
            report_tables.flat(found)
            if format == "csv"
            else report_tables.screen(found, has_bars=has_bars)
        )
        write(format, table, report_tables.document(found), report_tables.title(found))
        if not found.total.figures.requests:
            line = f"no requests in {urls.shown(engine.url)}: {report_tables.asked_for(found)}"
            print_line(queries.nothing_found(engine, line))
        for note in report_tables.notes(found):
            print_line(note)
