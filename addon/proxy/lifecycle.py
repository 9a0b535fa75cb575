"""Edge. Starts and stops the recording, and keeps it over a reload of the script.

start       opens the ledger, or continues with the state that a reload of the script left
hand_over   keeps the state for the recorder that a reload makes
drain, end_all, close   the steps of stopping, in this order
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from mitmproxy import ctx
from mitmproxy.log import MitmLogHandler

from addon.metering.ends import End
from addon.proxy import exchanges, websockets
from addon.proxy.commits import notifier
from addon.proxy.display.content_view import FlowNotes, notes_if_viewed
from addon.proxy.display.watching import Wanted, Watching
from addon.proxy.host.flows import now
from addon.proxy.options import Settings
from addon.proxy.running import Running
from addon.recordings.capture_files import CaptureFiles
from addon.telemetry.json_log import write_json
from addon.telemetry.seat import Seat
from ledger import recording
from ledger.model.errors import LedgerError
from ledger.pricing.prices import PriceBook
from ledger.store.writing.jobs import Receipt

logger = logging.getLogger(__name__)

type OnCommit = Callable[[Sequence[Receipt]], None]

DRAIN_SECONDS_MAX = 5.0
"""How long a stopping proxy waits for open answers to end. Container runtimes kill a process 10 s
after SIGTERM, and the ledger needs some of that time."""
DRAIN_POLL_SECONDS = 0.02
TELEMETRY_SECONDS_MAX = 1.0
"""How long telemetry may take to export its remaining data."""
CLOSE_SECONDS_MAX = 4.0
"""How long the writer may take to write its queue."""

_handed_over: list[Running] = []
"""From the recorder that a reload of the script ends to the one that it starts. mitmproxy makes
the new addon from nothing, while open streams still call the old one's taps; without this one
piece of module state those exchanges would never be settled."""

_closing: set[asyncio.Task[None]] = set()
"""Closings under way: the loop itself keeps only weak references to tasks."""


def start(settings: Settings, *, node: str, seat: Seat | None = None) -> Running:
    """Open the ledger, or take the state that a reload left. Raises LedgerError.

    `seat`: where this process counts its metrics if it is one of several workers.
    """
    loop = asyncio.get_running_loop()
    on_commit = notifier(loop)
    while _handed_over:
        running = _handed_over.pop()
        running.ledger.on_commit = _commit_callback(on_commit, running.notes, running.watching)
        apply(settings, running, node=node)
        return running
    book = PriceBook.load(str(settings.prices) if settings.prices else None)
    notes = notes_if_viewed(ctx.master, loop)
    wanted = Wanted(metrics=settings.metrics, otlp=settings.otlp, seat=seat)
    watching = Watching(wanted) if wanted.is_enabled else None
    price = notes.pricing(book.price) if notes else book.price
    try:
        ledger = recording.open_ledger(
            settings.ledger_url,
            node=node,
            price=watching.observer.pricing(price) if watching else price,
            on_commit=_commit_callback(on_commit, notes, watching),
            log=_log,
        )
    except LedgerError:
        if watching is not None:
            watching.stop(0.0)
        raise
    running = Running(
        settings=settings,
        rules=settings.rules(node=node, secret=ledger.secret),
        ledger=ledger,
        price=book.price,
        notes=notes,
        watching=watching,
    )
    if watching is not None:
        watching.start(
            ledger,
            open_exchanges=lambda: len(running.live),
            captures=lambda: running.captures,
        )
    if settings.log_as_json:
        write_json(
            [each for each in logging.getLogger().handlers if isinstance(each, MitmLogHandler)]
        )
    set_captures(running, node=node)
    return running


def _commit_callback(
    on_commit: OnCommit, notes: FlowNotes | None, watching: Watching | None
) -> OnCommit:
    """The callback of the writer: first the waiting hooks, then notes, then telemetry."""
    told = notes.on_commit(on_commit) if notes else on_commit
    return watching.observer.on_commit(told) if watching else told


def apply(settings: Settings, running: Running, *, node: str) -> None:
    """Change the settings of a recording; exchanges under way keep theirs."""
    running.settings = settings
    running.rules = settings.rules(
        node=node, secret=running.ledger.secret, budget=running.rules.budget
    )
    set_captures(running, node=node)


def set_captures(running: Running, *, node: str) -> None:
    """Capture into the folder that the settings name; exchanges under way keep theirs."""
    folder, captures = running.settings.capture, running.captures
    if captures is not None and captures.folder == folder:
        return
    if captures is not None:
        captures.close(CLOSE_SECONDS_MAX)
    running.captures = (
        CaptureFiles(folder, node=node, budget=running.rules.budget) if folder is not None else None
    )


def hand_over(running: Running) -> None:
    """Keep the running state for the recorder that a reload of the script makes.

    A reload makes that recorder at once, before the next turn of the event loop. If there is none
    by then, the script was removed: open exchanges are settled, and the ledger is closed.
    """
    _handed_over.append(running)
    asyncio.get_running_loop().call_soon(_close_if_left, running)


def _close_if_left(running: Running) -> None:
    if running not in _handed_over:
        return
    _handed_over.remove(running)
    logger.info("tokentee: the script was removed; the ledger is closed")
    end_all(running, "the script was removed")
    closing = asyncio.get_running_loop().create_task(close(running))
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)


async def drain(running: Running) -> None:
    """Wait until open answers have ended, within the bound."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    if running.live:
        logger.info(
            "tokentee: waiting up to %.0f s for %d open exchanges",
            DRAIN_SECONDS_MAX,
            len(running.live),
        )
    while running.live and time.monotonic() < deadline:
        await asyncio.sleep(DRAIN_POLL_SECONDS)


def end_all(running: Running, cause: str) -> None:
    """Settle every exchange and end every WebSocket session that is still open; `cause` goes into
    their rows."""
    for live in list(running.live.values()):
        exchanges.settle(running, live, End.STOPPED, cause)
    running.live.clear()
    for session in running.sessions.values():
        attempt = session.handshake.troubles.attempt
        attempt(websockets.end_session, running.ledger, session, End.STOPPED, now())
    running.sessions.clear()


async def close(running: Running) -> None:
    """Write the queue and close the ledger, in threads and within the bounds."""
    if running.captures is not None:
        await asyncio.to_thread(running.captures.close, CLOSE_SECONDS_MAX)
    await asyncio.to_thread(running.ledger.close, CLOSE_SECONDS_MAX)
    problems = running.ledger.health().problems()
    if running.captures is not None:
        problems += running.captures.problems()
    if problems:
        logger.warning("tokentee: recording ended with problems: %s", "; ".join(problems))
    if running.watching is not None:
        await asyncio.to_thread(running.watching.stop, TELEMETRY_SECONDS_MAX)


def _log(level: str, message: str) -> None:
    logger.log(logging.getLevelNamesMapping()[level.upper()], "tokentee: %s", message)
