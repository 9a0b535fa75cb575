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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from addon.recordings.archives import ArchiveFile
from addon.recordings.formats.recorded import Unreadable
from addon.recordings.replay import Tally
from addon.recordings.replay_parts import (
    ArchivePart,
    PartJob,
    PartResult,
    parts_of,
    read_part,
    unpack,
)
from addon.recordings.replay_processes import CLOSE_SECONDS_MAX, Job, Log
from ledger import recording
from ledger.maintenance.partial import PartMerged, PartsMerger
from ledger.model.errors import LedgerError
from ledger.settings import small_files
from ledger.text.extras import missing_extra

LOCAL = "local"
"""The address that means workers on this machine."""
CONNECT_SECONDS_MAX = 20
WAITING_PER_THREAD = 2
"""Parts submitted per thread of the workers: one is read, one waits. So the number of ledgers that
wait to be merged is bounded, too."""
PART_RETRIES = 2
"""How often a part that failed with an error is retried; usually it is a network error. If a worker
died, dask retries its part `distributed.scheduler.allowed-failures` times."""

type Advance = Callable[[int, str], None]


def replay_on_dask(
    address: str,
    job: Job,
    files: Sequence[ArchiveFile],
    *,
    workers: int | None,
    log: Log,
    advance: Advance,
) -> Tally:
    """Read the files on a dask cluster, or for `local` with this many processes here."""
    with cluster_client(address, workers) as client:
        part_job = _part_job(job, log=log)
        return replay_with_client(client, job, part_job, files, log=log, advance=advance)


def replay_with_client(
    client: Any,
    job: Job,
    part_job: PartJob,
    files: Sequence[ArchiveFile],
    *,
    log: Log,
    advance: Advance,
) -> Tally:
    """Read the files with the workers of a `distributed.Client`; returns the result."""
    merger = PartsMerger(job.ledger_url)
    tally = Tally()
    read_bytes = 0
    try:
        for part, result in _results(client, parts_of(list(files)), part_job):
            if isinstance(result, PartResult):
                _merge(merger, result, tally, part.file.name)
                for level, line in result.lines:
                    log(level, line)
            else:
                tally.add_unreadable(Unreadable(part.file.name, result))
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
            future = client.submit(_read_on_worker, part, job, pure=False, retries=PART_RETRIES)
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


def _read_on_worker(part: ArchivePart, job: PartJob) -> PartResult:
    """Runs on a worker: temporary files are in the worker's own folder, which is cleared if it
    dies."""
    from distributed import get_worker

    return read_part(part, job, get_worker().local_directory)


def _why(error: Exception) -> str:
    if type(error).__name__ == "KilledWorker":
        return "its workers died while they read it, several times over: are they out of memory?"
    if isinstance(error, ModuleNotFoundError):
        return f"a worker lacks {error.name}: install the same tokentee there"
    return f"a worker could not read it: {type(error).__name__}: {error}"[:300]


def _merge(merger: PartsMerger, result: PartResult, tally: Tally, name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tokentee-merge-") as temporary:
        path = Path(temporary) / "part.sqlite3"
        unpack(result, path)
        merged = merger.merge(path)
    tally.add(_counted(result.tally, merged, name))


def _counted(read: Tally, merged: PartMerged, name: str) -> Tally:
    """The counts of a part in the target; the worker counted against its own ledger."""
    counted = Tally()
    counted.add(read)
    counted.new = merged.new.total()
    counted.by_dialect = merged.new
    counted.known = read.known + merged.known
    counted.refused = read.refused + len(merged.refused)
    for one in merged.refused:
        why = f"exchange {one.key[1]} is not in the ledger: {one.error}"
        counted.unreadable.append(Unreadable(name, why))
    return counted


def _part_job(job: Job, *, log: Log) -> PartJob:
    # The target is created or migrated before anything is read.
    node = f"replay/{os.getpid()}/{int(time.time())}"
    ledger = recording.open_ledger(job.ledger_url, node=node, log=log)
    ledger.close(CLOSE_SECONDS_MAX)
    prices = small_files.read_text(Path(job.prices), "price file") if job.prices else None
    return PartJob(node=node, secret=ledger.secret, url=job.url, prices=prices)


def _threads(client: Any) -> int:
    """Threads of the current workers; one while there are none yet."""
    threads: dict[str, int] = client.nthreads()
    return max(1, sum(threads.values()))
