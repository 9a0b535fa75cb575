"""Edge. Rows in the order of their days -> one Parquet or CSV file a day.

`DIRECTORY/day=2026-11-02/requests.parquet`: the layout that DuckDB, Spark, Athena and others read
as a table partitioned by day. A file gets its name when its day is written completely, so an
interrupted export leaves no partial file. A repeated export replaces the files.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from itertools import batched, groupby
from pathlib import Path
from typing import Any

from ledger.exports import csv_files
from ledger.model.errors import LedgerError
from ledger.text.extras import missing_extra

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Only the owner may read who calls which model at what cost."""
BATCH_ROWS = 10_000
"""One row group: some MB in memory, and large enough for readers to skip."""

type Columns = Sequence[tuple[str, str]]
"""Name and kind of value: text, integer, boolean, instant, second or decimal."""
type Writing = Callable[
    [Path, Columns], AbstractContextManager[Callable[[Sequence[tuple[Any, ...]]], None]]
]
"""Opens a file with these columns; it yields a function that appends rows."""


class FileFormat(StrEnum):
    """The format of the files."""

    PARQUET = "parquet"
    CSV = "csv"


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
    """Write (day, values) pairs, which must be in the order of their days; yields each file."""
    writing = _writing(form)
    for day, of_day in groupby(rows, key=lambda pair: pair[0]):
        path = directory / f"day={day.isoformat()}" / f"{name}.{form.value}"
        count = 0
        with _replacing(path) as part, writing(part, columns) as append:
            for batch in batched((values for _, values in of_day), BATCH_ROWS):
                append(batch)
                count += len(batch)
        yield ExportedFile(path, count)


def _writing(form: FileFormat) -> Writing:
    """The writer of a format; LedgerError if its package is not installed."""
    if form is FileFormat.CSV:
        return csv_files.writing
    try:
        from ledger.exports import parquet_files
    except ModuleNotFoundError as error:
        if (text := missing_extra(error)) is None:
            raise
        raise LedgerError(f"{text}; CSV needs nothing more: --format csv") from None
    return parquet_files.writing


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
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
