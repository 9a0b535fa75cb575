"""Wiring. `tokentee cache`: what broke prompt caches."""

from enum import StrEnum
from typing import Annotated

import typer

from ledger.commands.options import LedgerOption, NamesOption, Only, Prices, Since, Until

SHOWN_MAX = 10


class Form(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"


class CacheBy(StrEnum):
    """What misses are grouped by."""

    REASON = "reason"
    SESSION = "session"
    MODEL = "model"
    KEY = "key"


def cache(
    *,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only requests of this session.")
    ] = None,
    since: Since = None,
    until: Until = None,
    by: Annotated[
        CacheBy | None, typer.Option(help="Group by this; default: by cause.", show_default=False)
    ] = None,
    only: Only = None,
    form: Annotated[Form, typer.Option("--format", "-f", help="Output format.")] = Form.TABLE,
    prices: Prices = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Why requests were not served from the prompt cache, the dearest cause first.

    A request is compared with the earlier one of its session that shares most content. Tokens: what
    was in the cache, or could have been, and was not read. Requests without segments
    (tee_segments=off, recorded earlier, dropped) are left out.
    """
    import json

    from ledger.commands.output import console
    from ledger.commands.scope import scope_of
    from ledger.figures.queries import existing_ledger
    from ledger.pricing.prices import PriceBook
    from ledger.why import reading

    scope = scope_of(since, until, only, names)
    with existing_ledger(ledger) as engine:
        found = reading.priced(engine, scope, session, PriceBook.load(prices))
        rows = reading.rows(found, by and str(by))
    if form is Form.JSON:
        typer.echo(json.dumps(rows))
        return
    from rich.table import Table

    from ledger.text.printable import printable

    columns = ("requests", "tokens", "list_value_usd", "first_at", "last_at", "example")
    head = (str(by),) if by else ("reason", "how", "segment")
    table = Table(*head, *columns, box=None)
    for row in rows[:SHOWN_MAX]:
        table.add_row(
            *(printable("" if row[name] is None else str(row[name])) for name in (*head, *columns))
        )
    console().print(table)
