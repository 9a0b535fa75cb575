"""Edge. Rows -> a Parquet file, with pyarrow, which an extra installs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

_TYPES: Mapping[str, pa.DataType] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "instant": pa.timestamp("us", tz="UTC"),
    "second": pa.timestamp("s", tz="UTC"),
    "decimal": pa.decimal128(38, 12),
}
"""Kind of value -> type. Twelve places are pico-USD: amounts stay exact."""


@contextmanager
def writing(
    path: Path, columns: Sequence[tuple[str, str]]
) -> Iterator[Callable[[Sequence[tuple[Any, ...]]], None]]:
    """Open a file with these columns, and yield a function that appends rows as a row group."""
    schema = pa.schema([(column, _TYPES[kind]) for column, kind in columns])
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:

        def append(rows: Sequence[tuple[Any, ...]]) -> None:
            writer.write_batch(_batch(rows, schema))

        yield append


def _batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array(values, type=field.type)
        for values, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.record_batch(arrays, names=schema.names)
