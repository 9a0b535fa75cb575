"""Edge (network, processes). `tokentee replay --dask`: an archive read by many machines.

    this process ──parts──▶ dask scheduler ──▶ workers: each reads a part into a ledger of its own
                 ◀──ledgers─────────────────── and returns it; this process merges one at a time

If a worker dies, the scheduler gives its part to another one. This process merges a part once, when
its whole ledger has arrived. A repeated replay of the same archive skips merged exchanges, so an
interrupted replay can be run again.

Workers need the same version of tokentee. They receive the secret of the key fingerprints with
their parts: use a scheduler with TLS (`tls://`) outside of a trusted network.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import zstandard

from addon.recordings.files import ArchiveFile, ArchivePart, on_this_machine, parts_of
from addon.recordings.formats.recorded import Unreadable
from addon.recordings.replay import CLOSE_SECONDS_MAX, ReplayJob, ReplayTally, opened, own_node
from ledger import recording
from ledger.maintenance.partial import PartsMerger
from ledger.model.errors import LedgerError
from ledger.reports.progress import Advance
from ledger.settings import small_files
from ledger.store import db, secret
from ledger.store.writing.trouble import Log
from ledger.text.hints import missing_extra

LOCAL = "local"
"""The address that means workers on this machine."""
CONNECT_SECONDS_MAX = 20
WAITING_PER_THREAD = 2
"""Parts submitted per thread of the workers: one is read, one waits. So the number of ledgers that
wait to be merged is bounded, too."""
PART_RETRIES = 2
"""How often a part that failed with an error is retried; usually it is a network error. If a worker
died, dask retries its part `distributed.scheduler.allowed-failures` times."""


def replay_on_dask(
    address: str,
    job: ReplayJob,
    files: Sequence[ArchiveFile],
    *,
    workers: int | None,
    log: Log,
    advance: Advance,
) -> ReplayTally:
    """Read the files on a dask cluster, or for `local` with this many processes here."""
    with cluster_client(address, workers) as client:
        return replay_with_client(client, job, files, log=log, advance=advance)


def replay_with_client(
    client: Any, job: ReplayJob, files: Sequence[ArchiveFile], *, log: Log, advance: Advance
) -> ReplayTally:
    """Read the files with the workers of a `distributed.Client`; returns the result."""
    # The target is created or migrated before anything is read.
    node = own_node()
    ledger = recording.open_ledger(job.ledger_url, node=node, log=log)
    ledger.close(CLOSE_SECONDS_MAX)
    prices = small_files.read_text(Path(job.prices), "price file") if job.prices else None
    part_job = PartJob(node=node, secret=ledger.secret, url=job.url, prices=prices)
    parts = parts_of(files, part_bytes=PART_BYTES, parts_max=PARTS_MAX)
    merger = PartsMerger(job.ledger_url)
    tally = ReplayTally()
    read_bytes = 0
    try:
        for part, result in _results(client, parts, part_job):
            if isinstance(result, PartResult):
                _merge(merger, result, tally, part.file.name)
                for level, line in result.lines:
                    log(level, line)
            else:
                tally.add_unread(Unreadable(part.file.name, result))
            read_bytes += part.size
            advance(read_bytes, f"({_threads(client)} threads)")
    finally:
        merger.close(log=log)
    return tally


@contextmanager
def cluster_client(address: str, workers: int | None) -> Iterator[Any]:
    """A client of a scheduler by its address, or of local workers that are started here."""
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise LedgerError(missing_extra(error) or str(error)) from error
    if address == LOCAL:
        with (
            distributed.LocalCluster(
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",  # None means port 8787, which may be in use
                silence_logs=logging.CRITICAL,  # failures are reported at the end, one line each
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS_MAX)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise LedgerError(
            f"--dask {address}: no scheduler answers there ({error}); give its address, such as "
            "tcp://HOST:8786, or local"
        ) from error
    with client:
        yield client


def _results(
    client: Any, parts: Sequence[ArchivePart], job: PartJob
) -> Iterator[tuple[ArchivePart, PartResult | str]]:
    """Each part with its result, or with the reason why there is none; in the order of arrival."""
    import distributed

    waiting = iter(parts)
    submitted: dict[str, ArchivePart] = {}
    results = distributed.as_completed()

    def submit_some(count: int) -> None:
        for _ in range(count):
            part = next(waiting, None)
            if part is None:
                return
            future = client.submit(_read_part, part, job, pure=False, retries=PART_RETRIES)
            submitted[future.key] = part
            results.add(future)

    submit_some(WAITING_PER_THREAD * _threads(client))
    while submitted:
        future = next(results)
        part = submitted.pop(future.key)
        try:
            result: PartResult | str = future.result()
        except Exception as error:  # noqa: BLE001  # a worker may raise any error; the others go on
            result = _why(error)
        # The worker may free the ledger now.
        future.release()
        submit_some(1)
        yield part, result


def _why(error: Exception) -> str:
    if type(error).__name__ == "KilledWorker":
        return "its workers died while they read it, several times over: are they out of memory?"
    if isinstance(error, ModuleNotFoundError):
        return f"a worker lacks {error.name}: install the same tokentee there"
    return f"a worker could not read it: {type(error).__name__}: {error}"[:300]


def _merge(merger: PartsMerger, result: PartResult, tally: ReplayTally, name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tokentee-merge-") as temporary:
        path = Path(temporary) / "part.sqlite3"
        unpacked = 0
        with path.open("wb") as file:
            for piece in zstandard.ZstdDecompressor().read_to_iter(result.ledger):
                unpacked += len(piece)
                if unpacked > LEDGER_BYTES_MAX:
                    raise LedgerError(f"a part unpacks to more than {LEDGER_BYTES_MAX >> 30} GiB")
                file.write(piece)
        merged = merger.merge(path)
    read = result.tally  # the worker counted against its own ledger
    read.new = merged.new.total()
    read.by_dialect = merged.new
    read.known += merged.known
    for one in merged.refused:
        read.add_refused(one.key[1], name, one.error)
    tally.add(read)


def _threads(client: Any) -> int:
    """Threads of the current workers; one while there are none yet."""
    threads: dict[str, int] = client.nthreads()
    return max(1, sum(threads.values()))


# Reads one part of an archive into a ledger of its own; runs on any worker.
#
# A worker has neither the target ledger nor its other parts. It reads its part into a SQLite ledger
# in a temporary folder, with the meter and the writer of every other replay, and returns that file,
# compressed. No part is visible before it is complete, so a worker may die at any time.


PART_BYTES = 64 * 1024 * 1024
"""A larger local file is read in parts. This much of gzipped captures fills a ledger of some 200
MB, compressed 30 MB, which the caller holds in memory when it arrives."""
PARTS_MAX = 64
"""Parts of one file: each part skips the others' entries, at some 400 MB/s."""
RESULT_BYTES_MAX = 512 * 1024 * 1024
"""A compressed ledger that a worker may send."""
LEDGER_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""The largest ledger that is unpacked from such a result."""


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
    tally: ReplayTally
    lines: list[tuple[str, str]]
    """Level and text of each log line."""


def _read_part(part: ArchivePart, job: PartJob) -> PartResult:
    """Read a part on a worker. Temporary files are in the worker's own folder, which is cleared if
    it dies. Raises LedgerError or OSError."""
    from distributed import get_worker

    lines: list[tuple[str, str]] = []
    folder = get_worker().local_directory
    with tempfile.TemporaryDirectory(prefix="tokentee-part-", dir=folder) as temporary:
        root = Path(temporary)
        prices = None
        if job.prices is not None:
            prices = root / "prices.toml"
            prices.write_text(job.prices)
        ledger = root / "part.sqlite3"
        url = f"sqlite:///{ledger}"
        engine = db.ensure(url)
        secret.store(engine, job.secret)
        engine.dispose()
        own = ReplayJob(ledger_url=url, url=job.url, prices=str(prices) if prices else None)
        with on_this_machine(part.file, root) as path:
            with opened(
                own,
                log=lambda level, line: lines.append((level, line)),
                node=job.node,
                has_companions=False,  # the target has its own sums and budgets
            ) as replay:
                replay.read(part, path)
            tally = replay.tally
            # Messages use the caller's name of the file.
            tally.unreadable = [
                replace(one, where=one.where.replace(str(path), part.file.name, 1))
                for one in tally.unreadable
            ]
        _empty_wal(url)
        packed = zstandard.compress(ledger.read_bytes(), 3)
    if len(packed) > RESULT_BYTES_MAX:
        raise LedgerError(
            f"{part.file.name} holds too many exchanges for one part: cut it into smaller files"
        )
    return PartResult(ledger=packed, tally=tally, lines=lines)


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
