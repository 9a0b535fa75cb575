"""Edge. Rows in the order of their days -> one Parquet or CSV file a day.

`DIRECTORY/day=2026-11-02/requests.parquet`: the layout that DuckDB, Spark, Athena and others read
as a table partitioned by day. A file appears whole, under its name, when its day is written; an
export that is broken off leaves none that is cut, and doing it again replaces them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from itertools import batched, groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from ledger.model.errors import LedgerError
from ledger.text.printable import FORMULA_STARTS, spreadsheet_text

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Who calls whom, and what it costs, is nobody else's to read."""
BATCH_ROWS = 10_000
"""One row group: some MB in memory, and large enough for a reader to skip by."""

TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "instant": pa.timestamp("us", tz="UTC"),
    "second": pa.timestamp("s", tz="UTC"),
    "decimal": pa.decimal128(38, 12),
}
"""Kind of value -> type. Twelve places are pico-USD: amounts stay exact."""

_SUSPECT = f"[^ -~]|^ *[{FORMULA_STARTS}]"
"""Texts that may not stand in a CSV file as they are; the others are not looked at one by one."""


class FileFormat(StrEnum):
    """In which format files are written."""

    PARQUET = "parquet"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Written:
    """One file."""

    path: Path
    rows: int


def write(
    directory: Path,
    name: str,
    columns: Sequence[tuple[str, str]],
    rows: Iterable[tuple[date, tuple[Any, ...]]],
    form: FileFormat,
) -> Iterator[Written]:
    """Write (day, values) pairs, which come in the order of their days; yields each file."""
    schema = pa.schema([(column, TYPES[kind]) for column, kind in columns])
    for day, of_day in groupby(rows, key=lambda pair: pair[0]):
        path = directory / f"day={day.isoformat()}" / f"{name}.{form.value}"
        count = 0
        with _replacing(path) as part, _writer(part, schema, form) as writer:
            for batch in batched((values for _, values in of_day), BATCH_ROWS):
                writer.write_batch(_batch(batch, schema, form))
                count += len(batch)
        yield Written(path, count)


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


def _writer(path: Path, schema: pa.Schema, form: FileFormat) -> Any:
    if form is FileFormat.CSV:
        texts = [
            field.with_type(pa.string()) if _is_spelled(field.type) else field for field in schema
        ]
        return pyarrow.csv.CSVWriter(path, pa.schema(texts))
    return pyarrow.parquet.ParquetWriter(path, schema, compression="zstd")


def _batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema, form: FileFormat) -> pa.RecordBatch:
    arrays = [
        pa.array(values, type=field.type)
        for values, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    if form is FileFormat.CSV:
        arrays = [_csv(array) for array in arrays]
    return pa.record_batch(arrays, names=schema.names)


def _is_spelled(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_decimal(kind))


def _csv(array: pa.Array) -> pa.Array:
    """Times in ISO 8601, amounts without exponents, no text that a spreadsheet would run."""
    if pa.types.is_timestamp(array.type):
        return pc.strftime(array.cast(pa.timestamp(array.type.unit)), "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_decimal(array.type):
        texts = [None if value is None else _decimal(value) for value in array.to_pylist()]
        return pa.array(texts, type=pa.string())
    return _harmless(array) if pa.types.is_string(array.type) else array


def _decimal(value: Decimal) -> str:
    """With a point, always: readers that guess types by their first rows take `8` for an integer,
    and the FOCUS validator refuses it."""
    text = f"{value.normalize():f}"
    return text if "." in text else f"{text}.0"


def _harmless(texts: pa.Array) -> pa.Array:
    """`spreadsheet_text` of each text that needs it; few do, and many are equal."""
    if not pc.any(pc.match_substring_regex(texts, _SUSPECT)).as_py():
        return texts
    encoded = texts.dictionary_encode()
    known = [spreadsheet_text(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(known, type=pa.string()).take(encoded.indices)
