"""Edge. mitmproxy's hooks: finds or makes the live exchange, and hands over.

    request           opened: a row goes to the ledger before the request goes upstream
    responseheaders   streaming: the tap is set into the stream
    response, error   settled: by whichever comes first, once (MITMPROXY.md has the table of which
                      ends bring which hooks)
    done              settled: whatever is still open when the proxy stops

Nothing here may hurt the traffic: each step that can fail does so inside `attempt`, which leaves
the exchange as it is, notes the reason on its row and logs one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from mitmproxy import ctx, exceptions, http
from mitmproxy.addonmanager import Loader
from mitmproxy.flow import Error

from addon.metering.meter import Meter
from addon.metering.settlement import End, settle_unread
from addon.proxy import metering, opening, opt_in, options, websockets
from addon.proxy.live import Live, Running, attempt, plain
from addon.proxy.options import Settings
from addon.proxy.patches import hook_lists, http_stream
from addon.recordings.capture import Capture, append, file_for
from ledger import recording
from ledger.model.errors import LedgerError
from ledger.pricing.prices import PriceBook
from ledger.store.writing.writer import Receipt

logger = logging.getLogger(__name__)

COMMIT_WAIT_SECONDS_MAX = 5.0
"""How long the end of an answer waits for its commit. An fsync takes milliseconds; a disk that
takes longer than this is in trouble, and the traffic is worth more than the promise: the wait
ends, one line is logged, and the reading is written when the disk can."""
DRAIN_SECONDS_MAX = 5.0
"""How long a stopping proxy lets open answers end by themselves. Container runtimes kill 10 s
after they ask, and the ledger needs some of that."""
CLOSE_SECONDS_MAX = 4.0


_handed_over: list[Running] = []
"""From the recorder that a reload of the script ends to the one that it starts. mitmproxy makes
the new addon from nothing, while open streams still call the old one's taps; without this one
piece of module state those exchanges would never be settled."""


class Recorder:
    """The addon."""

    name = "tokentee"

    def __init__(self, *, tags: Mapping[str, str] | None = None) -> None:
        """`tags`: for every exchange, beside those of the options."""
        self._tags = dict(tags or {})
        self._running: Running | None = None
        self._uninstalls: list[Callable[[], None]] = []
        self._node = f"{socket.gethostname()}/{os.getpid()}/{int(time.time())}"
        self._unknown_keys: set[str] = set()
        self._stopping = False
        self._refused = False
        """The options of the start were bad, and that was said."""

    # Life

    def load(self, loader: Loader) -> None:
        options.add(loader)

    def configure(self, updated: set[str]) -> None:
        # A script is configured once with all options when it has been loaded. An addon that a
        # master was made with sees them in pieces, and starts in `running`.
        if self._running is None and not options.HELP.keys() <= updated:
            return
        if updated & options.HELP.keys():
            self._configure()

    def running(self) -> None:
        if self._running is None and not self._refused:
            self._configure()
        if self._running is None:
            return
        unknown = [name for name in ctx.options.deferred if name.startswith(("tee_", "ledger"))]
        if unknown:
            logger.warning("tokentee: unknown option %s", ", ".join(unknown))
        if ctx.options.stream_large_bodies:
            logger.warning(
                "tokentee: stream_large_bodies=%s: usage cannot be asked for in larger requests",
                ctx.options.stream_large_bodies,
            )
        self._let_refusals_be_seen()
        try:
            self._uninstalls.append(http_stream.install(self))
        except AttributeError as missing:
            logger.warning(
                "tokentee: this mitmproxy lacks %s: usage is asked for only where it is known "
                "to be welcome, and who broke a stream is guessed",
                missing,
            )
        self._uninstalls.append(hook_lists.install(ctx.master.addons))
        _settle_garbage()
        settings = self._running.settings
        logger.info(
            "tokentee: ledger %s, commit %s, inject %s",
            self._running.ledger.shown_url,
            "before end" if settings.commit_before_end else "async",
            settings.inject,
        )

    def done(self) -> Awaitable[None] | None:
        """Stop, or hand over to the recorder that a reload of the script makes.

        mitmproxy calls this without awaiting on a reload and awaits it at shutdown; an `async
        def` would break the reload.
        """
        while self._uninstalls:
            self._uninstalls.pop()()
        if self._running is None:
            return None
        if ctx.master.should_exit.is_set():
            return self._stop()
        _handed_over.append(self._running)
        self._running = None
        return None

    # Traffic

    def request(self, flow: http.HTTPFlow) -> None:
        if self._stopping and flow.live:
            # mitmproxy serves to the very end: what begins now could pass unseen, and would keep
            # the stop waiting for its like.
            flow.kill()
            return
        running = self._running
        if running is None or (_is_killed(flow) and flow.response is None):
            return  # killed by another addon: nothing goes upstream
        troubles: list[str] = []
        live = attempt(
            troubles,
            opening.open_exchange,
            running.settings,
            running.ledger.secret,
            flow,
            troubles,
            node=self._node,
        )
        if live is None:
            return
        running.live[flow.id] = live
        if live.is_handshake:
            return
        attempt(live.troubles, opt_in.ask, running, live)
        attempt(live.troubles, running.ledger.open, live.opened)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        running = self._running
        live = running.live.get(flow.id) if running else None
        if running is None or live is None or flow.response is None:
            return
        live.status = flow.response.status_code
        if live.status == 101:
            return
        if live.is_recorded:
            return  # its body is there, and no stream will pass
        # First of all: an exception before this would make mitmproxy hold the whole answer.
        flow.response.stream = True
        attempt(live.troubles, self._tap, running, flow, flow.response, live)

    async def response(self, flow: http.HTTPFlow) -> None:
        running = self._running
        live = running.live.get(flow.id) if running else None
        if running is None or live is None or flow.response is None:
            return
        if live.is_recorded and flow.error is not None:
            return  # it ended in an error, whose hook comes next
        del running.live[flow.id]
        if flow.websocket is not None:
            live.status = flow.response.status_code
            session = attempt(live.troubles, websockets.begin, live)
            if session is not None:
                running.sessions[flow.id] = session
            return
        if not flow.response.stream:
            attempt(live.troubles, self._read_whole, running, flow, flow.response, live)
        receipt = self._settle(running, live, End.FINISHED, cause=None)
        if receipt is not None and running.settings.commit_before_end:
            await self._committed(receipt)

    def error(self, flow: http.HTTPFlow) -> None:
        running = self._running
        live = running.live.pop(flow.id, None) if running else None
        if running is None or live is None:
            return
        if live.is_recorded and flow.response is not None:
            attempt(live.troubles, self._read_whole, running, flow, flow.response, live)
        message = flow.error.msg if flow.error else ""
        if _is_killed(flow):
            end = End.STOPPED
        elif live.broken_by_client:
            end = End.CLIENT_LEFT
        else:
            end = End.UPSTREAM_BROKE
        # What follows a bytes literal in mitmproxy's messages is what upstream sent.
        self._settle(running, live, end, cause=message.split("b'")[0].split('b"')[0])

    async def websocket_message(self, flow: http.HTTPFlow) -> None:
        """A message that ends a response goes on when the response's reading is on disk."""
        running = self._running
        session = running.sessions.get(flow.id) if running else None
        if running is None or session is None or flow.websocket is None:
            return
        message = flow.websocket.messages[-1]
        troubles = session.handshake.troubles
        receipts = attempt(troubles, websockets.take, running, session, message) or []
        if not session.handshake.is_recorded:
            websockets.let_go_of_messages(flow)
        if running.settings.commit_before_end:
            for receipt in receipts:
                await self._committed(receipt)

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        running = self._running
        session = running.sessions.pop(flow.id, None) if running else None
        if running is None or session is None or flow.websocket is None:
            return
        ended = flow.websocket.timestamp_end
        at = datetime.fromtimestamp(ended, UTC) if ended else metering.now()
        how = End.CLIENT_LEFT if flow.websocket.closed_by_client else End.UPSTREAM_BROKE
        attempt(session.handshake.troubles, websockets.end, running, session, how, at)

    # What `http_stream` asks

    def broke(self, flow: http.HTTPFlow, *, by_client: bool) -> None:
        live = self._running.live.get(flow.id) if self._running else None
        if live is not None and live.broken_by_client is None:
            live.broken_by_client = by_client

    def asks_again(self, flow: http.HTTPFlow) -> bool:
        running = self._running
        live = running.live.get(flow.id) if running else None
        if running is None or live is None or live.unasked is None:
            return False
        return bool(attempt(live.troubles, opt_in.take_back, running, live))

    # Streaming

    def _tap(
        self, running: Running, flow: http.HTTPFlow, response: http.Response, live: Live
    ) -> None:
        headers = plain(response.headers)
        if metering.is_held(response, headers, asked=live.unasked is not None):
            response.stream = False
        live.tap = metering.tap_for(live, response, headers, may_edit=bool(response.stream))
        if running.settings.capture is not None:
            live.capture = Capture()
        if not response.stream:
            return
        if live.tap.edits and "content-length" in headers:
            del response.headers["content-length"]
            if flow.request.http_version == "HTTP/1.1":
                response.headers["transfer-encoding"] = "chunked"
        into = live.tap.callable
        response.stream = live.capture.around(into) if live.capture else into

    def _read_whole(
        self, running: Running, flow: http.HTTPFlow, response: http.Response, live: Live
    ) -> None:
        """An answer that mitmproxy held until it was complete."""
        if live.tap is None:
            self._tap(running, flow, response, live)
        assert live.tap is not None
        if response.raw_content:
            live.tap.callable(response.raw_content)
            if live.capture is not None:
                live.capture.add(response.raw_content)

    # Settling

    def _settle(
        self, running: Running, live: Live, end: End, *, cause: str | None
    ) -> Receipt | None:
        exchange, reading = attempt(live.troubles, metering.settled, live, end, cause) or (
            settle_unread(live.opened, end=end, status=live.status, now=metering.now())
        )
        if live.troubles:
            reasons = [*live.troubles, *filter(None, [exchange.degraded])]
            exchange = replace(exchange, degraded="; ".join(reasons)[:1000])
        if live.tap is not None:
            self._say_unknown_keys(live.tap.meter)
        if live.capture is not None and running.settings.capture is not None:
            path = attempt(live.troubles, self._write_capture, running.settings.capture, live)
            exchange = replace(exchange, capture=f"{path}#{exchange.id}" if path else None)
        attempt(live.troubles, opt_in.learn, running, live, exchange, reading)
        return attempt(live.troubles, running.ledger.settle, exchange, reading)

    def _write_capture(self, directory: Path, live: Live) -> Path | None:
        """Write an exchange's capture off the loop; the file, or None if it was too large."""
        capture = live.capture
        assert capture is not None
        if capture.overflowed:
            return None
        path = file_for(directory, node=self._node, now=metering.now())
        line = capture.line(live.flow, started_at=live.opened.opened_at)
        writing = asyncio.get_running_loop().run_in_executor(None, append, path, line)
        writing.add_done_callback(_say_if_failed)
        return path

    async def _committed(self, receipt: Receipt) -> None:
        """Wait until a reading is on disk, or has been given up, or the bound is reached."""
        if receipt.committed or receipt.error:
            return
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        receipt.context = waiting
        bound = loop.call_later(COMMIT_WAIT_SECONDS_MAX, _resolve, waiting)
        try:
            await waiting
        finally:
            bound.cancel()
        if not receipt.committed and not receipt.error:
            logger.warning(
                "tokentee: exchange %s not committed within %.0f s; its end goes on to the client",
                receipt.exchange_id,
                COMMIT_WAIT_SECONDS_MAX,
            )

    # Starting and stopping

    def _configure(self) -> None:
        try:
            self._apply(options.parse(ctx.options))
        except (ValueError, LedgerError) as error:
            if self._running is not None:
                reason = f"tokentee: {error}"
                raise exceptions.OptionsError(reason) from error
            # While mitmproxy starts, an ERROR line ends the start with exit code 1 and without
            # the traceback that an OptionsError would bring.
            logger.error("tokentee: %s", error)  # noqa: TRY400
            self._refused = True

    def _apply(self, settings: Settings) -> None:
        settings = replace(settings, tags={**settings.tags, **self._tags})
        if self._running is None:
            self._running = self._start(settings)
        elif settings.ledger_url != self._running.settings.ledger_url:
            raise ValueError("ledger_url: stays as it was at the start; restart to change it")
        else:
            self._running.settings = settings

    def _start(self, settings: Settings) -> Running:
        while _handed_over:
            running = _handed_over.pop()
            running.settings = settings
            running.ledger.on_commit = _notify_on(asyncio.get_running_loop())
            return running
        book = PriceBook.load(str(settings.prices) if settings.prices else None)
        ledger = recording.open_ledger(
            settings.ledger_url,
            node=self._node,
            price=book.price,
            on_commit=_notify_on(asyncio.get_running_loop()),
            log=_log,
        )
        return Running(settings=settings, ledger=ledger)

    async def _stop(self) -> None:
        running = self._running
        assert running is not None
        self._stopping = True
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        if running.live:
            logger.info(
                "tokentee: waiting up to %.0f s for %d open exchanges",
                DRAIN_SECONDS_MAX,
                len(running.live),
            )
        while running.live and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self._running = None
        for live in list(running.live.values()):
            self._settle(running, live, End.STOPPED, cause="the proxy was stopped")
        running.live.clear()
        for session in running.sessions.values():
            troubles = session.handshake.troubles
            attempt(troubles, websockets.end, running, session, End.STOPPED, metering.now())
        running.sessions.clear()
        await asyncio.to_thread(running.ledger.close, CLOSE_SECONDS_MAX)

    def _let_refusals_be_seen(self) -> None:
        """In reverse mode, connect upstream per request: mitmproxy's `eager` default closes the
        client's connection before any request is read when upstream refuses, and nothing could
        be recorded (MITMPROXY.md)."""
        specs = ctx.options.mode
        if specs and all(spec.startswith("reverse:") for spec in specs):
            ctx.options.update(connection_strategy="lazy")

    def _say_unknown_keys(self, meter: Meter) -> None:
        """A usage key never seen before is kept verbatim, and said once."""
        for key in meter.facts.unknown_keys:
            if key not in self._unknown_keys and len(self._unknown_keys) < 1_000:
                self._unknown_keys.add(key)
                logger.info("tokentee: a usage key not known before: %r", key)


def _is_killed(flow: http.HTTPFlow) -> bool:
    return flow.error is not None and flow.error.msg == Error.KILLED_MESSAGE


def _notify_on(loop: asyncio.AbstractEventLoop) -> Callable[[Sequence[Receipt]], None]:
    """What the writer calls, on its own thread, once for each batch that it has committed.

    One wake-up at a time is under way, whatever the loop is busy with: each is a byte in the pipe
    that asyncio also takes signals from, and a SIGTERM that finds it full is lost.
    """
    committed: deque[Receipt] = deque()
    is_called = False

    def resolve_all() -> None:
        nonlocal is_called
        is_called = False  # first, so that what comes from here on calls again
        while committed:
            receipt = committed.popleft()
            if receipt.context is not None:
                _resolve(receipt.context)

    def notify(receipts: Sequence[Receipt]) -> None:
        nonlocal is_called
        committed.extend(receipts)
        if is_called:
            return
        is_called = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(resolve_all)

    return notify


def _resolve(waiting: object) -> None:
    assert isinstance(waiting, asyncio.Future)
    if not waiting.done():
        waiting.set_result(None)


def _say_if_failed(writing: asyncio.Future[None]) -> None:
    if not writing.cancelled() and (failure := writing.exception()):
        logger.warning("tokentee: a capture was not written: %s", failure)


def _log(level: str, message: str) -> None:
    logger.log(logging.getLevelNamesMapping()[level.upper()], "tokentee: %s", message)


def _settle_garbage() -> None:
    """Take what was loaded at the start out of the garbage collector's sight.

    Modules, tables and price lists stay for good, and walking them again and again costs a busy
    proxy several percent; so do the young collections that every few hundred objects bring.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
