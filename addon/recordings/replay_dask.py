"""Edge (network, processes). `tokentee replay --dask`: an archive read by many machines.

    this process ──parts──▶ dask scheduler ──▶ workers: each meters the exchanges of a part
                 ◀──exchanges and readings──── and returns them; this process writes them

If a worker dies, the scheduler gives its part to another one. This process writes what the ledger
does not have, so a part that comes twice adds nothing, and an interrupted replay can be run again.

Workers need the same version of tokentee. They receive the secret of the key fingerprints with
their parts: use a scheduler with TLS (`tls://`) outside of a trusted network.
"""

from __future__ import annotations

import logging
import os
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from addon.recordings.files import ArchiveFile, ArchivePart, on_this_machine, parts_of
from addon.recordings.formats.recorded import Unreadable
from addon.recordings.replay import BATCH_MAX, Replay, ReplayJob, ReplayTally, opened
from ledger.model.errors import LedgerError
from ledger.model.exchange import Exchange, Reading
from ledger.reports.progress import Advance
from ledger.settings.extras import missing_extra
from ledger.store.processes.supervision import Log
from ledger.store.writing.incoming import Commits, Receipt

LOCAL_CLUSTER = "local"
"""The address that means workers on this machine."""
SCHEDULER_SECONDS_MAX = 20
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
    import distributed

    parts = parts_of(files, part_bytes=DASK_PART_BYTES, parts_max=DASK_PARTS_MAX)
    read_bytes = 0
    with opened(job, log=log) as replay:
        part_job = PartJob(node=replay.node, secret=replay.ledger.secret, url=job.url)
        waiting = iter(parts)
        submitted: dict[str, ArchivePart] = {}
        futures = distributed.as_completed()

        def submit_some(count: int) -> None:
            for part in islice(waiting, count):
                future = client.submit(_read_part, part, part_job, pure=False, retries=PART_RETRIES)
                submitted[future.key] = part
                futures.add(future)

        submit_some(WAITING_PER_THREAD * _threads(client))
        while submitted:
            future = next(futures)
            part = submitted.pop(future.key)
            result: PartResult | None = None
            try:
                result = future.result()
            except Exception as error:  # noqa: BLE001  # a worker may raise any; the others go on
                name = type(error).__name__
                why = f"a worker could not read it: {name}: {error}"[:300]
                if name == "KilledWorker":
                    why = "its workers died while they read it, several times over: "
                    why += "are they out of memory?"
                elif isinstance(error, ModuleNotFoundError):
                    why = f"a worker lacks {error.name}: install the same tokentee there"
                replay.tally.add_unread(Unreadable(part.file.name, why))
            # The worker may free the ledger now.
            future.release()
            submit_some(1)
            if result is not None:
                for batch in result.batches():
                    replay.take_metered(batch)
                replay.tally.add(result.tally)
            read_bytes += part.size
            advance(read_bytes, f"({_threads(client)} threads)")
    return replay.tally


@contextmanager
def cluster_client(address: str, workers: int | None) -> Iterator[Any]:
    """A client of a scheduler by its address, or of local workers that are started here."""
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise LedgerError(missing_extra(error) or str(error)) from error
    if address == LOCAL_CLUSTER:
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
        client = distributed.Client(address, timeout=SCHEDULER_SECONDS_MAX)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise LedgerError(
            f"--dask {address}: no scheduler answers there ({error}); give its address, such as "
            "tcp://HOST:8786, or local"
        ) from error
    with client:
        yield client


def _threads(client: Any) -> int:
    """Threads of the current workers; one while there are none yet."""
    threads: dict[str, int] = client.nthreads()
    return max(1, sum(threads.values()))


# Meters one part of an archive; runs on any worker, which has neither the ledger nor other parts.


DASK_PART_BYTES = 16 * 1024 * 1024
"""A larger file is read in parts. This much of gzipped captures makes some 10 MB of results, which
the caller holds in memory when they arrive."""
DASK_PARTS_MAX = 256
"""Parts of one file: each part skips the others' entries, at some 400 MB/s."""
RESULT_BYTES_MAX = 512 * 1024 * 1024
"""Compressed exchanges and readings that a worker may send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartJob:
    """The input of every worker."""

    node: str
    secret: bytes = field(repr=False)
    """The secret of the ledger's key fingerprints, so that one key has one fingerprint."""
    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """What a worker metered of one part."""

    metered: list[bytes]
    """Batches of pickled exchanges and readings, each compressed. Dask itself trusts pickles of its
    workers."""
    tally: ReplayTally
    """What was not metered."""

    def batches(self) -> Iterator[list[tuple[Exchange, Reading]]]:
        """The exchanges with their readings."""
        for packed in self.metered:
            yield pickle.loads(zstandard.decompress(packed))  # noqa: S301  # as dask does


class MeteredPart:
    """Takes what is metered in the place of a ledger."""

    def __init__(self, secret: bytes, name: str) -> None:
        self.secret = secret
        self.packed: list[bytes] = []
        self._name = name
        self._batch: list[tuple[Exchange, Reading]] = []
        self._bytes = 0

    def settle(self, exchange: Exchange, reading: Reading) -> Receipt:
        """Keep it. LedgerError if the part holds too many."""
        self._batch.append((exchange, reading))
        if len(self._batch) >= BATCH_MAX:
            self.pack()
        receipt = Receipt(exchange.id)
        receipt.committed = True
        return receipt

    def pack(self) -> None:
        """Compress what was kept."""
        self.packed.append(zstandard.compress(pickle.dumps(self._batch), 3))
        self._batch = []
        self._bytes += len(self.packed[-1])
        if self._bytes > RESULT_BYTES_MAX:
            raise LedgerError(
                f"{self._name} holds too many exchanges for one part: cut it into smaller files"
            )


def _read_part(part: ArchivePart, job: PartJob) -> PartResult:
    """Meter a part on a worker. Temporary files are in the worker's own folder, which is cleared if
    it dies. Raises LedgerError or OSError."""
    from distributed import get_worker

    target = MeteredPart(job.secret, part.file.name)
    replay = Replay(
        ledger=target, node=job.node, commits=Commits(), lookup=lambda _: {}, url=job.url
    )
    folder = get_worker().local_directory
    with (
        tempfile.TemporaryDirectory(prefix="tokentee-part-", dir=folder) as temporary,
        on_this_machine(part.file, Path(temporary)) as path,
    ):
        replay.read(part, path)
    replay.collect(0)
    target.pack()
    tally = replay.tally
    tally.new = 0  # the caller counts what the ledger did not have
    tally.by_dialect.clear()
    # Messages use the caller's name of the file.
    tally.unreadable = [
        replace(one, where=one.where.replace(str(path), part.file.name, 1))
        for one in tally.unreadable
    ]
    return PartResult(metered=target.packed, tally=tally)
