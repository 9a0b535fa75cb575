"""Edge (the terminal). Tables as text: for a terminal, CSV, JSON and Markdown.

Every output passes text from the wire through `printable`; CSV contains no formulas and Markdown no
markup. JSON is ASCII and exact. Amounts are exact decimals in CSV and JSON.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from rich.cells import cell_len

from ledger.model.money import usd_text
from ledger.reports.layout import Amount, Table, column_texts, wrapped
from ledger.text.printable import spreadsheet_text

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2
"""Blanks between two columns."""
WRAPPED_WIDTH_MIN = 24
"""Other columns are left out before sentences become narrower than this."""
WORD_WIDTH_MAX = 40
"""Nor do they become narrower than their longest word, up to this."""
TEXT_WIDTH_MIN = 12
"""Shorter texts than this are not cut."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!$&@]|(?<=[a-z]):(?=//)|(?<=www)\.)", re.IGNORECASE)
"""Characters that Markdown would read as markup, an entity, a mention, math or a link."""


def as_csv(table: Table) -> str:
    """Safe to open in a spreadsheet; an empty cell is a NULL."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    for row in table.rows:
        texts = []
        for cell in row:
            if cell is None:
                texts.append("")
            elif isinstance(cell, str):
                texts.append(spreadsheet_text(cell))
            elif isinstance(cell, bool):
                texts.append("true" if cell else "false")
            elif isinstance(cell, Amount):
                texts.append(usd_text(cell.picousd))
            else:
                texts.append(f"{cell:f}" if isinstance(cell, Decimal) else str(cell))
        writer.writerow(texts)
    return out.getvalue()


def as_markdown(table: Table, title: str = "") -> str:
    """A table in GitHub's syntax, below its title."""
    head = [_marked(column.heading) for column in table.columns]
    rule = ["---:" if column.is_number else "---" for column in table.columns]
    cells = table.rows if table.total is None else (*table.rows, table.total)
    texts = [column[1:] for column in column_texts(table)]
    body = [
        [_marked(text) if isinstance(cell, str) else text.strip() for text, cell in pairs]
        for pairs in (
            zip(shown, row, strict=True)
            for shown, row in zip(zip(*texts, strict=True), cells, strict=True)
        )
    ]
    if table.total is not None:
        body[-1] = [f"**{text}**" if text else "" for text in body[-1]]
    above = f"{_marked(title)}\n\n" if title else ""
    below = "".join(f"\n{_marked(note)}\n" for note in _notes(table))
    return above + "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body)) + below


def as_json(value: object) -> str:
    """JSON in ASCII, in which a Decimal keeps every digit."""
    return f"{_json(value, 0)}\n"


def print_table(table: Table, console: "Console", title: str = "") -> tuple[str, ...]:
    """Print a table below its title; returns the headings of the columns that did not fit."""
    from rich.text import Text

    if title:
        console.print(Text(wrapped(title, console.width)), soft_wrap=True)
    lines, left_out = _lines(table, console)
    console.file.write("\n".join((*lines, "")))
    for note in _notes(table, left_out):
        console.print(Text(note, style="dim"), soft_wrap=True)
    return left_out


def table_lines(table: Table, width: int) -> list[str]:
    """The lines of a table, without style."""
    from rich.console import Console

    return _lines(table, Console(file=io.StringIO(), width=width, color_system=None))[0]


def _lines(table: Table, console: "Console") -> tuple[list[str], tuple[str, ...]]:
    """The lines of a table, and the headings of the columns that did not fit: as long as it is too
    wide, the one with the highest `drop` is left out, and then texts lose their ends."""
    from rich.box import SIMPLE
    from rich.table import Table as RichTable
    from rich.text import Text

    columns = [*zip(table.columns, column_texts(table), strict=True)]
    left_out: list[str] = []
    while True:
        widths = []
        for column, texts in columns:
            widths.append(max(map(cell_len, texts)))
            if column.wraps:
                longest = max(cell_len(word) for text in texts for word in text.split() or [""])
                least = max(WRAPPED_WIDTH_MIN, min(longest, WORD_WIDTH_MAX))
                widths[-1] = min(widths[-1], least)
        is_tight = sum(widths) + GAP * (len(widths) - 1) > console.width
        place = max(range(len(columns)), key=lambda place: (columns[place][0].drop, place))
        if not (is_tight and columns[place][0].drop):
            break
        column, _ = columns.pop(place)
        left_out += [column.heading] if column.name else []
    shown = RichTable(
        box=SIMPLE,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        header_style="bold",
        footer_style="bold",
        border_style="dim",
        show_footer=table.total is not None,
    )
    cells = []
    for (column, texts), width in zip(columns, widths, strict=True):
        is_narrowed = is_tight and not (column.is_number or column.is_whole)
        least = min(width, max(TEXT_WIDTH_MIN, cell_len(column.heading)))
        of_column = [
            Text(text, no_wrap=not column.wraps, overflow="fold" if column.wraps else "ellipsis")
            for text in texts
        ]
        shown.add_column(
            of_column[0],
            "" if table.total is None else of_column[-1],
            no_wrap=not (column.wraps or is_narrowed),
            min_width=least if is_narrowed else width,
        )
        cells.append(of_column[1 : len(table.rows) + 1])
    for row in zip(*cells, strict=True):
        shown.add_row(*row)
    with console.capture() as captured:
        console.print(shown, crop=False)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    in_order = tuple(each.heading for each in table.columns if each.heading in left_out)
    return lines, in_order


def _notes(table: Table, left_out: Sequence[str] = ()) -> dict[str, None]:
    """What explains the cells of the columns that are shown."""
    columns = (each for each in table.columns if each.note and each.heading not in left_out)
    return dict.fromkeys(each.note for each in columns)


def _marked(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)


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
