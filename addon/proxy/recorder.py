"""Edge. mitmproxy's hooks: finds or makes the live exchange, and hands over.

    requestheaders    headers for us are taken out; a request that is streamed is opened
    request           opened: the ledger has its row to write before the request goes upstream
    done              settled: whatever is still open when the proxy stops

The answer's hooks are in `traffic.py`.

Nothing here may hurt the traffic: each hook is guarded (`event_loop.guarded`), which leaves the
traffic as it is, notes the failure on the row and logs one line. The work is that of `recording`.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from mitmproxy import ctx, exceptions, http
from mitmproxy.addonmanager import Loader
from mitmproxy.flow import Error

from addon.framing.grpc import is_grpc
from addon.metering.opening import routes_of
from addon.proxy import flows, lifecycle, options
from addon.proxy.event_loop import guarded
from addon.proxy.health import MetricFiles
from addon.proxy.recording import Recording
from addon.proxy.shown import say_what_is_next
from addon.proxy.traffic import Traffic
from ledger.model.errors import LedgerError
from ledger.text.hints import as_typed

logger = logging.getLogger(__name__)

BOTH_WAYS = ("application/vnd.amazon.eventstream", "application/grpc")
"""Of a request whose client may wait for answers before it sends on (Bedrock's
InvokeModelWithBidirectionalStream over HTTP/2, gRPC): held until its end, it would stand still."""


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
        caps: tuple[object, ...] = (),
    ) -> None:
        """`tags`: for every exchange, beside those of the options; `project` and `git_branch`: what
        every exchange is made for, where it is known; `metric_files`: where a worker counts its
        metrics; `caps`: beside those of the budgets file."""
        super().__init__()
        self._tags = dict(tags or {})
        self._project = project
        self._git_branch = git_branch
        self._metric_files = metric_files
        self._caps = caps
        self._node = f"{socket.gethostname()}/{os.getpid()}/{int(time.time())}"
        self._skipped = 0
        """Saved flows without an answer, in `mitmdump -nr`."""
        self._refused = False
        """The options of the start were bad, and the error is logged."""

    @property
    def recording(self) -> Recording | None:
        """The ledger and what is under way; None while nothing is recorded."""
        return self._recording

    # Start and stop

    def load(self, loader: Loader) -> None:
        """mitmproxy's hook: add the options. A program may load it again, elsewhere."""
        options.add(loader)
        self._master = loader.master
        self._recording, self._stopping, self._refused = None, False, False

    def configure(self, updated: set[str]) -> None:
        """mitmproxy's hook: check the options, and apply those that changed."""
        if self._recording is not None:
            self._recording.bodies.forget()
            if "scripts" in updated:
                self._recording.process.leave_if_guest(self._recording.settings)
        # A script is configured once with all options when it has been loaded. An addon that a
        # master was made with sees them in pieces, and starts in `running`.
        if self._recording is None and not options.help_of().keys() <= updated:
            return
        if updated & options.help_of().keys():
            self._configure()

    def running(self) -> None:
        """mitmproxy's hook: start recording, unless the options were refused."""
        if self._recording is None and not self._refused:
            self._configure()
        if self._recording is None:
            return
        # By now every script is loaded and has declared its own options.
        of_files: list[str] = []
        of_command_line: list[str] = []
        for name, value in ctx.options.deferred.items():
            # What `--set` brought is text that waits for its type; files bring typed values.
            is_text = type(value).__name__ == "_UnconvertedStrings"
            (of_command_line if is_text else of_files).append(name)
        lines = options.unknown_options(of_command_line, of_files, known=ctx.options.keys())
        for line in lines:
            logger.error("tokentee: %s", line)
        if lines:
            self._refused = True
            recording, self._recording = self._recording, None
            lifecycle.abandon(recording, self._master)
            return
        self._recording.bodies.forget()
        if ctx.options.stream_large_bodies:
            logger.warning(
                "tokentee: stream_large_bodies=%s: usage is not asked for in larger requests",
                ctx.options.stream_large_bodies,
            )
        recording, settings = self._recording, self._recording.settings

        def wrap() -> Callable[[], None]:
            from addon.proxy import wrapped  # imports private modules of mitmproxy

            return wrapped.install(wrapped.StreamEvents(recording))

        recording.process.install(settings, wrap, recording.takes_runs)
        logger.info(
            "tokentee: ledger %s, commit %s, inject %s",
            self._recording.ledger.shown_url,
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
            logger.info(
                "tokentee: %d saved flows have no answer and were not recorded", self._skipped
            )
            self._skipped = 0
        if self._recording is None:
            return None
        if self._master.addons.get(self.name) is self:
            # It was not removed: the master ends, which says so only if it was not cancelled.
            self._stopping = True
            return lifecycle.stop(self._recording)
        recording, self._recording = self._recording, None
        self._master.addons.add(lifecycle.Leaving(recording, self._master))
        return None

    # Traffic

    @guarded
    def requestheaders(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """mitmproxy's hook: take the headers for us out, before any of the request goes upstream.

        mitmproxy passes a request that it streams on before it calls `request`. What is known of
        such a request is known now, so its exchange opens now.
        """
        recording = self._recording
        if recording is None or not flow.live:
            return None
        own = flows.take_own_headers(flow.request.headers)
        recording.heads[flow.id] = own, time.monotonic()
        kind = flow.request.headers.get("content-type", "").lower()
        routes = None
        if recording.rules.limits_of:
            routes = routes_of(flows.request_of(flow, own), recording.rules)
        if kind.startswith(BOTH_WAYS):
            # Its caps are asked now, or when its first message is whole (`wrapped.py`).
            is_read = routes is not None and routes.route.dialect.request_message is not None
            flow.request.stream = not (is_read and is_grpc(kind) and recording.process.can_hold_end)
        elif routes is not None:
            flow.request.stream = False  # its caps need the whole request
        return self.request(flow) if flow.request.stream else None

    @guarded
    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """mitmproxy's hook: open an exchange, before the request goes upstream. mitmproxy awaits
        what comes back for a large body."""
        recording = self._recording
        is_begun = (
            flow.request.stream and flow.live and recording and flow.id not in recording.heads
        )
        if recording is not None and (is_begun or flow.id in recording.live):
            return None  # its body was streamed; it may be over, or refused
        if self._stopping and flow.live:
            # mitmproxy accepts requests until it exits. One that begins now could pass without a
            # row, and would delay the stop.
            flow.kill()
        is_killed = flow.error is not None and flow.error.msg == Error.KILLED_MESSAGE
        if recording is None or (is_killed and flow.response is None):
            return None  # of one that is killed nothing goes upstream
        if not flow.live and not flows.has_answer(flow):
            self._skipped += 1
            return None
        has_caps = recording.rules.limits_of is not None
        send = partial(recording.authoriser.admit, recording) if has_caps else recording.send
        reading = recording.begin(flow, send)
        return self._await(flow, reading) if reading is not None else None

    @guarded
    async def _await(self, _flow: http.HTTPFlow, reading: Awaitable[None]) -> None:
        await reading

    # Starting and stopping

    def _configure(self) -> None:
        try:
            settings = options.parse(ctx.options)
            # `tokentee run` sums up by the program's own tags, so no option overrides them.
            rules = replace(
                settings.rules,
                tags={**settings.rules.tags, **self._tags},
                project=self._project,
                git_branch=self._git_branch,
            )
            settings = replace(settings, rules=rules)
            if self._recording is None:
                self._recording = lifecycle.start(
                    settings, node=self._node, metric_files=self._metric_files, caps=self._caps
                )
            else:
                options.refuse_late(settings, self._recording.settings)
                lifecycle.apply(settings, self._recording)
        except (ValueError, LedgerError) as error:
            if self._recording is not None:
                reason = f"tokentee: {error}"
                raise exceptions.OptionsError(reason) from error
            # While mitmproxy starts, an ERROR line ends the start with exit code 1 and without
            # the traceback that an OptionsError would bring.
            named = ctx.options.ledger_url or None
            logger.error("tokentee: %s", as_typed(str(error), os.environ, named))  # noqa: TRY400
            self._refused = True
