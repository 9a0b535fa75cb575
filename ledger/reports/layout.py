"""Pure. A table as lines of text for a given width.

Amounts: all amounts of one column have the same number of decimals, chosen by the largest of them:
2 from 100 USD on, 4 from 1 USD on, otherwise 6. A smaller amount shows as `<$0.01`, never as zero.
Numbers align at the decimal point. A value that was not reported shows as `-`.

Width: the columns with the highest `drop` are removed first, one by one, until the table fits. If
it is still too wide, columns that wrap are broken at spaces (`wraps`), and then the widest text
loses its middle (`…`). Nothing breaks inside a word or a number.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from rich.cells import cell_len, set_cell_size

from ledger.text.printable import printable

GAP = 2
"""Blanks between two columns."""
WRAPPED_WIDTH_MIN = 24
"""Other columns are dropped before columns that wrap become narrower than this."""
WORD_WIDTH_MAX = 40
"""Nor do they become narrower than their longest word, up to this."""
TEXT_WIDTH_MIN = 12
"""Shorter texts than this are not cut."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A table as lines, at most as wide as requested, if that is possible."""

    heading: str
    rule: str
    rows: tuple[str, ...]
    total: str | None
    left_out: tuple[str, ...]
    """Headings of the columns that did not fit."""


def layout(table: Table, width: int) -> Layout:
    """The table in at most `width` columns of a terminal."""
    texts = column_texts(table)
    kept = list(range(len(table.columns)))
    widths = [_width(texts[place]) for place in kept]
    for place in kept:
        if table.columns[place].wraps:
            words = [word for text in texts[place] for word in text.split()]
            longest = min(_width(words), WORD_WIDTH_MAX)
            widths[place] = min(widths[place], max(longest, WRAPPED_WIDTH_MIN))
    while _total(widths, kept) > width:
        place = max(kept, key=lambda place: (table.columns[place].drop, place))
        if not table.columns[place].drop:
            break
        kept.remove(place)
    for place in kept:
        if table.columns[place].wraps:
            room = width - _total(widths, kept) + widths[place]
            widths[place] = min(_width(texts[place]), max(room, widths[place]))
    _cut_widest(table, widths, kept, width)
    # The heading, the rows and the total, each as its lines.
    printed = []
    for number in range(len(texts[0])):
        cells = []
        for place in kept:
            text, room = texts[place][number], widths[place]
            if table.columns[place].wraps and number:
                cells.append([_cut(part, room) for part in _words(text, room)] or [""])
            else:
                cells.append([_cut(text, room)])
        lines = []
        for height in range(max(len(cell) for cell in cells)):
            line = []
            for place, cell in zip(kept, cells, strict=True):
                text = cell[height] if height < len(cell) else ""
                pad = " " * (widths[place] - cell_len(text))
                line.append(pad + text if table.columns[place].is_number else text + pad)
            lines.append((" " * GAP).join(line).rstrip())
        printed.append(lines)
    return Layout(
        heading=printed[0][0],
        rule="─" * min(_total(widths, kept), width),
        rows=tuple(line for lines in printed[1 : 1 + len(table.rows)] for line in lines),
        total="\n".join(printed[-1]) if table.total is not None else None,
        left_out=tuple(
            column.heading for place, column in enumerate(table.columns) if place not in kept
        ),
    )


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
    """The texts of each column, without its heading; the total, if any, comes last."""
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
        columns.append([column.heading, *(aligned(texts) if column.is_number else texts)])
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
    return "\n".join(_words(text, width, indent)) or text


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


def _width(texts: Sequence[str]) -> int:
    return max(cell_len(text) for text in texts)


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[place] for place in kept) + GAP * (len(kept) - 1)


def _cut_widest(table: Table, widths: list[int], kept: Sequence[int], width: int) -> None:
    """Narrow the widest text column repeatedly, until the table fits or no column can be
    narrowed."""
    while (surplus := _total(widths, kept) - width) > 0:
        columns = table.columns
        texts = [each for each in kept if not (columns[each].is_number or columns[each].is_whole)]
        if not texts:
            return
        widest = max(texts, key=lambda place: widths[place])
        others = [widths[place] for place in texts if place != widest]
        floor = max(TEXT_WIDTH_MIN, cell_len(table.columns[widest].heading))
        target = max(
            floor, widths[widest] - surplus, min(max(others, default=0), widths[widest] - 1)
        )
        if target >= widths[widest]:
            return
        widths[widest] = target


def _cut(text: str, width: int) -> str:
    """The text without its middle: the ends of models and paths distinguish them."""
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 3
    last = set_cell_size(text[::-1], end).rstrip()[::-1]
    return f"{set_cell_size(text, width - 1 - end).rstrip()}…{last}"


def _words(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def unique_beginning(identity: str, identities: list[str]) -> str:
    """The shortest prefix of an id that no other of these has, and at least SHORT_ID_LENGTH."""
    others = [other for other in identities if other != identity]
    for length in range(SHORT_ID_LENGTH, len(identity)):
        if not any(other.startswith(identity[:length]) for other in others):
            return identity[:length]
    return identity
