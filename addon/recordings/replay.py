"""Edge. `tokentee replay`: recorded exchanges through the one meter, into the ledger.

The same opening, tap, meter and settling as live; only hooks and network are missing. Reading the
same material again adds nothing: an exchange keeps its id, or gets one made of its bytes.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from addon.metering.opening import Rules, open_exchange
from addon.metering.settlement import End, Settled
from addon.metering.troubles import Troubles
from addon.recordings import flows
from addon.recordings.reading import Recorded, Unreadable, read
from ledger.model.records import Outcome, Source
from ledger.store.writing.writer import Ledger, Receipt

IN_FLIGHT_MAX = 2_000
"""Exchanges handed to the writer and not committed yet: some batches, a few MB."""


@dataclass(slots=True)
class Tally:
    """What a replay came to."""

    metered: int = 0
    foreign: int = 0
    """Exchanges that are no LLM call."""
    refused: int = 0
    """Readings that the ledger could not take."""
    unreadable: list[Unreadable] = field(default_factory=list)
    by_dialect: Counter[tuple[str, Outcome]] = field(default_factory=Counter)


class Commits:
    """Counts the receipts that the writer has resolved, so that a replay keeps pace with it."""

    def __init__(self) -> None:
        self._resolved = threading.Semaphore(0)

    def on_commit(self, receipts: Sequence[Receipt]) -> None:
        """For `ledger.recording.open_ledger`; called on the writer's thread."""
        self._resolved.release(len(receipts))

    def wait(self, count: int) -> None:
        """Until so many more receipts are resolved; every one is, within the writer's bounds."""
        for _ in range(count):
            self._resolved.acquire()


def replay(
    ledger: Ledger,
    rules: Rules,
    files: Sequence[Path],
    *,
    url: str | None,
    commits: Commits,
    progress: Callable[[Path], None],
) -> Tally:
    """Meter every exchange in the files and settle it in the ledger.

    `progress` is called before each file.
    """
    tally = Tally()
    for path in files:
        progress(path)
        metered = _metered(rules, read(path, url=url), path, tally)
        for batch in itertools.batched(metered, IN_FLIGHT_MAX):
            receipts = [ledger.settle(exchange, reading) for exchange, reading in batch]
            commits.wait(len(receipts))
            tally.refused += sum(not receipt.committed for receipt in receipts)
    return tally


def _metered(
    rules: Rules, items: Iterable[Recorded | Unreadable], path: Path, tally: Tally
) -> Iterable[Settled]:
    for item in items:
        if isinstance(item, Unreadable):
            tally.unreadable.append(item)
            continue
        read_one = meter(item, rules)
        if read_one is None:
            tally.foreign += 1
            continue
        exchange, reading = read_one
        tally.metered += 1
        assert exchange.outcome is not None
        tally.by_dialect[exchange.dialect, exchange.outcome] += 1
        capture = f"{path.resolve()}#{item.name}"
        yield Settled(replace(exchange, capture=capture), reading)


def meter(item: Recorded, rules: Rules) -> Settled | None:
    """What the meter reads from one recorded exchange; None if it is no LLM call."""
    flow = item.flow
    exchange = open_exchange(
        flows.request_of(flow),
        rules,
        exchange_id=flow.id,
        source=Source.REPLAY,
        troubles=Troubles(),
        is_llm=item.is_llm,
    )
    if exchange is None:
        return None
    end = End.FINISHED
    if flow.response is None:
        end = End.UPSTREAM_BROKE
    else:
        response = flows.response_of(flow.response)
        tap = exchange.answer(response, edits=False, clock=_no_clock)
        if flow.response.raw_content:
            tap.callable(flow.response.raw_content)
        if flow.error is not None:
            end = End.UPSTREAM_BROKE
    now = datetime.now(UTC)
    return exchange.settle(end, cause=None, now=now, times=flows.times_of(flow))


def _no_clock() -> float:
    """Recorded bodies are read in one go: the recording times them, or nothing does."""
    return 0.0
