"""Edge. What a command used, printed when it has ended."""

import os
import sys
from datetime import datetime

from rich.console import Console
from rich.markup import escape

from ledger.figures import queries
from ledger.reports import render, report_tables
from ledger.store import db
from ledger.store.adding_up import seen_of_run
from ledger.store.engines import urls
from ledger.store.scope import Scope
from ledger.store.spool import path_for
from ledger.text.figures import counted
from ledger.text.hints import as_typed
from ledger.text.printable import printable

NOTHING = "no LLM request passed"


def show(
    ledger_url: str,
    run_id: str,
    word: str = "tag:run",
    *,
    since: datetime | None = None,
    unrecorded: str = "",
    nothing: str = NOTHING,
) -> bool:
    """A table by model of the requests of a run, which the dimension `word` tells, to stderr;
    whether there are any, or it is not known.

    `since`: no request of the run was opened earlier, so that earlier ones are not read; None: that
    is not known. `unrecorded`: what the ledger lacks, if anything; `nothing`: the line without any
    request.
    """
    console = Console(stderr=True, highlight=False)
    if unrecorded:
        line = f"tokentee: this bill is a lower bound: {unrecorded}"
        console.print(escape(line), soft_wrap=True)
    try:
        scope = Scope(since=since, only=((word, run_id),))
        # Rows for a shared database are committed to the spool first.
        parsed = urls.parse_url(ledger_url)
        local = ledger_url if urls.file_of(parsed) else f"sqlite:///{path_for(parsed)}"
        with db.disposing(db.open_engine(local)) as engine:
            found = queries.report(engine, ["model"], scope)
            refused = queries.refused_by_cap(engine, scope)
            seen = seen_of_run(engine, (word, run_id), since)
    except Exception as error:  # noqa: BLE001  # the exit code is the command's
        why = urls.failed(error) or next(iter(str(error).splitlines()), type(error).__name__)
        console.print(escape(f"tokentee: {why}"))
        return True
    requests = found.total.figures.requests
    if repeated := seen - requests:
        text = counted(repeated, "answer was", "answers were")
        console.print(f"tokentee: {text} in the ledger already and not counted again")
    if refused:
        caps = ", ".join(
            f"{printable(cap) or 'an error'} {count:,}" for cap, count in refused.items()
        )
        all_refused = counted(found.total.figures.refused, "request")
        console.print(escape(f"tokentee: caps refused {all_refused}: {caps}"))
    if not requests:
        is_explained = bool(repeated or refused or unrecorded)
        if not is_explained:
            console.print(f"tokentee: {nothing}")
        return is_explained
    sys.stderr.write("\n")
    title = f"This run by model{', at least' if unrecorded else ''}"
    render.print_table(report_tables.screen(found), console, title)
    named = None if ledger_url == urls.default_url() else ledger_url
    where = f"tokentee: in {urls.shown(ledger_url)}; more: tokentee report --only {word}={run_id}"
    for line in (*report_tables.notes(found), where):
        console.print(escape(as_typed(line, os.environ, named)), soft_wrap=line == where)
    return True
