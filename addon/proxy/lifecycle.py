"""Edge. Starts and stops the recording, and keeps it over a reload of the script.

A recording is in one state. Its exchanges have phases of their own (`running.py`).

    recording   a recorder opens exchanges and has their hooks
    leaving     the script is gone: `Leaving` has the hooks of the exchanges under way, none opens,
                and there is no bound on how long they take
    stopping    the master ends: as leaving, for `DRAIN_SECONDS_MAX`; then all are settled
    closed      the ledger is written and closed, and mitmproxy is as it was

    recording -> leaving    the script is removed, cannot be loaded, or is loaded again
    leaving -> recording    a recorder starts; at a reload in the same turn of the event loop
    leaving -> closed       the last exchange is settled and written, the last WebSocket closed
    recording, leaving -> stopping -> closed    the master ends, or is cancelled

Promised: while an exchange is under way, mitmproxy stays wrapped and the ledger open; so a client
gets every byte and an exchange its row, whatever the script does meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from functools import partial

from mitmproxy import ctx
from mitmproxy.exceptions import OptionsError
from mitmproxy.log import MitmLogHandler
from mitmproxy.master import Master
from mitmproxy.utils import asyncio_utils

from addon.metering.requests.messages import End
from addon.proxy import exchanges, options
from addon.proxy.display.content_view import FlowNotes, notes_if_viewed
from addon.proxy.display.watching import Watching
from addon.proxy.event_loop import notifier
from addon.proxy.flows import now
from addon.proxy.options import Settings
from addon.proxy.running import Running
from addon.proxy.traffic import Traffic
from addon.recordings.capture import CaptureFiles
from addon.telemetry.health import MetricFiles
from addon.telemetry.json_log import JsonFormatter
from ledger import recording
from ledger.model.errors import LedgerError
from ledger.pricing.prices import PriceBook
from ledger.settings import names_file
from ledger.store.writing.jobs import OnCommit
from ledger.text.figures import seconds_text

logger = logging.getLogger(__name__)

DRAIN_SECONDS_MAX = 5.0
"""How long a stopping proxy waits for open answers to end. Container runtimes kill a process 10 s
after SIGTERM, and the ledger needs some of that time."""
DRAIN_POLL_SECONDS = 0.02
TELEMETRY_SECONDS_MAX = 1.0
"""How long telemetry may take to export its remaining data."""
CLOSE_SECONDS_MAX = 4.0
"""How long the writer may take to write its queue."""
ANSWERED_SECONDS = 1.0
"""How often it is written down which exchanges are answered; `tokentee top` looks every 2 s."""


class Leaving(Traffic):
    """The addon of a recording whose script is gone. The next recorder finds it by its name."""

    name = "tokentee-leaving"

    def __init__(self, running: Running, master: Master) -> None:
        """Stay until the last exchange of `running` is over."""
        super().__init__()
        self._running = running
        self._master = master
        self._task = asyncio_utils.create_task(
            self._leave(running), name="tokentee: leave", keep_ref=True
        )

    def configure(self, updated: set[str]) -> None:
        """mitmproxy's hook: refuse what the recorder would refuse, which may come back."""
        if self._running is None or not updated & options.HELP.keys():
            return
        try:
            options.refuse_late(options.parse(ctx.options), self._running.settings)
        except ValueError as error:
            raise OptionsError(f"tokentee: {error}") from error

    def done(self) -> Awaitable[None] | None:
        """mitmproxy's hook: stop, if the master ends meanwhile."""
        running = self.give_up()
        return stop(running) if running is not None else None

    def give_up(self) -> Running | None:
        """Stop waiting; what was waited for, once."""
        running, self._running = self._running, None
        if running is not None:
            self._task.cancel()
        return running

    async def _leave(self, running: Running) -> None:
        await asyncio.sleep(0)  # tasks start eagerly; at a reload the next recorder comes first
        logger.info(
            "tokentee: the script was removed; nothing new is recorded, %d exchanges go on",
            running.under_way,
        )
        while not running.is_idle or running.ledger.health().queued_rows:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        self._running = None
        self._master.addons.remove(self)
        await close(running)
        logger.info("tokentee: the ledger is closed")


def start(settings: Settings, *, node: str, metric_files: MetricFiles | None = None) -> Running:
    """Open the ledger, or take the state that a reload left. Raises LedgerError.

    `metric_files`: where this process counts its metrics if it is one of several workers.
    """
    loop = asyncio.get_running_loop()
    on_commit = notifier(loop)
    leaving = ctx.master.addons.get(Leaving.name)
    if isinstance(leaving, Leaving) and (running := leaving.give_up()):  # left for a reload
        ctx.master.addons.remove(leaving)
        running.ledger.on_commit = _commit_callback(on_commit, running.notes, running.watching)
        apply(settings, running, node=node)
        return running
    book = PriceBook.load(str(settings.prices) if settings.prices else None)
    notes = notes_if_viewed(ctx.master, loop)
    watching = None
    if settings.metrics or settings.otlp:
        watching = Watching(metrics=settings.metrics, otlp=settings.otlp, metric_files=metric_files)
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
        rules=settings.rules(
            node=node, secret=ledger.secret, billing=names_file.load_valid(_log).billing_of
        ),
        ledger=ledger,
        price=book.price,
        notes=notes,
        watching=watching,
    )
    if watching is not None:
        watching.start(
            ledger, open_exchanges=lambda: running.under_way, captures=lambda: running.captures
        )
    if notes is not None:
        running.undo_last.append(notes.show())
    if settings.log_as_json:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, MitmLogHandler):
                running.undo_last.append(partial(handler.setFormatter, handler.formatter))
                handler.setFormatter(JsonFormatter())
    set_captures(running, node=node)
    running.telling = asyncio_utils.create_task(
        _tell_what_is_answered(running), name="tokentee: answered", keep_ref=True
    )
    return running


async def _tell_what_is_answered(running: Running) -> None:
    """Let `tokentee top` see which exchanges have an answer that has begun."""
    told: set[str] = set()
    while True:
        await asyncio.sleep(ANSWERED_SECONDS)
        answered = {
            live.exchange.opened.id
            for live in running.live.values()
            if live.exchange.status is not None
        }
        if answered != told:
            await asyncio.to_thread(running.ledger.note_answered, answered)
            told = answered


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
        node=node,
        secret=running.ledger.secret,
        budget=running.rules.budget,
        billing=names_file.load_valid(_log).billing_of,
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


def abandon(running: Running, master: Master) -> None:
    """End a recording whose options are refused: at the start at once, at a reload as it leaves."""
    if not running.is_idle:
        master.addons.add(Leaving(running, master))
        return
    give_back(running)
    _close(running)


def give_back(running: Running) -> None:
    """Leave mitmproxy as it was."""
    if running.telling is not None:
        running.telling.cancel()
    while running.undo:
        running.undo.pop()()


async def stop(running: Running) -> None:
    """Give exchanges under way some time to end, settle the others, and close."""
    await drain(running)
    end_all(running, "the proxy was stopped")
    await close(running)


async def drain(running: Running) -> None:
    """Wait until no exchange is under way, within the bound."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    if running.under_way:
        logger.info(
            "tokentee: waiting up to %s for %d open exchanges",
            seconds_text(DRAIN_SECONDS_MAX),
            running.under_way,
        )
    while running.under_way and time.monotonic() < deadline:
        await asyncio.sleep(DRAIN_POLL_SECONDS)


def end_all(running: Running, cause: str) -> None:
    """Settle every exchange and end every WebSocket session that is under way. `cause` goes into
    the rows of those that had not ended by themselves."""
    running.is_over = True
    for live in list(running.live.values()):
        exchanges.settle(running, live, *(live.end or (End.STOPPED, cause)))
    running.live.clear()
    for session in running.sessions.values():
        exchanges.end_session(running, session, End.STOPPED, now())
    running.sessions.clear()


async def close(running: Running) -> None:
    """Give mitmproxy back as it was, write the queue and close the ledger, in a thread and within
    the bounds."""
    give_back(running)
    await asyncio.to_thread(_close, running)


def _close(running: Running) -> None:
    if running.captures is not None:
        running.captures.close(CLOSE_SECONDS_MAX)
    running.ledger.close(CLOSE_SECONDS_MAX)
    problems = running.ledger.health().problems()
    if running.captures is not None:
        problems += running.captures.problems()
    if problems:
        logger.warning("tokentee: recording ended with problems: %s", "; ".join(problems))
    if running.watching is not None:
        running.watching.stop(TELEMETRY_SECONDS_MAX)
    while running.undo_last:
        running.undo_last.pop()()


def _log(level: str, message: str) -> None:
    logger.log(logging.getLevelNamesMapping()[level.upper()], "tokentee: %s", message)
