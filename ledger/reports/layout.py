"""Pure. Tables: their columns and cells, and the texts of the cells.

All amounts of one column have the same number of decimals, chosen by the largest of them: 2 from
100 USD on, 4 from 1 USD on, otherwise 6. A smaller amount shows as `<$0.01`, never as zero. Numbers
align at the decimal point. A value that was not reported shows as `-`.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from rich.cells import cell_len

from ledger.text.printable import printable

NOT_REPORTED = "-"
SHORT_ID_LENGTH = 8
"""An id is not shortened further: it must stay unique when the ledger grows a little."""
FINGERPRINT_SHOWN = 6
"""Characters of a key's fingerprint: enough to distinguish the keys of one ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """An amount of money in a table."""

    picousd: int
    mark: str = ""
    """`≥ ` for a lower bound, `~` for an estimate."""


def amount_of(picousd: int | None, mark: str = "") -> Amount | None:
    """An amount, if it is known."""
    return None if picousd is None else Amount(picousd=picousd, mark=mark)


type Cell = str | int | Decimal | bool | Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table: its name for machines, its heading for people."""

    name: str
    """Empty: what people see of another column, a bar, say; nobody misses it where it has no
    room."""
    heading: str
    is_number: bool = True
    drop: int = 0
    """On a narrow screen the column with the highest number is removed first; 0 is never
    removed."""
    wraps: bool = False
    """A sentence, which may take several lines."""
    is_whole: bool = False
    """Not cut, as a time without its middle says nothing."""
    note: str = ""
    """What explains its cells, below a table that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells by column, with an optional last row of totals."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] | None = None


def without_empty(table: Table, name: str) -> Table:
    """The table without this column, if the column holds no text."""
    place = next(at for at, column in enumerate(table.columns) if column.name == name)
    if any(row[place] for row in table.rows):
        return table

    def cut[T](cells: tuple[T, ...]) -> tuple[T, ...]:
        return (*cells[:place], *cells[place + 1 :])

    return Table(
        columns=cut(table.columns),
        rows=tuple(cut(row) for row in table.rows),
        total=None if table.total is None else cut(table.total),
    )


def column_texts(table: Table) -> list[list[str]]:
    """The texts of each column: its heading, its cells, and the total, if any. Those of numbers are
    of one width."""
    rows = table.rows if table.total is None else (*table.rows, table.total)
    columns = []
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in rows]
        places = amount_places([cell for cell in cells if isinstance(cell, Amount)])
        texts = [
            cell_text(cell, places)
            if cell is not None or number != len(table.rows)
            else ("" if not column.is_number else NOT_REPORTED)
            for number, cell in enumerate(cells)
        ]
        texts = [column.heading, *(aligned(texts) if column.is_number else texts)]
        if column.is_number:
            width = max(map(cell_len, texts))
            texts = [" " * (width - cell_len(text)) + text for text in texts]
        columns.append(texts)
    return columns


def cell_text(cell: Cell, places: int = 6) -> str:
    """The text of one cell."""
    if cell is None:
        return NOT_REPORTED
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, Decimal):
        return f"{cell:,f}"
    if isinstance(cell, Amount):
        return amount_text(cell, places)
    return printable(cell)


def amount_places(amounts: Sequence[Amount]) -> int:
    """The number of decimals for the amounts of one column."""
    largest = max((abs(amount.picousd) for amount in amounts), default=0)
    return 2 if largest >= 100 * 10**12 else 4 if largest >= 10**12 else 6


def amount_text(amount: Amount, places: int) -> str:
    """`$12.3456`; an amount too small for the decimals is `<$0.0001`."""
    picousd = amount.picousd
    unit = 10 ** (12 - places)
    sign = "-" if picousd < 0 else ""
    if picousd and abs(picousd) * 2 <= unit:
        least = f"{Decimal(unit).scaleb(-12):.{places}f}"
        return f"{amount.mark}{sign}<${least}"
    return f"{amount.mark}{sign}${Decimal(abs(picousd)).scaleb(-12):,.{places}f}"


def key_text(fingerprint: str, hint: str | None) -> str:
    """An API key for people: `…1111 (3f2a9c)`, its last characters and its short fingerprint."""
    short = fingerprint[:FINGERPRINT_SHOWN]
    return f"…{hint} ({short})" if hint else f"key {short}"


def wrapped(text: str, width: int, indent: str = "") -> str:
    """A sentence in lines of at most `width`, broken at spaces only."""
    lines = textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) or text


def aligned(texts: list[str]) -> list[str]:
    """Numbers with aligned decimal points; other texts end at the last digit."""
    fractions = [
        len(text) - text.rindex(".")
        if "." in text and _is_number(text) and text[text.rindex(".") + 1 :].isdigit()
        else 0
        for text in texts
    ]
    widest = max(fractions, default=0)
    return [
        text + " " * (widest - fraction) if _is_number(text) else text
        for text, fraction in zip(texts, fractions, strict=True)
    ]


def _is_number(text: str) -> bool:
    return any(character.isdigit() for character in text) and not text.endswith(("s", "%"))


def unique_beginning(identity: str, identities: list[str]) -> str:
    """The shortest prefix of an id that no other of these has, and at least SHORT_ID_LENGTH."""
    others = [other for other in identities if other != identity]
    for length in range(SHORT_ID_LENGTH, len(identity)):
        if not any(other.startswith(identity[:length]) for other in others):
            return identity[:length]
    return identity
