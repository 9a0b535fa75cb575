"""Edge. Rows -> a CSV file, with the standard library alone.

Texts, times and amounts are quoted, integers and booleans are not, and NULL is an empty field: an
empty text is `""`. So a reader can distinguish them. The `csv` module has no such rule for
booleans, and refuses a row whose only value is NULL.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ledger.text.printable import FORMULA_STARTS, spreadsheet_text

_SUSPECT = re.compile(rf"[^ -~]|^ *[{FORMULA_STARTS}]")
"""Texts that need escaping in a CSV file; few do, and the search is quick."""


@contextmanager
def writing(
    path: Path, columns: Sequence[tuple[str, str]]
) -> Iterator[Callable[[Sequence[tuple[Any, ...]]], None]]:
    """Open a file, write the names of its columns, and yield a function that appends rows."""
    cells = [_CELLS[kind] for _, kind in columns]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(_line([_quoted(name) for name, _ in columns]))

        def append(rows: Sequence[tuple[Any, ...]]) -> None:
            written = [
                _cells(cell, of) for cell, of in zip(cells, zip(*rows, strict=True), strict=True)
            ]
            file.writelines(map(_line, zip(*written, strict=True)))

        yield append


def _cells(cell: Callable[[Any], str], values: Sequence[Any]) -> Iterator[str]:
    """The texts of a column. Many values are equal, so each distinct value is converted once."""
    written = {value: "" if value is None else cell(value) for value in set(values)}
    return map(written.__getitem__, values)


def _line(cells: Sequence[str]) -> str:
    return f"{','.join(cells)}\n"


def _quoted(text: str) -> str:
    return f'"{text.replace('"', '""')}"'


def _text(value: str) -> str:
    """A text without formulas for a spreadsheet and without control characters for a terminal."""
    return _quoted(spreadsheet_text(value) if _SUSPECT.search(value) else value)


def _integer(value: int) -> str:
    return f"{value:d}"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _instant(value: datetime) -> str:
    """ISO 8601 in UTC, always with microseconds."""
    return f'"{_in_utc(value).isoformat(timespec="microseconds")}Z"'


def _second(value: datetime) -> str:
    return f'"{_in_utc(value).isoformat(timespec="seconds")}Z"'


def _in_utc(value: datetime) -> datetime:
    assert value.tzinfo is not None
    return value.astimezone(UTC).replace(tzinfo=None)


def _decimal(value: Decimal) -> str:
    """Without an exponent, and always with a point: readers that infer types from the first rows
    read `8` as an integer, and the FOCUS validator refuses it."""
    text = f"{value.normalize():f}"
    return f'"{text}"' if "." in text else f'"{text}.0"'


_CELLS: Mapping[str, Callable[[Any], str]] = {
    "text": _text,
    "integer": _integer,
    "boolean": _boolean,
    "instant": _instant,
    "second": _second,
    "decimal": _decimal,
}
"""Kind of value -> function that formats it."""
