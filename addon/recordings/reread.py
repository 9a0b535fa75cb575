"""Edge. A recorded exchange that the ledger knows, read once more as it was read when it passed.

What a recording does not say is in the ledger: who the provider was said to be, whether usage was
asked for and therefore taken out, and which side ended the exchange.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from addon.metering.exchange import may_refuse
from addon.metering.opening import Rules, Upstream, open_exchange
from addon.metering.settlement import TRANSPORT, End, Settled
from addon.metering.troubles import Troubles
from addon.recordings import flows
from addon.recordings.reading import Recorded, Unreadable, read
from ledger.model.records import Exchange, Outcome, Source

UNREADABLE_SHOWN_MAX = 10


@dataclass(slots=True)
class Seen:
    """What was found in the files, beside the exchanges that the ledger has."""

    matched: int = 0
    unknown: int = 0
    """Exchanges that the ledger does not have, or whose end it does not know."""
    bodiless: int = 0
    """Recordings without the answer: mitmproxy saves none of a streamed one."""
    unreadable: list[Unreadable] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """In words, what could not be used."""
        if self.unknown:
            yield f"{self.unknown} exchanges are not in the ledger: `tokentee replay` reads them in"
        if self.bodiless:
            yield f"{self.bodiless} recordings hold no answer"
        for item in self.unreadable[:UNREADABLE_SHOWN_MAX]:
            yield f"not read: {item.where}: {item.why}"
        if len(self.unreadable) > UNREADABLE_SHOWN_MAX:
            yield f"… and {len(self.unreadable) - UNREADABLE_SHOWN_MAX} more not read"

    @property
    def is_whole(self) -> bool:
        """Whether all that was there could be read, and some of it is in the ledger."""
        return bool(self.matched) and all(item.is_other_kind for item in self.unreadable)


def console_on_stderr() -> Console:
    # A pipe has no width of its own, and a table that wraps is of no use to grep.
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 200)


@contextmanager
def watched(console: Console, what: str, files: Sequence[Path]) -> Iterator[Iterator[Path]]:
    """The files one by one, while a line on stderr shows how far that has come."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(what, total=len(files))

        def each() -> Iterator[Path]:
            for path in files:
                progress.update(task, description=escape(f"{what} {path.name}"))
                yield path
                progress.advance(task)

        yield each()


def recordings(files: Iterable[Path], *, url: str | None, seen: Seen) -> Iterator[Recorded]:
    """The exchanges in the files; what is none is noted in `seen`."""
    for path in files:
        for item in read(path, url=url):
            if isinstance(item, Unreadable):
                seen.unreadable.append(item)
            else:
                yield item


def key_of(item: Recorded) -> tuple[datetime, str]:
    """What the ledger knows it by."""
    return datetime.fromtimestamp(item.flow.request.timestamp_start, UTC), item.flow.id


def body_of(item: Recorded) -> bytes | None:
    """The answer as upstream sent it; None if the recording has none."""
    return item.flow.response.raw_content if item.flow.response is not None else None


def digest_of(item: Recorded) -> str:
    return hashlib.sha256(body_of(item) or b"").hexdigest()


def reread(item: Recorded, booked: Exchange, *, reached_end: bool = True) -> Settled | None:
    """What the tap and the meter of today make of the answer; None if it is no LLM call to them.

    `reached_end`: the end of the body came, and with it what the stripper still held.
    """
    flow = item.flow
    if flow.response is None:
        return None
    request = flows.request_of(flow)
    upstream = Upstream(host=request.host, port=request.port, provider=booked.provider)
    # Whose key it was is in the ledger; the recording no longer says it, and needs no secret.
    exchange = open_exchange(
        request,
        Rules(node="", upstreams=(upstream,)),
        exchange_id=flow.id,
        source=Source.REPLAY,
        troubles=Troubles(),
        is_llm=True,
    )
    if exchange is None:
        return None
    if booked.usage_injected:
        exchange.mark_injected()
    response = flows.response_of(flow.response)
    # An error answer that was held until it was whole was not edited.
    edits = not may_refuse(response, injected=booked.usage_injected)
    tap = exchange.answer(response, edits=edits, clock=lambda: 0.0)
    if flow.response.raw_content:
        tap.callable(flow.response.raw_content)
    if reached_end:
        tap.callable(b"")
    now = datetime.now(UTC)
    return exchange.settle(_end_of(booked), cause=None, now=now, times=flows.times_of(flow))


def _end_of(booked: Exchange) -> End:
    """What ended it then. A cut that nothing broke is one that the answer itself betrayed, and
    will again."""
    match booked.outcome:
        case Outcome.CLIENT_LEFT:
            return End.CLIENT_LEFT
        case Outcome.LOST:
            return End.STOPPED
        case Outcome.UPSTREAM_CUT if booked.error_type == TRANSPORT:
            return End.UPSTREAM_BROKE
    return End.FINISHED
