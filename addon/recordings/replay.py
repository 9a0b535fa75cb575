"""Edge. `tokentee replay`: meters recorded exchanges and writes them to the ledger.

Entries are read in batches. A query finds the entries of a batch that the ledger has; they are
counted as known and not parsed. The others are parsed, metered and settled, and the next batch is
read while the writer commits. Reading the same material again adds nothing: an exchange keeps its
id, or gets one derived from what was recorded.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from addon.recordings.files import (
    UNREADABLE_MAX,
    ArchiveFile,
    ArchivePart,
    EntryCounts,
    entries,
    parts_of,
)
from addon.recordings.formats.recorded import Item, Recorded, RecordedEntry, Unreadable
from ledger import recording
from ledger.maintenance.known import KnownExchanges
from ledger.model.errors import named
from ledger.model.exchange import Exchange, Outcome, Reading
from ledger.store.processes.supervision import Log
from ledger.store.writing.batches import Price
from ledger.store.writing.incoming import Commits, Receipt

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.sharedctypes import Synchronized

    from addon.metering.settlement import Settled
    from ledger.pricing.prices import PriceBook

IN_FLIGHT_MAX = 2_000
"""Exchanges queued for the writer and not committed yet: some batches, a few MB."""
BATCH_MAX = 500
"""Entries per query to the ledger."""
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a batch before it is parsed; each byte takes about three when parsed."""

type Advance = Callable[[ArchivePart, int], None]
"""Called with a part, and how many bytes of it were read."""

type Lookup = Callable[[Sequence[str]], dict[str, str]]
"""The settled exchanges in the ledger with these ids: their paths."""


@dataclass(slots=True)
class ReplayTally(EntryCounts):
    """The result of a replay."""

    new: int = 0
    """Exchanges that were added to the ledger."""
    known: int = 0
    """Exchanges that the ledger had."""
    refused: int = 0
    """Readings that the ledger refused."""
    by_dialect: Counter[tuple[str, Outcome]] = field(default_factory=Counter)

    def add(self, other: ReplayTally) -> None:
        """Add the counts of another process."""
        self.new += other.new
        self.known += other.known
        self.foreign += other.foreign
        self.refused += other.refused
        self.faults += other.faults
        self.skipped.update(other.skipped)
        self.by_dialect.update(other.by_dialect)
        self.unreadable += other.unreadable[: UNREADABLE_MAX - len(self.unreadable)]

    @property
    def read(self) -> int:
        """All exchanges that were found, with any result."""
        return self.new + self.known + self.foreign + self.refused + self.skipped.total()


class Target(Protocol):
    """Where metered exchanges go: the ledger, or a part that goes to another process."""

    @property
    def secret(self) -> bytes:
        """Of the key fingerprints."""

    def settle(self, exchange: Exchange, reading: Reading) -> Receipt:
        """Take one; the receipt says when it is written."""


@dataclass(kw_only=True)
class Replay:
    """Reads files into one ledger."""

    ledger: Target
    node: str
    commits: Commits
    lookup: Lookup
    settle_imported: Callable[[Sequence[Exchange]], None] = lambda _new: None
    """What was imported of these new exchanges does not count any more."""
    url: str | None = None
    advance: Advance = lambda _part, _read_bytes: None
    tally: ReplayTally = field(default_factory=ReplayTally)
    _new: list[Exchange] = field(default_factory=list)
    """Exchanges that the ledger has now, and whose imports it may have."""
    _metered: list[tuple[Exchange, Reading]] = field(default_factory=list)
    """Metered exchanges that are not queued yet."""
    _in_flight: deque[tuple[Receipt, Exchange]] = field(default_factory=deque)
    _ids: set[str] = field(default_factory=set)
    """Ids of the metered exchanges and of those in flight."""

    def read(self, part: ArchivePart, copy: Path | None = None) -> None:
        """Meter the exchanges of a part that the ledger lacks, and queue them for the writer.
        `copy`: of a remote file."""
        path = copy or Path(part.file.name)
        name = str(path.resolve()) if part.file.is_local else part.file.name
        found = entries(path, url=self.url, part=part.part, parts=part.parts)
        for batch in _batches(found):
            known = self._known([entry.id for entry in batch if entry.id])
            derived: list[Recorded] = []
            for entry in batch:
                if entry.id is not None and entry.id in known:
                    self.tally.known += 1
                    continue
                item = entry.item()
                if isinstance(item, Recorded) and not item.has_own_id:
                    derived.append(item)
                else:
                    self._take(item, name)
            known = self._known([item.id for item in derived])
            for item in derived:
                if item.id in known:
                    self.tally.known += 1
                else:
                    self._take(item, name)
            self._queue()
            self.advance(part, batch[-1].read_bytes // part.parts)

    def take_metered(self, metered: Sequence[tuple[Exchange, Reading]]) -> None:
        """Queue what another process has metered, but for what the ledger has."""
        known = self._known([exchange.id for exchange, _ in metered])
        for exchange, reading in metered:
            if exchange.id in known or exchange.id in self._ids:
                self.tally.known += 1
            else:
                self._metered.append((exchange, reading))
                self._ids.add(exchange.id)
        self._queue()

    def _queue(self) -> None:
        # Queued at once. The writer writes what it finds: one by one, it would write many small
        # batches, each with an fsync.
        for exchange, reading in self._metered:
            self._in_flight.append((self.ledger.settle(exchange, reading), exchange))
        self._metered.clear()
        self.collect(IN_FLIGHT_MAX)

    def _known(self, ids: Sequence[str]) -> Set[str]:
        found = self.lookup(ids).keys() if ids else set()
        return {*found, *(one for one in ids if one in self._ids)} if self._ids else found

    def _take(self, item: Item, file: str) -> None:
        if not isinstance(item, Recorded):
            self.tally.add_unread(item)
            return
        if item.id in self._ids:
            self.tally.known += 1  # twice in one batch
            return
        try:
            settled = self._meter(item)
        except Exception as error:  # noqa: BLE001  # one exchange must not end the reading of all
            why = f"Tokentee failed to read it ({named(error)}): please report it"
            self.tally.add_unread(Unreadable(item.where, why))
            return
        if settled is None:
            self.tally.foreign += 1
            return
        if item.is_session or [one.exchange.id for one in settled] != [item.id]:
            ids = [one.exchange.id for one in settled]
            known = self._known(ids)
            self.tally.known += sum(one in known for one in ids)
            settled = [one for one in settled if one.exchange.id not in known]
        for exchange, reading in settled:
            kept = replace(exchange, capture=f"{file}#{item.name}")
            self._metered.append((kept, reading))
            self._ids.add(exchange.id)

    @cached_property
    def _meter(self) -> Callable[[Recorded], list[Settled] | None]:
        """Imported for the first exchange that the ledger lacks: a third of the CPU time of a
        reading that finds all of them known (measured)."""
        from addon.metering.opening import RunRules
        from addon.recordings import metered
        from ledger.settings import names_file

        rules = RunRules(
            node=self.node,
            secret=self.ledger.secret,
            keeps_segments=True,
            billing=names_file.load(None).billing_of,
        )
        return partial(metered.meter, rules=rules)

    def collect(self, left_max: int) -> None:
        """Count resolved receipts until at most this many are in flight."""
        while len(self._in_flight) > left_max:
            while self._in_flight and self._in_flight[0][0].is_resolved:
                receipt, exchange = self._in_flight.popleft()
                self._ids.discard(receipt.exchange_id)
                if not receipt.committed:
                    self.tally.refused += 1
                    if len(self.tally.unreadable) < UNREADABLE_MAX:
                        why = f"exchange {exchange.id} is not in the ledger: {receipt.error}"
                        self.tally.unreadable.append(Unreadable(exchange.capture or "", why))
                    continue
                assert exchange.outcome is not None
                self.tally.new += 1
                self.tally.by_dialect[exchange.dialect, exchange.outcome] += 1
                self._new.append(exchange)
            if len(self._in_flight) > left_max:
                self.commits.wait()
        if len(self._new) >= BATCH_MAX or not left_max:
            self._settle_new()

    def end(self) -> None:
        """Called when the ledger is closed. If the replay was interrupted, what it has committed is
        settled here: the next one knows these exchanges, and leaves them out."""
        self._new += [exchange for receipt, exchange in self._in_flight if receipt.committed]
        self._in_flight.clear()
        self._settle_new()

    def _settle_new(self) -> None:
        if self._new:
            self.settle_imported(self._new)
            self._new.clear()


def _batches(found: Iterable[RecordedEntry]) -> Iterator[list[RecordedEntry]]:
    batch: list[RecordedEntry] = []
    size = 0
    for entry in found:
        batch.append(entry)
        size += entry.size
        if len(batch) >= BATCH_MAX or size >= BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# `--jobs N`: several processes read into one ledger.
#
# All of them read a large file, each every N-th entry; small files are divided among them. The
# process that starts the others is one of them: it would have nothing else to do. Each process has
# its own writer, like several proxies, and SQLite or the spool orders the writes.


REPLAY_CLOSE_SECONDS_MAX = 60.0
"""No stream waits here, so a slow disk may take this long."""
JOBS_MAX = 64
"""One SQLite file can store as fast as some five processes read short exchanges."""
PART_BYTES = 2 * 1024 * 1024
"""A larger file is read in parts, at most one for each process."""
PROGRESS_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """The input of every process."""

    ledger_url: str
    url: str | None
    prices: str | None


_read_bytes: Synchronized[int] | None = None
"""Shared by all processes; set once in each process at its start."""


def replay_here(
    job: ReplayJob, files: Sequence[Path], *, log: Log, advance: Callable[[Path, int], None]
) -> ReplayTally:
    """Read the files in this process. `advance` is called with a file and the bytes read."""

    def show(part: ArchivePart, read_bytes: int) -> None:
        advance(Path(part.file.name), read_bytes)

    with recording.few_collections(), opened(job, log=log, advance=show) as replay:
        for path in files:
            replay.read(ArchivePart(file=ArchiveFile.local(path)))
    return replay.tally


def replay_with(
    jobs: int,
    job: ReplayJob,
    files: Sequence[Path],
    *,
    log: Log,
    advance: Callable[[int, str], None],
) -> ReplayTally:
    """Read the files with several processes, of which this is one; returns the sum of their
    counts."""
    # The imports cost as much CPU time as a hundred exchanges; one process needs none of them.
    import multiprocessing
    from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait

    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    # Each part goes to the process with the least bytes so far.
    shares: list[list[ArchivePart]] = [[] for _ in range(jobs)]
    loads = [0] * jobs
    local = [ArchiveFile.local(path) for path in files]
    for part in parts_of(local, part_bytes=PART_BYTES, parts_max=jobs):
        least = loads.index(min(loads))
        shares[least].append(part)
        loads[least] += part.size + 1
    own, *others = filter(None, shares)
    waiting: set[Future[tuple[ReplayTally, list[tuple[str, str]]]]] = set()

    def show() -> None:
        advance(counter.value, f"({jobs} processes)")
        for future in waiting:
            if future.done():
                future.result()  # its error ends the replay at once

    # The others start when the ledger is open here: otherwise each would try to migrate an older
    # one, and they would wait for each other. It is closed when they have ended, because this
    # process makes the sums of all: each other one would read the days of all others again.
    with (
        recording.few_collections(),
        opened(job, log=log, advance=_adding(counter, then=show)) as replay,
        ProcessPoolExecutor(
            max(1, len(others)), mp_context=context, initializer=_begin, initargs=(counter,)
        ) as pool,
    ):
        waiting.update(pool.submit(_replay_share, job, share) for share in others)
        for part in own:
            replay.read(part)
        replay.collect(0)
        left = waiting
        while left:
            _, left = wait(left, PROGRESS_SECONDS, FIRST_EXCEPTION)
            show()
        for future in waiting:
            found, lines = future.result()
            replay.tally.add(found)
            for level, line in lines:
                log(level, line)
    return replay.tally


def _begin(counter: Synchronized[int]) -> None:
    global _read_bytes  # noqa: PLW0603  # a pool process has no other place for it
    _read_bytes = counter


def _replay_share(
    job: ReplayJob, parts: Sequence[ArchivePart]
) -> tuple[ReplayTally, list[tuple[str, str]]]:
    assert _read_bytes is not None
    lines: list[tuple[str, str]] = []
    log: Log = lambda level, line: lines.append((level, line))  # noqa: E731
    show = _adding(_read_bytes)
    with (
        recording.few_collections(),
        opened(job, log=log, advance=show, has_companions=False) as replay,
    ):
        for part in parts:
            replay.read(part)
    return replay.tally, lines


def _adding(counter: Synchronized[int], *, then: Callable[[], None] = lambda: None) -> Advance:
    """A function that adds what a process has read of its parts."""
    done: dict[ArchivePart, int] = {}

    def add(part: ArchivePart, read_bytes: int) -> None:
        with counter.get_lock():
            counter.value += read_bytes - done.get(part, 0)
        done[part] = read_bytes
        then()

    return add


@contextmanager
def opened(
    job: ReplayJob,
    *,
    log: Log,
    advance: Advance = lambda _part, _read_bytes: None,
    has_companions: bool = True,
) -> Iterator[Replay]:
    """A replay into the ledger of a job, which is closed at the end of the block; then all is
    committed or refused."""
    node = f"replay/{os.getpid()}/{int(time.time())}"
    commits, price = Commits(), _price_of(job)
    ledger = recording.open_ledger(
        job.ledger_url,
        node=node,
        price=price,
        on_commit=commits.on_commit,
        log=log,
        has_companions=has_companions,
        is_bulk=True,
    )
    with closing(KnownExchanges(job.ledger_url)) as known:

        def settle_imported(new: Sequence[Exchange]) -> None:
            from ledger.maintenance import imported  # imports SQLAlchemy

            imported.settle_in(known.engines, new, price)

        replay = Replay(
            ledger=ledger,
            node=node,
            commits=commits,
            lookup=known.settled,
            settle_imported=settle_imported,
            url=job.url,
            advance=advance,
        )
        try:
            yield replay
            replay.collect(0)
        finally:
            ledger.close(REPLAY_CLOSE_SECONDS_MAX)
            replay.end()


def _price_of(job: ReplayJob) -> Price:
    """The prices, imported for the first exchange that the ledger lacks. LedgerError at once if the
    operator's own file has a fault."""

    @cache
    def book() -> PriceBook:
        from ledger.pricing.prices import PriceBook

        return PriceBook.load(job.prices)

    if job.prices is not None:
        book()
    return lambda exchange, reading: book().price(exchange, reading)
