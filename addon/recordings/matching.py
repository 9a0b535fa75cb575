"""Edge (files). Finds the rows of a ledger for recorded exchanges: for `rebuild` and `verify`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from addon.metering.opening import RunRules
from addon.recordings.files import EntryCounts, entries
from addon.recordings.formats.recorded import Recorded, Skipped, Unreadable, Why
from addon.recordings.metered import meter, statements
from ledger.maintenance.corrections import Booked
from ledger.model.errors import LedgerError
from ledger.model.exchange import SESSION_REQUEST

type Find = Callable[[Sequence[str]], dict[str, Booked]]
"""The booked exchanges with these ids."""


@dataclass(slots=True)
class MatchCounts(EntryCounts):
    """Which recordings a ledger has."""

    matched: int = 0
    unknown: int = 0
    """Exchanges that the ledger does not have, or whose end it does not know."""

    def lines(self) -> Iterator[str]:
        """One line for each kind of unusable entry."""
        if self.unknown:
            unknown = f"{self.unknown} exchanges are not in the ledger"
            yield f"{unknown}: `tokentee replay FILE` reads them in"
        yield from self.unread_lines()

    @property
    def is_whole(self) -> bool:
        """Whether everything could be read, and some of it is in the ledger."""
        return bool(self.matched) and not self.faults


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
            if not isinstance(item, Recorded):
                found.add_unread(item)
            elif item.lacks_body:
                found.add_unread(Skipped(item.where, Why.NO_BODY))
            elif since is None or item.opened_at >= since:
                # The ids under which a ledger may have it; for a session, those of its responses.
                ids = [item.id]
                stated = statements(item)
                if stated:
                    ids += [one.id for one in stated]
                elif item.is_session:
                    # If the ledger has them, they were confirmed.
                    responses = meter(replace(item, is_llm=True), RunRules(node="")) or ()
                    ids = [one.exchange.id for one in responses]
                if not ids:
                    found.foreign += 1
                    continue
                try:
                    rows = find(ids)
                except LedgerError as error:
                    found.add_unread(Unreadable(item.where, str(error)))
                    continue
                booked = [rows[one] for one in ids if one in rows]
                if stated:
                    # A total has the figures that were new when it came, and a request those of
                    # the answer that was read first.
                    found.matched += sum(not _is_read_again(one, item) for one in booked)
                    booked = [one for one in booked if _is_read_again(one, item)]
                else:
                    found.unknown += len(ids) - len(booked)
                yield from ((item, one) for one in booked)


def _is_read_again(booked: Booked, item: Recorded) -> bool:
    """Whether a row is of this recording: of its order, or a statement with its figures."""
    if booked.exchange.id == item.id:
        return True
    capture = booked.exchange.capture
    is_from_it = capture is None or capture.endswith(f"#{item.name}")
    return booked.exchange.operation == SESSION_REQUEST and is_from_it


def is_other_answer(item: Recorded, booked: Booked) -> bool:
    """Whether the recorded answer is not what upstream sent, by the ledger's digest."""
    digest = booked.exchange.upstream_digest
    has_both = item.is_exact and digest is not None
    return has_both and digest != hashlib.sha256(item.response_body).hexdigest()
