"""Edge (a file). The rows of a writer whose ledger was overwritten in place, until the next start
books them.

    NAME-unbooked-….jsonl    one line for each row: the exchange, and its reading or null

While its writer lives, it holds a lock on the file (`nodes.take_turn`).
"""

import glob
import os
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ledger.model import door
from ledger.model.exchange import Exchange, Reading
from ledger.store.processes import nodes
from ledger.store.processes.supervision import SetAside
from ledger.store.writing.batch_insert import ROWS_MAX
from ledger.store.writing.jobs import Job

UNBOOKED_BYTES_MAX = 1_000_000_000
"""Some 500 000 rows."""
ROW_BYTES_MAX = 16_000_000
"""More than the door admits of one exchange and its usage object."""

_line_of = msgspec.json.Encoder().encode
_row_of = msgspec.json.Decoder(tuple[Exchange, Reading | None]).decode


class Unbooked:
    """The file of one writer; made with its first row."""

    def __init__(self, ledger: Path, node: str, *, set_aside: SetAside) -> None:
        self.path = ledger.with_name(f"{ledger.name}-unbooked-{secrets.token_hex(8)}.jsonl")
        self._node = node
        self._set_aside = set_aside
        self._file: int | None = None
        self._size = 0

    def write(self, jobs: Sequence[Job]) -> None:
        """Append rows, on disk when it returns. OSError: they are to be written again."""
        lines = []
        for job in jobs:
            try:
                exchange, reading = door.admitted(job.exchange, job.reading)
                lines.append(_line_of((replace(exchange, node=self._node), reading)) + b"\n")
            except Exception as error:  # noqa: BLE001  # one bad row must not cost the others
                self._set_aside.add((job.exchange, job.reading), error)
        if self._file is None:
            self._file = nodes.take_turn(self.path)
        assert self._file is not None  # nobody else knows its name
        data = b"".join(lines)
        if self._size + len(data) > UNBOOKED_BYTES_MAX:
            raise OSError(f"{self.path} has {UNBOOKED_BYTES_MAX} bytes")
        os.ftruncate(self._file, self._size)  # a part of what an error cut off
        end = self._size
        while data:
            written = os.pwrite(self._file, data, end)
            data, end = data[written:], end + written
        os.fsync(self._file)
        self._size = end

    def close(self) -> None:
        """Leave the file to the next start."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def book(ledger: Path, write: Callable[[list[Job]], None], *, set_aside: SetAside) -> int:
    """Write the rows that writers of this ledger left behind, and remove their files; how many."""
    count = 0
    for path in sorted(ledger.parent.glob(f"{glob.escape(ledger.name)}-unbooked-*.jsonl")):
        if (descriptor := nodes.take_turn(path)) is None:
            continue  # its writer lives
        with os.fdopen(descriptor, "rb") as file:
            lines = iter(partial(file.readline, ROW_BYTES_MAX), b"")
            while batch := list(islice(lines, ROWS_MAX)):
                jobs = []
                for line in batch:
                    try:
                        jobs.append(Job(*_row_of(line)))
                    except (msgspec.DecodeError, UnicodeDecodeError) as error:
                        set_aside.add(line, error)
                write(jobs)
                count += len(jobs)
            path.unlink()
    return count
