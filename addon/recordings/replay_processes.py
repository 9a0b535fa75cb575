"""Edge (processes). `tokentee replay --jobs N`: several processes read into one ledger.

All of them read a large file, each every N-th entry; small files are divided among them. The
process that starts the others is one of them: it would have nothing else to do. Each process has
its own writer, like several proxies, and SQLite or the spool orders the writes.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from addon.recordings.replay import Part, Replay, Tally
from ledger import recording
from ledger.maintenance.known import KnownExchanges
from ledger.model.charge import Charge
from ledger.model.exchange import Exchange
from ledger.model.reading import Reading
from ledger.store.writing.batches import Price

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.sharedctypes import Synchronized

    from ledger.pricing.prices import PriceBook
from ledger.store.writing.commits import Commits

CLOSE_SECONDS_MAX = 60.0
"""No stream waits here, so a slow disk may take this long."""
JOBS_MAX = 64
"""One SQLite file can store as fast as some five processes read short exchanges."""
SHARED_BYTES_MIN = 8 * 1024 * 1024
"""Every process reads a part of a file that is larger than this."""
PROGRESS_SECONDS = 0.2
YOUNG_OBJECTS_MAX = 100_000
"""Objects between two collections of garbage; Python's own default is 700. All that is in flight
has about half as many, and reference counts free it, so that nearly every collection would walk it
for nothing: a fifth of a replay's CPU (measured)."""

type Log = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The input of every process."""

    ledger_url: str
    url: str | None
    prices: str | None


_read_bytes: Synchronized[int] | None = None
"""Shared by all processes; set once in each process at its start."""


def parts_of(files: Sequence[Path], jobs: int) -> list[Part]:
    """The parts to read, the largest first, so that no process starts a long one at the end."""
    sizes = {path: path.stat().st_size for path in files}
    parts = []
    for path in sorted(files, key=lambda path: -sizes[path]):
        count = jobs if sizes[path] >= SHARED_BYTES_MIN else 1
        parts += [Part(path=path, part=part, parts=count) for part in range(count)]
    return parts


def replay_here(
    job: Job, files: Sequence[Path], *, log: Log, advance: Callable[[Path, int], None]
) -> Tally:
    """Read the files in this process. `advance` is called with a file and the bytes read."""
    with _few_collections(), _opened(job, log=log, advance=advance) as replay:
        for path in files:
            replay.read(Part(path=path))
    return replay.tally


def replay_with(
    jobs: int, job: Job, files: Sequence[Path], *, log: Log, advance: Callable[[int, str], None]
) -> Tally:
    """Read the files with several processes, of which this is one; returns the sum of their
    counts."""
    # The imports cost as much CPU time as a hundred exchanges; one process needs none of them.
    import multiprocessing
    from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait

    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    own, *others = _shares(parts_of(files, jobs), jobs)
    waiting: set[Future[tuple[Tally, list[tuple[str, str]]]]] = set()

    def show() -> None:
        advance(counter.value, f"({jobs} processes)")
        for future in waiting:
            if future.done():
                future.result()  # its error ends the replay at once

    # The others start when the ledger is open here: otherwise each would try to migrate an older
    # one, and they would wait for each other. It is closed when they have ended, because this
    # process makes the sums of all: each other one would read the days of all others again.
    with (
        _few_collections(),
        _opened(job, log=log, advance=_adding(counter, own, then=show)) as replay,
        ProcessPoolExecutor(
            max(1, len(others)), mp_context=context, initializer=_begin, initargs=(counter,)
        ) as pool,
    ):
        waiting.update(pool.submit(_replay_share, job, share) for share in others)
        for part in own:
            replay.read(part)
        replay.finish()
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


def _shares(parts: Sequence[Part], jobs: int) -> list[list[Part]]:
    """The share of each process: each part goes to the process with the least bytes so far."""
    shares: list[list[Part]] = [[] for _ in range(jobs)]
    loads = [0] * jobs
    for part in parts:
        least = loads.index(min(loads))
        shares[least].append(part)
        loads[least] += part.path.stat().st_size // part.parts + 1
    return [share for share in shares if share]


def _begin(counter: Synchronized[int]) -> None:
    global _read_bytes  # noqa: PLW0603  # a pool process has no other place for it
    _read_bytes = counter


def _replay_share(job: Job, parts: Sequence[Part]) -> tuple[Tally, list[tuple[str, str]]]:
    assert _read_bytes is not None
    lines: list[tuple[str, str]] = []
    log: Log = lambda level, line: lines.append((level, line))  # noqa: E731
    show = _adding(_read_bytes, parts)
    with _few_collections(), _opened(job, log=log, advance=show, makes_sums=False) as replay:
        for part in parts:
            replay.read(part)
    return replay.tally, lines


def _adding(
    counter: Synchronized[int], parts: Sequence[Part], *, then: Callable[[], None] = lambda: None
) -> Callable[[Path, int], None]:
    """A function that adds a process's share of the bytes that it read of a file."""
    done: dict[Path, int] = {}
    count = {part.path: part.parts for part in parts}

    def add(path: Path, read_bytes: int) -> None:
        share = read_bytes // count[path]
        with counter.get_lock():
            counter.value += share - done.get(path, 0)
        done[path] = share
        then()

    return add


@contextmanager
def _few_collections() -> Iterator[None]:
    """Look for garbage seldom, and never among what was loaded before: it stays until the process
    ends, which would otherwise walk it twice more."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _opened(
    job: Job, *, log: Log, advance: Callable[[Path, int], None], makes_sums: bool = True
) -> Iterator[Replay]:
    """A replay into a ledger that is open during the block; at its end all is committed or
    refused."""
    node = _node()
    commits = Commits()
    ledger = recording.open_ledger(
        job.ledger_url,
        node=node,
        price=_price_of(job),
        on_commit=commits.on_commit,
        log=log,
        makes_sums=makes_sums,
    )
    known = KnownExchanges(job.ledger_url)
    try:
        replay = Replay(
            ledger,
            node=node,
            secret=ledger.secret,
            commits=commits,
            lookup=known.settled,
            url=job.url,
            advance=advance,
        )
        yield replay
        replay.finish()
    finally:
        ledger.close(CLOSE_SECONDS_MAX)
        known.close()


class _PublishedPrices:
    """The published prices, imported for the first exchange that the ledger lacks."""

    def price(self, exchange: Exchange, reading: Reading) -> tuple[Charge, ...]:
        """The charges of a reading."""
        return self._book.price(exchange, reading)

    @cached_property
    def _book(self) -> PriceBook:
        from ledger.pricing.prices import PriceBook

        return PriceBook()


def _price_of(job: Job) -> Price:
    """The prices; LedgerError if the operator's own file has a fault."""
    if job.prices is None:
        return _PublishedPrices().price
    from ledger.pricing.prices import PriceBook

    return PriceBook.load(job.prices).price


def _node() -> str:
    return f"replay/{os.getpid()}/{int(time.time())}"
