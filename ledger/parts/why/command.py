"""Wiring. Why requests cost what they cost: `tokentee cache`, `context`."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ledger.commands.options import (
    Form,
    LedgerOption,
    NamesOption,
    Only,
    Prices,
    Since,
    TimezoneOption,
    Until,
    scope_of,
)

if TYPE_CHECKING:
    from ledger.reports.layout import Cell

ROWS_SHOWN_MAX = 10
"""Rows of a table; JSON has all."""


def cache(
    *,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only requests of this session.")
    ] = None,
    since: Since = None,
    until: Until = None,
    by: Annotated[
        Literal["reason", "session", "model", "key"] | None,
        typer.Option(help="Group by this; default: by cause.", show_default=False),
    ] = None,
    only: Only = None,
    form: Form = "table",
    prices: Prices = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Why requests were not served from the prompt cache, the dearest cause first.

    A request is compared with the earlier one of its session that shares most content. Tokens: what
    was in the cache, or could have been, and was not read. Requests without segments
    (tee_segments=off, recorded earlier, dropped) are left out.
    """
    from ledger.figures.queries import existing_ledger
    from ledger.parts.why import questions
    from ledger.pricing.prices import PriceBook

    scope = scope_of(since, until, only, names, timezone)
    with existing_ledger(ledger) as engine:
        found = questions.causes(engine, scope, session, PriceBook.load(prices), by)
    _say_left_out(found.without_segments)
    columns = ("requests", "tokens", "list_value_usd", "first_at", "last_at", "example")
    head = (by,) if by else ("reason", "how", "segment")
    _print(found.rows, (*head, *columns), form)


def context(
    *,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only requests of this session.")
    ] = None,
    since: Since = None,
    until: Until = None,
    by: Annotated[
        Literal["part", "name"] | None,
        typer.Option(
            help="Add up all sessions: by part, or by part and name, as of a tool.",
            show_default=False,
        ),
    ] = None,
    only: Only = None,
    form: Form = "table",
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """What fills the input: system prompt, tool definitions, messages, tool results, images.

    Tokens are shares by bytes of the input that the provider reported; the rows add up to it.
    Requests without segments (tee_segments=off, recorded earlier, dropped) are left out.
    """
    from ledger.figures.queries import existing_ledger
    from ledger.model.money import PICOUSD_PER_USD
    from ledger.parts.why import questions
    from ledger.text.figures import money, percent, ratio

    with existing_ledger(ledger) as engine:
        found = questions.context(engine, scope_of(since, until, only, names, timezone), session)
    _say_left_out(found.without_segments)
    words = {
        None: ("session", "agent", "part", "name"),
        "part": ("part",),
        "name": ("part", "name"),
    }
    rows = found.rows
    if by:
        sums: dict[tuple[object, ...], dict[str, Any]] = {}
        for each in found.rows:
            key = tuple(each[word] for word in words[by])
            one = sums.setdefault(key, dict(zip(words[by], key, strict=True)))
            for figure in ("bytes", "tokens", "calls", "list_value_usd"):
                pair = (one.get(figure), each[figure])
                one[figure] = sum(known) if (known := [x for x in pair if x is not None]) else None
        rows = sorted(sums.values(), key=lambda row: -int(str(row["tokens"])))
    if form == "table":
        total = sum(int(str(row["tokens"])) for row in rows) or 1
        for row in rows:
            row["share"] = percent(ratio(int(str(row["tokens"])), total), in_column=True)
    _print(rows, (*words[by], "bytes", "tokens", "share", "calls", "list_value_usd"), form)
    unused = [row for row in found.rows if row["unused"]]
    if unused and form == "table":
        count, tokens = (
            len({row["name"] for row in unused}),
            sum(int(str(row["tokens"])) for row in unused),
        )
        picousd = sum(
            int(Decimal(str(row["list_value_usd"] or 0)) * PICOUSD_PER_USD) for row in unused
        )
        typer.echo(
            f"tools that were never called: {count}, {tokens:,} tokens "
            f"and {money(picousd)}; {tokens // found.requests:,} tokens and "
            f"{money(picousd // found.requests)} a request, "
            f"{money(round(picousd * found.per_month))} a month at this rate",
            err=True,
        )


def _say_left_out(count: int) -> None:
    if count:
        from ledger.text.figures import counted

        typer.echo(f"left out: {counted(count, 'request')} without segments", err=True)


def _print(rows: Sequence[Mapping[str, object]], columns: Sequence[str], form: Form) -> None:
    if form == "json":
        typer.echo(json.dumps(rows))
        return
    from ledger.commands.output import print_line, print_table
    from ledger.reports.layout import Amount, Table, TableColumn
    from ledger.reports.progress import rest_line

    if not rows:
        print_line("nothing found")
        return
    shown = rows[:ROWS_SHOWN_MAX]
    lines: list[tuple[Cell, ...]] = []
    for row in shown:
        cells: list[Cell] = []
        for name in columns:
            value = row[name]
            if name.endswith("_usd") and isinstance(value, float):
                cells.append(Amount(picousd=round(value * 10**12)))
            elif name.endswith("_at"):
                cells.append(str(value)[:_MINUTE].replace("T", " "))
            else:
                cells.append(value if isinstance(value, int | None) else str(value))
        lines.append(tuple(cells))
    table = Table(
        columns=tuple(
            TableColumn(
                name=name,
                heading=_HEADS.get(name, name.capitalize()),
                is_number=name.endswith("_usd") or name in _NUMBERS,
                drop=_DROPPED.get(name, 0),
                is_whole=name.endswith("_at"),
            )
            for name in columns
        ),
        rows=tuple(lines),
    )
    if left_out := print_table(table):
        print_line(f"no room for {', '.join(left_out)}; a wider terminal or -f json has them")
    if rest := rest_line(len(rows), len(shown)):
        print_line(rest)


_HEADS = {
    "list_value_usd": "List value",
    "first_at": "First",
    "last_at": "Last",
}
_NUMBERS = ("requests", "tokens", "bytes", "share", "calls")
_DROPPED = {
    "example": 6,
    "first_at": 5,
    "bytes": 4,
    "last_at": 3,
    "agent": 2,
    "calls": 1,
}
"""Columns that a narrow screen drops: the highest number first."""
_MINUTE = len("2026-11-23 18:20")
