"""Edge (files). Finds the rows of a ledger for recorded exchanges: for `rebuild` and `verify`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from addon.metering.opening import RunRules
from addon.recordings.files import entries
from addon.recordings.formats.recorded import Recorded, Skipped, Unreadable, Why, id_in_version_0_1
from addon.recordings.metered import meter
from ledger.maintenance.corrections import Booked
from ledger.model.errors import LedgerError
from ledger.reports.progress import rest_line

UNREADABLE_SHOWN_MAX = 10

type Find = Callable[[Sequence[str]], dict[str, Booked]]
"""The booked exchanges with these ids."""


@dataclass(slots=True)
class MatchCounts:
    """Counts of the files' entries, beside the exchanges that the ledger has."""

    matched: int = 0
    unknown: int = 0
    """Exchanges that the ledger does not have, or whose end it does not know."""
    foreign: int = 0
    """Exchanges that are not LLM calls."""
    skipped: Counter[Why] = field(default_factory=Counter)
    unreadable: list[Unreadable] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """One line for each kind of unusable entry."""
        if self.unknown:
            yield f"{self.unknown} exchanges are not in the ledger: `tokentee replay` reads them in"
        for why, count in self.skipped.items():
            yield f"{count} skipped: {why.value}"
        for item in self.unreadable[:UNREADABLE_SHOWN_MAX]:
            yield f"not read: {item.where}: {item.why}"
        if line := rest_line(len(self.unreadable), UNREADABLE_SHOWN_MAX):
            yield line

    @property
    def is_whole(self) -> bool:
        """Whether everything could be read, and some of it is in the ledger."""
        return bool(self.matched) and all(item.is_other_kind for item in self.unreadable)


def pairs(
    files: Iterable[Path],
    find: Find,
    found: MatchCounts,
    *,
    url: str | None,
    since: datetime | None = None,
    advance: Callable[[Path, int], None],
) -> Iterator[tuple[Recorded, Booked]]:
    """Each recorded exchange of the files with its row in the ledger; a session with each of its
    responses. All others are counted in `found`. `since`: earlier ones are left out."""
    for path in files:
        for entry in entries(path, url=url):
            advance(path, entry.read_bytes)
            item = entry.item()
            if isinstance(item, Unreadable):
                found.unreadable.append(item)
            elif isinstance(item, Skipped):
                found.skipped[item.why] += 1
            elif item.lacks_body:
                found.skipped[Why.NO_BODY] += 1
            elif since is None or item.opened_at >= since:
                yield from _rows_of(item, find, found)


def _rows_of(item: Recorded, find: Find, found: MatchCounts) -> Iterator[tuple[Recorded, Booked]]:
    ids = _ids_of(item)
    if not ids:
        found.foreign += 1
        return
    try:
        rows = find(ids)
    except LedgerError as error:
        found.unreadable.append(Unreadable(item.where, str(error)))
        return
    booked = [rows[one] for one in ids if one in rows]
    if not item.is_session:
        booked = booked[:1]
    found.unknown += (len(ids) if item.is_session else 1) - len(booked)
    yield from ((item, one) for one in booked)


def is_other_answer(item: Recorded, booked: Booked) -> bool:
    """Whether the recorded answer is not what upstream sent, by the ledger's digest."""
    digest = booked.exchange.upstream_digest
    has_both = item.is_exact and digest is not None
    return has_both and digest != hashlib.sha256(item.response_body).hexdigest()


def _ids_of(item: Recorded) -> list[str]:
    """The ids under which a ledger may have an exchange; for a session, those of its responses."""
    if item.is_session:
        # If the ledger has them, they were confirmed.
        named = replace(item, is_llm=True)
        return [one.exchange.id for one in meter(named, RunRules(node="")) or ()]
    if item.has_own_id:
        return [item.id]
    return [item.id, id_in_version_0_1(item)]
