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

from ledger.model.money import usd_text
from ledger.reports.layout import Amount, Table, column_texts, layout, wrapped
from ledger.text.printable import spreadsheet_text

if TYPE_CHECKING:
    from rich.console import Console

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

    shown = layout(table, console.width)

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    if title:
        line(wrapped(title, console.width))
    line(shown.heading, "bold")
    line(shown.rule, "dim")
    for row in shown.rows:
        line(row)
    if shown.total is not None:
        line(shown.rule, "dim")
        line(shown.total, "bold")
    for note in _notes(table, shown.left_out):
        line(note, "dim")
    return shown.left_out


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
