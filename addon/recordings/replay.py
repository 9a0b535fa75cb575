"""Edge. `tokentee replay`: meters recorded exchanges and writes them to the ledger.

Entries are read in batches. A query finds the entries of a batch that the ledger has; they are
counted as known and not parsed. The others are parsed, metered and settled, and the next batch is
read while the writer commits. Reading the same material again adds nothing: an exchange keeps its
id, or gets one derived from what was recorded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from addon.metering.troubles import place_of
from addon.recordings.files import entries
from addon.recordings.formats.recorded import (
    Entry,
    Item,
    Recorded,
    Skipped,
    Unreadable,
    Why,
    id_in_version_0_1,
)
from ledger.model.exchange import Exchange, Outcome
from ledger.model.reading import Reading
from ledger.store.writing.commits import Commits
from ledger.store.writing.jobs import Receipt
from ledger.store.writing.writer import Ledger

if TYPE_CHECKING:
    from addon.metering.settlement import Settled

IN_FLIGHT_MAX = 2_000
"""Exchanges queued for the writer and not committed yet: some batches, a few MB."""
BATCH_MAX = 500
"""Entries per query to the ledger."""
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a batch before it is parsed; each byte takes about three when parsed."""
UNREADABLE_MAX = 1_000
"""Faults with a stored text; all are counted."""

type Lookup = Callable[[Sequence[str]], dict[str, str]]
"""The settled exchanges in the ledger with these ids: their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file, or one of several equal shares of its entries."""

    path: Path
    part: int = 0
    parts: int = 1
    name: str | None = None
    """The file's name in rows, if it differs from its path."""


@dataclass(slots=True)
class Tally:
    """The result of a replay."""

    new: int = 0
    """Exchanges that were added to the ledger."""
    known: int = 0
    """Exchanges that the ledger had."""
    foreign: int = 0
    """Exchanges that are not LLM calls."""
    refused: int = 0
    """Readings that the ledger refused."""
    skipped: Counter[Why] = field(default_factory=Counter)
    faults: int = 0
    """Number of entries that could not be read."""
    unreadable: list[Unreadable] = field(default_factory=list)
    """The first of these entries, and files of another kind."""
    by_dialect: Counter[tuple[str, Outcome]] = field(default_factory=Counter)

    def add_unreadable(self, item: Unreadable) -> None:
        """Count an entry that cannot be read."""
        self.faults += not item.is_other_kind
        if len(self.unreadable) < UNREADABLE_MAX:
            self.unreadable.append(item)

    def add(self, other: Tally) -> None:
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


class Replay:
    """Reads files into one ledger."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        node: str,
        secret: bytes = b"",
        commits: Commits,
        lookup: Lookup,
        url: str | None = None,
        advance: Callable[[Path, int], None] = lambda _path, _read_bytes: None,
    ) -> None:
        self.tally = Tally()
        self._ledger = ledger
        self._node = node
        self._secret = secret
        self._commits = commits
        self._lookup = lookup
        self._url = url
        self._advance = advance
        self._metered: list[tuple[Exchange, Reading]] = []
        """Metered exchanges that are not queued yet."""
        self._in_flight: deque[tuple[Receipt, Exchange]] = deque()
        self._ids: set[str] = set()
        """Ids of the metered exchanges and of those in flight."""

    def read(self, part: Part) -> None:
        """Meter the exchanges of a file that the ledger lacks, and queue them for the writer."""
        found = entries(part.path, url=self._url, part=part.part, parts=part.parts)
        for batch in _batches(found):
            self._read_batch(batch, part.name or str(part.path.resolve()))
            self._advance(part.path, batch[-1].read_bytes)

    def finish(self) -> None:
        """Wait until everything that was queued is committed or refused."""
        self._collect(0)

    def _read_batch(self, batch: Sequence[Entry], file: str) -> None:
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
                self._take(item, file)
        for item in self._without_known(derived):
            self._take(item, file)
        self._queue_metered()

    def _known(self, ids: Sequence[str]) -> Set[str]:
        found = self._lookup(ids).keys() if ids else set()
        return {*found, *(one for one in ids if one in self._ids)} if self._ids else found

    def _without_known(self, items: Sequence[Recorded]) -> Iterator[Recorded]:
        """The exchanges without an id of their own that the ledger has under neither of their two
        derived ids."""
        if not items:
            return
        older = {item.id: id_in_version_0_1(item) for item in items}
        found = self._lookup([*older, *older.values()])
        for item in items:
            before = found.get(older[item.id])
            is_older = before is not None and item.path.partition("?")[0].startswith(before)
            if item.id in found or item.id in self._ids or is_older:
                self.tally.known += 1
            else:
                yield item

    def _take(self, item: Item, file: str) -> None:
        if isinstance(item, Unreadable):
            self.tally.add_unreadable(item)
            return
        if isinstance(item, Skipped):
            self.tally.skipped[item.why] += 1
            return
        if item.id in self._ids:
            self.tally.known += 1  # twice in one batch
            return
        try:
            settled = self._meter(item)
        except Exception as error:  # noqa: BLE001  # one exchange must not end the reading of all
            why = f"cannot be metered ({type(error).__name__} in {place_of(error)}): report it"
            self.tally.add_unreadable(Unreadable(item.where, why))
            return
        if settled is None:
            self.tally.foreign += 1
            return
        if item.is_session:
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
        from addon.metering.opening import Rules
        from addon.recordings import metered

        return partial(metered.meter, rules=Rules(node=self._node, secret=self._secret))

    def _queue_metered(self) -> None:
        """Queue a batch at once. The writer writes what it finds: one by one, it would write many
        small batches, each with an fsync."""
        for exchange, reading in self._metered:
            self._in_flight.append((self._ledger.settle(exchange, reading), exchange))
        self._metered.clear()
        self._collect(IN_FLIGHT_MAX)

    def _collect(self, left_max: int) -> None:
        """Count resolved receipts until at most this many are in flight."""
        while len(self._in_flight) > left_max:
            while self._in_flight and _is_resolved(self._in_flight[0][0]):
                receipt, exchange = self._in_flight.popleft()
                self._ids.discard(receipt.exchange_id)
                self._count(receipt, exchange)
            if len(self._in_flight) > left_max:
                self._commits.wait()

    def _count(self, receipt: Receipt, exchange: Exchange) -> None:
        if not receipt.committed:
            self.tally.refused += 1
            why = f"exchange {exchange.id} is not in the ledger: {receipt.error}"
            self.tally.unreadable.append(Unreadable(exchange.capture or "", why))
            return
        assert exchange.outcome is not None
        self.tally.new += 1
        self.tally.by_dialect[exchange.dialect, exchange.outcome] += 1


def _is_resolved(receipt: Receipt) -> bool:
    return receipt.committed or receipt.error is not None


def _batches(found: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in found:
        batch.append(entry)
        size += entry.size
        if len(batch) >= BATCH_MAX or size >= BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
