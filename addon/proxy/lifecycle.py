"""Edge. Starts and stops the recording, and keeps it over a reload of the script.

A recording is in one state. Its exchanges have states of their own
(`metering/exchange.py`).

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
import dataclasses
import logging
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from mitmproxy import ctx
from mitmproxy.exceptions import OptionsError
from mitmproxy.log import MitmLogHandler
from mitmproxy.master import Master
from mitmproxy.utils import asyncio_utils

from addon.attach import attached
from addon.proxy import options
from addon.proxy.authorising import authoriser_of
from addon.proxy.event_loop import notifier
from addon.proxy.health import MetricFiles, Telemetry
from addon.proxy.options import Settings
from addon.proxy.recording import Recording
from addon.proxy.shown import FlowComments, comments_if_viewed
from addon.proxy.traffic import Traffic
from addon.recordings.capture import CaptureFiles
from ledger.model.errors import LedgerError
from ledger.pricing.prices import PriceBook
from ledger.recording import open_ledger
from ledger.settings import names_file
from ledger.store.writing.incoming import OnCommit, Receipt
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

    def __init__(self, recording: Recording, master: Master) -> None:
        """Stay until the last exchange of `running` is over."""
        super().__init__()
        self._recording = recording
        self._master = master
        self._task = asyncio_utils.create_task(
            self._leave(recording), name="tokentee: leave", keep_ref=True
        )

    def configure(self, updated: set[str]) -> None:
        """mitmproxy's hook: refuse what the recorder would refuse, which may come back."""
        if self._recording is None or not updated & options.help_of().keys():
            return
        try:
            options.refuse_late(options.parse(ctx.options), self._recording.settings)
        except ValueError as error:
            raise OptionsError(f"tokentee: {error}") from error

    def done(self) -> Awaitable[None] | None:
        """mitmproxy's hook: stop, if the master ends meanwhile."""
        recording = self.give_up()
        return stop(recording) if recording is not None else None

    def give_up(self) -> Recording | None:
        """Stop waiting; what was waited for, once."""
        recording, self._recording = self._recording, None
        if recording is not None:
            self._task.cancel()
        return recording

    async def _leave(self, recording: Recording) -> None:
        await asyncio.sleep(0)  # tasks start eagerly; at a reload the next recorder comes first
        logger.info(
            "tokentee: the script was removed: of requests, only %d under way are still recorded",
            recording.under_way,
        )
        while recording.live or recording.sessions or recording.ledger.health().queued_rows:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        self._recording = None
        self._master.addons.remove(self)
        await close(recording)
        logger.info("tokentee: the ledger is closed")


def start(
    settings: Settings,
    *,
    node: str,
    metric_files: MetricFiles | None = None,
    caps: tuple[object, ...] = (),
) -> Recording:
    """Open the ledger, or take the state that a reload left. Raises LedgerError.

    `metric_files`: where this process counts its metrics if it is one of several workers; `caps`:
    beside those of the budgets file.
    """
    loop = asyncio.get_running_loop()
    on_commit = notifier(loop)
    leaving = ctx.master.addons.get(Leaving.name)
    if isinstance(leaving, Leaving) and (recording := leaving.give_up()):  # left for a reload
        ctx.master.addons.remove(leaving)
        recording.ledger.on_commit = recording.commit_callback(on_commit)
        recording.rules = dataclasses.replace(recording.rules, node=node)
        apply(settings, recording)
        return recording
    book = PriceBook.load(str(settings.prices) if settings.prices else None)
    comments = comments_if_viewed(ctx.master, loop)
    formatter = next(iter(_made("log format", settings.of_parts)), None)
    watching: Telemetry | None = next(
        iter(_made("telemetry", settings.of_parts, metric_files)), None
    )
    receivers: list[OnCommit] = _made("commits", settings.of_parts)
    commit_callback = partial(
        _commit_callback, comments=comments, watching=watching, receivers=receivers
    )
    price = comments.pricing(book.price) if comments else book.price
    try:
        ledger = open_ledger(
            settings.ledger_url,
            node=node,
            price=watching.pricing(price) if watching else price,
            price_again=book.price,
            on_commit=commit_callback(on_commit),
            log=_log,
        )
    except LedgerError:
        if watching is not None:
            watching.stop(0.0)
        raise
    try:
        makers = attached("authoriser")
        authoriser = authoriser_of(ledger, settings.ledger_url, caps, book, makers=makers)
    except LedgerError:
        ledger.close(CLOSE_SECONDS_MAX)
        if watching is not None:
            watching.stop(0.0)
        raise
    billing = names_file.load_valid(_log).billing_of
    rules = dataclasses.replace(settings.rules, node=node, secret=ledger.secret, billing=billing)
    recording = Recording(settings, rules, ledger=ledger, price=book.price, authoriser=authoriser)
    _read_limits(recording)
    recording.process.tasks.append(
        asyncio_utils.create_task(
            authoriser.watch(lambda: _read_limits(recording)), name="tokentee: caps", keep_ref=True
        )
    )
    recording.watching, recording.commit_callback = watching, commit_callback
    if watching is not None:
        watching.start(
            ledger,
            open_exchanges=lambda: recording.under_way,
            captures=lambda: recording.captures,
            cap_shares=authoriser.shares,
        )
    undo_last = recording.process.undo_last
    if formatter is not None:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, MitmLogHandler):
                undo_last.append(partial(handler.setFormatter, handler.formatter))
                handler.setFormatter(formatter)
    set_captures(recording)
    telling = _tell_what_is_answered(recording)
    recording.process.tasks.append(
        asyncio_utils.create_task(telling, name="tokentee: answered", keep_ref=True)
    )
    return recording


def _read_limits(recording: Recording) -> None:
    """Read of each request what bounds its cost, if there is a cap, which asks for it then."""
    authoriser = recording.authoriser
    reads = authoriser.limits_of if authoriser.is_active else None
    recording.rules = dataclasses.replace(recording.rules, limits_of=reads)


async def _tell_what_is_answered(recording: Recording) -> None:
    """Let `tokentee top` see which exchanges have an answer that has begun."""
    told: set[str] = set()
    while True:
        await asyncio.sleep(ANSWERED_SECONDS)
        answered = {live.opened.id for live in recording.live.values() if live.status is not None}
        if answered != told:
            await asyncio.to_thread(recording.ledger.note_answered, answered)
            told = answered


def _made(point: str, *given: object) -> list[Any]:
    """What the parts make that make something of these options."""
    return [made for make in attached(point) if (made := make(*given)) is not None]


def _commit_callback(
    on_commit: OnCommit,
    comments: FlowComments | None,
    watching: Telemetry | None,
    receivers: Sequence[OnCommit],
) -> OnCommit:
    """The callback of the writer: first the waiting hooks, then comments, telemetry, others."""
    told = comments.on_commit(on_commit) if comments else on_commit
    told = watching.on_commit(told) if watching else told
    if not receivers:
        return told

    def committed(receipts: Sequence[Receipt]) -> None:
        try:
            told(receipts)
        finally:
            for receiver in receivers:
                try:
                    receiver(receipts)
                except Exception:
                    logger.exception("tokentee: a part failed at a commit, which stands")

    return committed


def apply(settings: Settings, recording: Recording) -> None:
    """Change the settings of a recording; exchanges under way keep theirs."""
    recording.settings = settings
    recording.rules = dataclasses.replace(
        settings.rules,
        node=recording.rules.node,
        secret=recording.ledger.secret,
        budget=recording.rules.budget,
        billing=names_file.load_valid(_log).billing_of,
    )
    _read_limits(recording)
    set_captures(recording)


def set_captures(recording: Recording) -> None:
    """Capture into the folder that the settings name; exchanges under way keep theirs."""
    folder, captures = recording.settings.capture, recording.captures
    if captures is not None and captures.folder == folder:
        return
    if captures is not None:
        captures.close(CLOSE_SECONDS_MAX)
    recording.captures = (
        CaptureFiles(folder, node=recording.rules.node, budget=recording.rules.budget)
        if folder is not None
        else None
    )


def abandon(recording: Recording, master: Master) -> None:
    """End a recording whose options are refused: at the start at once, at a reload as it leaves."""
    if recording.live or recording.sessions:
        master.addons.add(Leaving(recording, master))
        return
    recording.process.give_back()
    _close(recording)


async def stop(recording: Recording) -> None:
    """Give exchanges under way some time to end, settle the others, and close."""
    await drain(recording)
    recording.end_all("the proxy was stopped")
    await close(recording)


async def drain(recording: Recording) -> None:
    """Wait until no exchange is under way, within the bound."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    if recording.under_way:
        logger.info(
            "tokentee: waiting up to %s for %d open exchanges",
            seconds_text(DRAIN_SECONDS_MAX),
            recording.under_way,
        )
    while recording.under_way and time.monotonic() < deadline:
        await asyncio.sleep(DRAIN_POLL_SECONDS)


async def close(recording: Recording) -> None:
    """Give mitmproxy back as it was, write the queue and close the ledger, in a thread and within
    the bounds."""
    recording.process.give_back()
    await asyncio.to_thread(_close, recording)


def _close(recording: Recording) -> None:
    if recording.captures is not None:
        recording.captures.close(CLOSE_SECONDS_MAX)
    recording.ledger.close(CLOSE_SECONDS_MAX)
    problems = recording.ledger.health().problems()
    if recording.captures is not None:
        problems += recording.captures.problems()
    if problems:
        logger.warning("tokentee: recording ended with problems: %s", "; ".join(problems))
    recording.authoriser.release()
    if recording.watching is not None:
        recording.watching.stop(TELEMETRY_SECONDS_MAX)
    while recording.process.undo_last:
        recording.process.undo_last.pop()()


def _log(level: str, message: str) -> None:
    logger.log(logging.getLevelNamesMapping()[level.upper()], "tokentee: %s", message)
