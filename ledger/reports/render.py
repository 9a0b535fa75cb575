"""Pure. Tables -> text: for a terminal, as JSON, CSV or Markdown.

What came over the wire is written so that it can do nothing where it is read: control and
direction characters are shown by their code, a spreadsheet gets no formulas, Markdown no markup.
Amounts are exact decimals everywhere.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ledger.model.money import usd_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

type Cell = str | int | Decimal | bool | None

FORMATS = ("table", "json", "csv", "markdown")

WIDTH_MAX = 10_000
"""Wider than any table; rich measures nothing wider than it is told."""

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Controls (ESC among them), what is invisible, and what turns the direction of text."""
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""What makes a spreadsheet take a text for a formula (OWASP, CSV injection), full-width too."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its name for machines, its heading for people."""

    name: str
    heading: str
    is_number: bool = True
    drop: int = 0
    """On a narrow screen the column with the highest number goes first; 0 stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells by column, with a last row of totals where there is one."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] | None = None


def printable(text: str) -> str:
    """The text with whatever a terminal would obey shown by its code."""
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def usd(picousd: int | None) -> Decimal | None:
    """An amount as an exact number of USD."""
    return None if picousd is None else Decimal(usd_text(picousd))


def short_usd(picousd: int | None) -> str:
    """An amount for a table: cents from 100 USD on, else as many places as say something."""
    if picousd is None:
        return ""
    amount = Decimal(picousd).scaleb(-12)
    places = 2 if abs(amount) >= 100 else 4 if abs(amount) >= Decimal("0.01") else 6
    if amount and abs(amount) < Decimal("0.000001"):
        return f"${usd_text(picousd)}" if picousd > 0 else f"-${usd_text(-picousd)}"
    return f"{'-' if amount < 0 else ''}${abs(amount):,.{places}f}"


def short_count(count: int | None) -> str:
    """A count for a table."""
    return "" if count is None else f"{count:,}"


def as_csv(table: Table) -> str:
    """Safe to open in a spreadsheet; an empty cell is a NULL."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows([_csv_cell(cell) for cell in row] for row in table.rows)
    return out.getvalue()


def as_markdown(table: Table) -> str:
    """A table as GitHub and most others take it."""
    head = [column.heading for column in table.columns]
    rule = ["---:" if column.is_number else "---" for column in table.columns]
    body = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    if table.total is not None:
        body.append(
            [f"**{text}**" if (text := _markdown_cell(cell)) else "" for cell in table.total]
        )
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *body))


def as_json(value: object) -> str:
    """JSON in which a Decimal is the number it is, to the last digit, and no text is anything but
    ASCII."""
    return f"{_json(value, 0)}\n"


def print_table(table: Table, console: "Console") -> None:
    """A table on a terminal, without the columns that do not fit it."""
    from rich.measure import Measurement

    unbounded = console.options.update(max_width=WIDTH_MAX)
    shown = _rich(table)
    while Measurement.get(console, unbounded, shown).maximum > console.width:
        place = max(range(len(table.columns)), key=lambda place: table.columns[place].drop)
        if not table.columns[place].drop:
            break
        table = _without(table, place)
        shown = _rich(table)
    console.print(shown)


def _rich(table: Table) -> "RichTable":
    """Text from the wire is text, never markup."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_footer=table.total is not None, pad_edge=False)
    totals = table.total or ("",) * len(table.columns)
    for column, total in zip(table.columns, totals, strict=True):
        shown.add_column(
            column.heading,
            footer=Text(_text(total)),
            justify="right" if column.is_number else "left",
            overflow="fold",
            no_wrap=column.is_number,
        )
    for row in table.rows:
        shown.add_row(*(Text(_text(cell)) for cell in row))
    return shown


def _without(table: Table, place: int) -> Table:
    def cut[T](cells: tuple[T, ...]) -> tuple[T, ...]:
        return (*cells[:place], *cells[place + 1 :])

    return Table(
        columns=cut(table.columns),
        rows=tuple(cut(row) for row in table.rows),
        total=None if table.total is None else cut(table.total),
    )


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return short_count(cell)
    return f"{cell:f}" if isinstance(cell, Decimal) else printable(cell)


def _csv_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        text = printable(cell)
        return f"'{text}" if text.startswith(_FORMULA) else text
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return "" if cell is None else f"{cell:f}" if isinstance(cell, Decimal) else str(cell)


def _markdown_cell(cell: Cell) -> str:
    return _MARKUP.sub(r"\\\1", _text(cell)) if isinstance(cell, str) else _text(cell)


def _json(value: object, depth: int) -> str:
    pad, end = "  " * (depth + 1), "  " * depth
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, Mapping):
        members = [f"{pad}{json.dumps(str(k))}: {_json(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{end}}}" if members else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [f"{pad}{_json(item, depth + 1)}" for item in value]
        return "[\n" + ",\n".join(items) + f"\n{end}]" if items else "[]"
    return json.dumps(value)
