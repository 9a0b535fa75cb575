"""Wiring. `tokentee report --html FILE`: the report as a page of one file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.commands.output import print_line

if TYPE_CHECKING:
    from ledger.store.scope import Scope


def write_page(ledger: str | None, scope: "Scope", file: Path) -> None:
    """Write the page of a scope."""
    from ledger.budgets import files as budget_files
    from ledger.figures.queries import existing_ledger
    from ledger.pages import html_file, spools

    with existing_ledger(ledger) as engine:
        size = html_file.write(
            engine,
            scope,
            file,
            now=datetime.now(scope.zone or UTC),
            shipping=spools.shipping_to(engine.url),
            budgets=budget_files.load(None),
        )
        print_line(f"{file}: {size:,} bytes")
