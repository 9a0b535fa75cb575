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
from pathlib import Path

from addon.metering.settlement import End
from addon.proxy import metering
from addon.proxy.live import Running, plain
from addon.proxy.opening import open_exchange
from addon.recordings.reading import Recorded, Unreadable, read
from ledger.model.records import Exchange, Outcome, Reading, Source
from ledger.store.writing.writer import Receipt

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
    running: Running,
    files: Sequence[Path],
    *,
    url: str | None,
    node: str,
    commits: Commits,
    progress: Callable[[Path], None],
) -> Tally:
    """Meter every exchange in the files and settle it in the ledger.

    `progress` is called before each file.
    """
    tally = Tally()
    for path in files:
        progress(path)
        metered = _metered(running, read(path, url=url), path, tally, node=node)
        for batch in itertools.batched(metered, IN_FLIGHT_MAX):
            receipts = [running.ledger.settle(exchange, reading) for exchange, reading in batch]
            commits.wait(len(receipts))
            tally.refused += sum(not receipt.committed for receipt in receipts)
    return tally


def _metered(
    running: Running,
    items: Iterable[Recorded | Unreadable],
    path: Path,
    tally: Tally,
    *,
    node: str,
) -> Iterable[tuple[Exchange, Reading]]:
    for item in items:
        if isinstance(item, Unreadable):
            tally.unreadable.append(item)
            continue
        read_one = meter(running, item, node=node)
        if read_one is None:
            tally.foreign += 1
            continue
        exchange, reading = read_one
        tally.metered += 1
        assert exchange.outcome is not None
        tally.by_dialect[exchange.dialect, exchange.outcome] += 1
        capture = f"{path.resolve()}#{item.name}"
        yield replace(exchange, capture=capture), reading


def meter(running: Running, item: Recorded, *, node: str) -> tuple[Exchange, Reading] | None:
    """What the meter reads from one recorded exchange; None if it is no LLM call."""
    flow = item.flow
    flow.live = False
    secret = running.ledger.secret
    live = open_exchange(running.settings, secret, flow, [], node=node, is_llm=item.is_llm)
    if live is None:
        return None
    live.opened = replace(live.opened, source=Source.REPLAY)
    if flow.response is None:
        return metering.settled(live, End.UPSTREAM_BROKE, None)
    live.status = flow.response.status_code
    headers = plain(flow.response.headers)
    live.tap = metering.tap_for(live, flow.response, headers, may_edit=False)
    if flow.response.raw_content:
        live.tap.callable(flow.response.raw_content)
    cut = flow.error is not None
    return metering.settled(live, End.UPSTREAM_BROKE if cut else End.FINISHED, None)
