"""Edge (files). Reads one part of an archive into a ledger of its own; runs on any worker.

A worker has neither the target ledger nor its other parts. It reads its part into a SQLite ledger
in a temporary folder, with the meter and the writer of every other replay, and returns that file,
compressed. No part is visible before it is complete, so a worker may die at any time.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import zstandard

from addon.recordings.archives import ArchiveFile, on_this_machine
from addon.recordings.files import BODY_TYPES
from addon.recordings.replay import Part, Replay, Tally
from ledger.maintenance.known import KnownExchanges
from ledger.model.errors import LedgerError
from ledger.pricing.prices import PriceBook
from ledger.store import db, secret
from ledger.store.writing.commits import Commits
from ledger.store.writing.writer import Ledger

PART_BYTES = 64 * 1024 * 1024
"""A larger local file is read in parts. This much of gzipped captures fills a ledger of some 200
MB, compressed 30 MB, which the caller holds in memory when it arrives."""
PARTS_MAX = 64
"""Parts of one file: each part skips the others' entries, at some 400 MB/s."""
RESULT_BYTES_MAX = 512 * 1024 * 1024
"""A compressed ledger that a worker may send."""
LEDGER_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""The largest ledger that is unpacked from such a result."""
CLOSE_SECONDS_MAX = 60.0

type Lines = tuple[tuple[str, str], ...]
"""Level and text of each log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePart:
    """A file of an archive, or one of several equal shares of its entries."""

    file: ArchiveFile
    part: int = 0
    parts: int = 1

    @property
    def size(self) -> int:
        """The part's share of the file's bytes."""
        return self.file.size // self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartJob:
    """The input of every worker."""

    node: str
    secret: bytes = field(repr=False)
    """The secret of the target's key fingerprints, so that one key has one fingerprint."""
    url: str | None
    prices: str | None = None
    """The text of the price override file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """The result of a worker for one part."""

    ledger: bytes
    """A SQLite ledger, compressed."""
    tally: Tally
    lines: Lines


def parts_of(files: list[ArchiveFile]) -> list[ArchivePart]:
    """The parts to read, the largest first, so that no worker starts a long one at the end."""
    parts = []
    for file in files:
        is_whole = not file.is_local or file.name.endswith(tuple(BODY_TYPES))
        count = 1 if is_whole else min(PARTS_MAX, -(-file.size // PART_BYTES) or 1)
        parts += [ArchivePart(file=file, part=part, parts=count) for part in range(count)]
    return sorted(parts, key=lambda part: -part.size)


def read_part(part: ArchivePart, job: PartJob, folder: str | None = None) -> PartResult:
    """Read a part. `folder`: for temporary files. Raises LedgerError or OSError."""
    lines: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="tokentee-part-", dir=folder) as temporary:
        root = Path(temporary)
        prices = None
        if job.prices is not None:
            prices = root / "prices.toml"
            prices.write_text(job.prices)
        with on_this_machine(part.file, root) as path:
            book = PriceBook.load(str(prices) if prices else None)
            tally = _read(_local_part(part, path), job, root / "part.sqlite3", book, lines)
        packed = zstandard.compress((root / "part.sqlite3").read_bytes(), 3)
    if len(packed) > RESULT_BYTES_MAX:
        raise LedgerError(
            f"{part.file.name} holds too many exchanges for one part: cut it into smaller files"
        )
    return PartResult(ledger=packed, tally=tally, lines=tuple(lines))


def unpack(result: PartResult, path: Path) -> None:
    """Write a worker's ledger to a file."""
    with path.open("wb") as file:
        unpacked = 0
        for piece in zstandard.ZstdDecompressor().read_to_iter(result.ledger):
            unpacked += len(piece)
            if unpacked > LEDGER_BYTES_MAX:
                raise LedgerError(f"a part unpacks to more than {LEDGER_BYTES_MAX >> 30} GiB")
            file.write(piece)


def _local_part(part: ArchivePart, path: Path) -> Part:
    return Part(path=path, part=part.part, parts=part.parts, name=part.file.name)


def _read(
    part: Part, job: PartJob, ledger_path: Path, book: PriceBook, lines: list[tuple[str, str]]
) -> Tally:
    url = f"sqlite:///{ledger_path}"
    engine = db.ensure(url)
    secret.store(engine, job.secret)
    engine.dispose()
    commits = Commits()
    # No threads beside the writer: the target has its own sums and budgets.
    ledger = Ledger(
        ledger_path,
        shown_url=url,
        node=job.node,
        price=book.price,
        on_commit=commits.on_commit,
        log=lambda level, line: lines.append((level, line)),
    )
    ledger.start()
    known = KnownExchanges(url)
    try:
        replay = Replay(
            ledger,
            node=job.node,
            secret=job.secret,
            commits=commits,
            lookup=known.settled,
            url=job.url,
        )
        replay.read(part)
        replay.finish()
    finally:
        known.close()
        ledger.close(CLOSE_SECONDS_MAX)
    _empty_wal(url)
    tally = replay.tally
    # Messages use the caller's name of the file.
    copy, name = str(part.path), part.name or ""
    tally.unreadable = [
        replace(one, where=one.where.replace(copy, name, 1)) for one in tally.unreadable
    ]
    return tally


def _empty_wal(url: str) -> None:
    """Move the WAL into the ledger, so that it is one file."""
    engine = db.open_existing(url)
    pooled = engine.raw_connection()
    try:
        connection = pooled.driver_connection
        assert connection is not None
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy, "no other connection has the ledger of a part open"
    finally:
        pooled.close()
        engine.dispose()
