"""Edge. Rows in the order of their days -> one Parquet or CSV file a day.

`DIRECTORY/day=2026-11-02/requests.parquet`: the layout that DuckDB, Spark, Athena and others read
as a table partitioned by day, of UTC or of the zone that was asked for. A file gets its name when
its day is written completely, so an interrupted export leaves no partial file. A repeated export
replaces the files.

CSV is written with the standard library alone. Texts, times and amounts are quoted, integers and
booleans are not, and NULL is an empty field: an empty text is `""`. So a reader can distinguish
them. The `csv` module has no such rule for booleans, and refuses a row whose only value is NULL.
Parquet is written with pyarrow, which an extra installs.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import batched, groupby
from pathlib import Path
from typing import Any, Literal

from ledger.model.errors import LedgerError
from ledger.settings.extras import missing_extra
from ledger.text.printable import FORMULA_STARTS, spreadsheet_text

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Only the owner may read who calls which model at what cost."""
FILE_SUFFIXES = (".parquet", ".csv")
BATCH_ROWS = 10_000
"""One row group: some MB in memory, and large enough for readers to skip."""

type FileFormat = Literal["parquet", "csv"]
type Columns = Sequence[tuple[str, str]]
"""Name and kind of value: text, integer, boolean, instant, second or decimal."""
type Append = Callable[[Sequence[tuple[Any, ...]]], None]
"""Appends rows to a file that is being written."""

_NEEDS_ESCAPE = re.compile(rf"[^ -~]|^ *[{FORMULA_STARTS}]")
"""Texts that need escaping in a CSV file; few do, and the search is quick."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One written file."""

    path: Path
    rows: int


def write(
    directory: Path,
    name: str,
    columns: Columns,
    rows: Iterable[tuple[date, tuple[Any, ...]]],
    form: FileFormat,
) -> Iterator[ExportedFile]:
    """Write (day, values) pairs, which must be in the order of their days; yields each file.

    LedgerError if the folder has another export: a reader of `*.parquet` would count its rows too.
    """
    files = directory.glob("day=*/*.*")
    others = {file.stem for file in files if file.suffix in FILE_SUFFIXES} - {name}
    writing = csv_file if form == "csv" else _parquet_writing()
    for day, of_day in groupby(rows, key=lambda pair: pair[0]):
        if others:
            raise LedgerError(
                f"{directory} has an export of {min(others)}; write {name} to a folder of its own"
            )
        path = directory / f"day={day.isoformat()}" / f"{name}.{form}"
        count = 0
        with replacing(path) as part, writing(part, columns) as append:
            for batch in batched((values for _, values in of_day), BATCH_ROWS):
                try:
                    append(batch)
                except (TypeError, ValueError):  # of a foreign row: these are left empty
                    append([_of_their_kind(columns, values) for values in batch])
                count += len(batch)
        yield ExportedFile(path, count)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside a file to write to; it takes the file's place when all is written."""
    part = path.with_name(f".{path.name}.part")
    try:
        # With parents=True the folders in between would get the default mode.
        for folder in reversed((path.parent, *path.parent.parents)):
            folder.mkdir(exist_ok=True, mode=FOLDER_MODE)
        part.unlink(missing_ok=True)
        part.touch(mode=FILE_MODE, exist_ok=False)
        yield part
        part.replace(path)
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()


def _of_their_kind(columns: Columns, values: Sequence[Any]) -> tuple[Any, ...]:
    pairs = zip(columns, values, strict=True)
    return tuple(value if isinstance(value, _TYPES[kind]) else None for (_, kind), value in pairs)


@contextmanager
def csv_file(path: Path, columns: Columns) -> Iterator[Append]:
    """Open a file, write the names of its columns, and yield a function that appends rows."""
    cells = [_CELLS[kind] for _, kind in columns]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(_line([_quoted(name) for name, _ in columns]))

        def append(rows: Sequence[tuple[Any, ...]]) -> None:
            written = []
            for cell, values in zip(cells, zip(*rows, strict=True), strict=True):
                # Many values are equal, so each distinct value is converted once.
                texts = {value: "" if value is None else cell(value) for value in set(values)}
                written.append([texts[value] for value in values])
            file.writelines(map(_line, zip(*written, strict=True)))

        yield append


def _parquet_writing() -> Callable[[Path, Columns], AbstractContextManager[Append]]:
    """The same for Parquet, rows as a row group. LedgerError if pyarrow is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        if (text := missing_extra(error)) is None:
            raise
        raise LedgerError(f"{text}; CSV needs nothing more: --format csv") from None
    types = {
        "text": pa.string(),
        "integer": pa.int64(),
        "boolean": pa.bool_(),
        "instant": pa.timestamp("us", tz="UTC"),
        "second": pa.timestamp("s", tz="UTC"),
        "decimal": pa.decimal128(38, 12),  # twelve places are pico-USD: amounts stay exact
    }

    @contextmanager
    def parquet_file(path: Path, columns: Columns) -> Iterator[Append]:
        schema = pa.schema([(column, types[kind]) for column, kind in columns])
        with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:

            def append(rows: Sequence[tuple[Any, ...]]) -> None:
                arrays = [
                    pa.array(values, type=field.type)
                    for values, field in zip(zip(*rows, strict=True), schema, strict=True)
                ]
                writer.write_batch(pa.record_batch(arrays, names=schema.names))

            yield append

    return parquet_file


def _line(cells: Sequence[str]) -> str:
    return f"{','.join(cells)}\n"


def _quoted(text: str) -> str:
    return f'"{text.replace('"', '""')}"'


def _text(value: str) -> str:
    """A text without formulas for a spreadsheet and without control characters for a terminal."""
    return _quoted(spreadsheet_text(value) if _NEEDS_ESCAPE.search(value) else value)


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


_TYPES: Mapping[str, Any] = {
    "text": str,
    "integer": int,
    "boolean": int,
    "instant": datetime,
    "second": datetime,
    "decimal": Decimal,
}
"""Kind of value -> its type."""
_CELLS: Mapping[str, Callable[[Any], str]] = {
    "text": _text,
    "integer": "{:d}".format,
    "boolean": lambda value: "true" if value else "false",
    "instant": _instant,
    "second": _second,
    "decimal": _decimal,
}
"""Kind of value -> function that formats it."""
