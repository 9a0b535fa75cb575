"""Edge. Prints the usage of a command when it has ended."""

import sys

from rich.console import Console
from rich.markup import escape

from ledger.figures import queries
from ledger.model.errors import LedgerError
from ledger.reports import render, report_tables
from ledger.store import db
from ledger.store.engines import urls
from ledger.store.scope import Scope
from ledger.sync.spool import path_for


def show_summary(ledger_url: str, run_id: str) -> None:
    """A table by model of the requests that carry the run's tag, to stderr."""
    console = Console(stderr=True, highlight=False)
    try:
        parsed = urls.parse_url(ledger_url)
        # The spool holds all requests of the run, because rows for a shared database are committed
        # there first.
        local = parsed if urls.file_of(parsed) else f"sqlite:///{path_for(parsed)}"
        scope = Scope(only=(("tag:run", run_id),))
        with db.disposing(db.open_engine(local)) as engine:
            found = queries.report(engine, ["model"], scope)
    except LedgerError as error:
        console.print(escape(f"tokentee: {error}"))
        return
    requests = found.total.figures.requests
    if not requests:
        console.print("tokentee: no LLM request passed")
        return
    sys.stderr.write("\n")
    title = "This run by model"
    render.print_table(report_tables.screen(found), console, title)
    for note in report_tables.notes(found):
        console.print(escape(note))
    where = f"tokentee: in {urls.shown(ledger_url)}; more: tokentee report --only tag:run={run_id}"
    console.print(escape(where), soft_wrap=True)
