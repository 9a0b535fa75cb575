"""Edge. mitmproxy's hooks: finds or makes the live exchange, and hands over.

    requestheaders    headers for us are taken out; a request that is streamed is opened
    request           opened: a row goes to the ledger before the request goes upstream
    responseheaders   streaming: the tap is set into the stream
    response, error   settled: by whichever comes first, once
    done              settled: whatever is still open when the proxy stops

Nothing here may hurt the traffic: each step that can fail runs inside `Troubles.attempt`, which
leaves the exchange as it is, notes the reason on its row and logs one line. The steps themselves
are in `exchanges` and `answers`.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Awaitable, Mapping
from dataclasses import replace

from mitmproxy import ctx, exceptions, http
from mitmproxy.addonmanager import Loader
from mitmproxy.flow import Error

from addon.metering.exchange import NOT_READ
from addon.metering.opening import is_read_in_steps, readable_in_steps
from addon.metering.requests.messages import Request
from addon.metering.troubles import Troubles
from addon.proxy import connections, exchanges, flows, lifecycle, options
from addon.proxy.display.first_lines import say_what_is_next
from addon.proxy.event_loop import guarded, in_turns
from addon.proxy.host import mechanisms
from addon.proxy.host.mechanisms import Place
from addon.proxy.options import Settings
from addon.proxy.owner import owner_of
from addon.proxy.running import Running
from addon.proxy.stream_events import StreamEvents
from addon.proxy.traffic import Traffic
from addon.telemetry.health import MetricFiles
from ledger.model.errors import LedgerError

logger = logging.getLogger(__name__)

WITHOUT_WRAPPING = (
    "a refused question for usage reaches the client, plain answers are held until they are whole, "
    "the end of a stream under a content-length does not wait for its commit, and who broke a "
    "stream is guessed"
)
"""What is not kept where HttpStream is not wrapped."""


class Recorder(Traffic):
    """The addon."""

    name = "tokentee"

    def __init__(
        self,
        *,
        tags: Mapping[str, str] | None = None,
        project: str | None = None,
        git_branch: str | None = None,
        metric_files: MetricFiles | None = None,
    ) -> None:
        """`tags`: for every exchange, beside those of the options; `project` and `git_branch`: what
        every exchange is made for, where it is known; `metric_files`: where a worker counts its
        metrics."""
        super().__init__()
        self._tags = dict(tags or {})
        self._project = project
        self._git_branch = git_branch
        self._metric_files = metric_files
        self._node = f"{socket.gethostname()}/{os.getpid()}/{int(time.time())}"
        self._skipped = 0
        """Saved flows without an answer, in `mitmdump -nr`."""
        self._refused = False
        """The options of the start were bad, and the error is logged."""

    @property
    def running_state(self) -> Running | None:
        """The ledger and what is under way; None while nothing is recorded."""
        return self._running

    # Start and stop

    def load(self, loader: Loader) -> None:
        """mitmproxy's hook: add the options. A program may load it again, elsewhere."""
        options.add(loader)
        self._master = loader.master
        self._running, self._stopping, self._refused = None, False, False

    def configure(self, updated: set[str]) -> None:
        """mitmproxy's hook: check the options, and apply those that changed."""
        if self._running is not None:
            self._running.bodies.forget()
            if "scripts" in updated:
                self._leave_if_guest(self._running)
        # A script is configured once with all options when it has been loaded. An addon that a
        # master was made with sees them in pieces, and starts in `running`.
        if self._running is None and not options.HELP.keys() <= updated:
            return
        if updated & options.HELP.keys():
            self._configure()

    def running(self) -> None:
        """mitmproxy's hook: start recording, unless the options were refused."""
        if self._running is None and not self._refused:
            self._configure()
        if self._running is None:
            return
        if self._refuses_unknown_options():
            return
        self._running.bodies.forget()
        if ctx.options.stream_large_bodies:
            logger.warning(
                "tokentee: stream_large_bodies=%s: usage cannot be asked for in larger requests",
                ctx.options.stream_large_bodies,
            )
        if not self._running.undo:
            self._install(self._running)
        settings = self._running.settings
        logger.info(
            "tokentee: ledger %s, commit %s, inject %s",
            self._running.ledger.shown_url,
            "before end" if settings.commit_before_end else "async",
            settings.inject,
        )
        if self._metric_files is None:  # the supervisor of workers says it once
            say_what_is_next(ctx.master)

    def done(self) -> Awaitable[None] | None:
        """Stop, or leave what is under way to the recorder that a reload of the script makes.

        mitmproxy calls this without awaiting on a reload and awaits it at shutdown; an `async
        def` would break the reload.
        """
        if self._skipped:
            logger.info("tokentee: %d saved flows hold no answer; not recorded", self._skipped)
            self._skipped = 0
        if self._running is None:
            return None
        if self._master.addons.get(self.name) is self:
            # It was not removed: the master ends, which says so only if it was not cancelled.
            self._stopping = True
            return lifecycle.stop(self._running)
        running, self._running = self._running, None
        self._master.addons.add(lifecycle.Leaving(running, self._master))
        return None

    # Traffic

    @guarded
    def requestheaders(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """mitmproxy's hook: take the headers for us out, before any of the request goes upstream.

        mitmproxy passes a request that it streams on before it calls `request`. What is known of
        such a request is known now, so its exchange opens now.
        """
        running = self._running
        if running is None or not flow.live:
            return None
        if own := flows.take_own_headers(flow.request.headers):
            running.own_headers[flow.id] = own
        return self.request(flow) if flow.request.stream else None

    @guarded
    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """mitmproxy's hook: open an exchange, before the request goes upstream. mitmproxy awaits
        what comes back for a large body."""
        running = self._running
        if running is not None and flow.id in running.live:
            return None  # its body was streamed
        if self._stopping and flow.live:
            # mitmproxy accepts requests until it exits. One that begins now could pass without a
            # row, and would delay the stop.
            flow.kill()
        is_killed = flow.error is not None and flow.error.msg == Error.KILLED_MESSAGE
        if running is None or (is_killed and flow.response is None):
            return None  # of one that is killed nothing goes upstream
        if not flow.live and not flows.has_answer(flow):
            self._skipped += 1
            return None
        troubles = Troubles()
        own = running.own_headers.pop(flow.id, ())
        request = troubles.attempt(flows.request_of, flow, own)
        if request is None:
            return None
        if flow.live and is_read_in_steps(request, running.rules):
            return self._begin_in_turns(flow, running, request, troubles)
        exchanges.begin(running, flow, request, troubles)
        return None

    @guarded
    async def _begin_in_turns(
        self, flow: http.HTTPFlow, running: Running, request: Request, troubles: Troubles
    ) -> None:
        """Begin an exchange, with turns of other connections while the body is read."""
        running.opening.add(flow.id)
        try:
            steps = readable_in_steps(request, troubles, running.rules)
            readable = await in_turns(steps, troubles) or NOT_READ
            if running.is_over:
                flow.kill()
            else:
                exchanges.begin(running, flow, request, troubles, readable)
        finally:
            running.opening.discard(flow.id)

    # Starting and stopping

    def _install(self, running: Running) -> None:
        """Put in what this process gets of ours, and say so in one line. `lifecycle.close` gives it
        back: a reload of the script changes nothing of it."""
        settings = running.settings
        events = StreamEvents(running)
        said = ["HttpStream stays as it is (tee_wrap=no)"]
        if settings.wraps:
            try:
                from addon.proxy import wrapped  # imports private modules of mitmproxy

                running.undo.append(wrapped.install(events))
                running.can_hold_end = True
                said = ["wraps HttpStream (tee_wrap=no leaves it)"]
            except Exception as unknown:  # noqa: BLE001  # a mitmproxy that it was not written for
                said = [f"not made for this mitmproxy: HttpStream is not wrapped ({unknown})"]
        if not running.can_hold_end:
            said.append(WITHOUT_WRAPPING)
        changed, restore = connections.connect_per_request(ctx.options)
        running.undo.append(restore)
        said += [changed] if changed else []
        owner = owner_of(ctx.master)
        running.is_ours = owner.is_us
        if owner.is_fast(settings.fast):
            running.host = mechanisms.install(
                Place(master=ctx.master, takes_runs=events.takes_runs)
            )
            running.undo.append(running.host.remove)
            said.append(f"{len(running.host.used)} speed-ups of mitmproxy")
            said += [f"not used: {each}" for each in running.host.left_out]
            said[-1] += " (tee_fast=no leaves them out)"
        else:
            said.append("changes nothing else")
        whose = "our own process" if owner.is_us else "a guest"
        level = logging.INFO if running.can_hold_end or not settings.wraps else logging.WARNING
        logger.log(level, "tokentee: %s (%s): %s", whose, owner.reason, "; ".join(said))

    def _leave_if_guest(self, running: Running) -> None:
        """Take the host's mechanisms out where another script has come beside ours."""
        owner = owner_of(ctx.master)
        running.is_ours = owner.is_us
        if running.host is not None and not owner.is_fast(running.settings.fast):
            running.host.remove()
            running.host = None
            logger.info("tokentee: a guest now (%s): speeds mitmproxy up no longer", owner.reason)

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

    def _refuses_unknown_options(self) -> bool:
        """Log each option that no addon declares; whether there is one, which ends the start.

        By now every script is loaded and has declared its own.
        """
        of_files: list[str] = []
        of_command_line: list[str] = []
        for name, value in ctx.options.deferred.items():
            # What `--set` brought is text that waits for its type; files bring typed values.
            is_text = type(value).__name__ == "_UnconvertedStrings"
            (of_command_line if is_text else of_files).append(name)
        lines = options.unknown_options(of_command_line, of_files, known=ctx.options.keys())
        for line in lines:
            logger.error("tokentee: %s", line)
        if lines and self._running is not None:
            self._refused = True
            running, self._running = self._running, None
            lifecycle.abandon(running, self._master)
        return bool(lines)

    def _apply(self, settings: Settings) -> None:
        # `tokentee run` sums up by the program's own tags, so no option overrides them.
        settings = replace(
            settings,
            tags={**settings.tags, **self._tags},
            project=self._project,
            git_branch=self._git_branch,
        )
        running = self._running
        if running is None:
            self._running = lifecycle.start(
                settings, node=self._node, metric_files=self._metric_files
            )
        else:
            options.refuse_late(settings, running.settings)
            lifecycle.apply(settings, running, node=self._node)
