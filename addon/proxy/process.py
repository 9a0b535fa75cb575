"""Edge. What is changed of mitmproxy in this process: the one wrapped set, and the speed-ups of a
part where the process is ours; and what gives mitmproxy back as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mitmproxy import ctx, http

from addon.attach import attached
from addon.proxy import connections
from addon.proxy.options import Settings
from addon.proxy.owner import owner_of

logger = logging.getLogger(__name__)

WITHOUT_WRAPPING = (
    "if upstream refuses our request for usage, the client gets the refusal; answers that are not "
    "streamed are held until they are complete; the end of a stream with a content-length does not "
    "wait for its commit; whether client or upstream broke a stream is a guess"
)
"""What is not kept where HttpStream is not wrapped."""


class Process:
    """The process that the recording runs in."""

    def __init__(self) -> None:
        self.is_ours = False
        """As far as is known."""
        self.can_hold_end = False
        """The wrapper that sends a held last chunk is in place."""
        self._undo_speed_ups: list[Callable[[], None]] = []
        """What gives back what parts have put in, where the process is ours."""
        self._undo: list[Callable[[], None]] = []
        self.tasks: list[asyncio.Task[None]] = []
        """Those that watch the caps, and write down what is answered, for `tokentee top`."""
        self.undo_last: list[Callable[[], object]] = []
        """What gives back what stays until the ledger is closed."""

    def install(
        self,
        settings: Settings,
        wrap: Callable[[], Callable[[], None]],
        takes_runs: Callable[[http.HTTPFlow], bool],
    ) -> None:
        """Change mitmproxy as far as this process allows, once, and say so in one line. `wrap` puts
        the wrapped set on, and returns what takes it off; it raises on a mitmproxy that it was not
        written for. `takes_runs`: whether a flow's callable is ours."""
        if self._undo:
            return
        said = ["HttpStream stays as it is (tee_wrap=no)"]
        if settings.wraps:
            try:
                self._undo.append(wrap())
                self.can_hold_end = True
                said = ["wraps HttpStream (off: tee_wrap=no)"]
            except Exception as unknown:  # noqa: BLE001  # a mitmproxy that it was not written for
                said = [
                    f"mitmproxy is of an unsupported version: HttpStream is not wrapped ({unknown})"
                ]
        if not self.can_hold_end:
            said.append(WITHOUT_WRAPPING)
        changed, restore = connections.connect_per_request(ctx.options)
        self._undo.append(restore)
        said += [changed] if changed else []
        owner = owner_of(ctx.master)
        self.is_ours = owner.is_us
        if owner.is_fast(settings.fast):
            for put_in in attached("speed-ups"):
                words, remove = put_in(ctx.master, takes_runs)
                self._undo_speed_ups.append(remove)
                said += [*words[:-1], f"{words[-1]} (off: tee_fast=no)"]
        if not self._undo_speed_ups:
            said.append("changes nothing else")
        whose = "our own process" if owner.is_us else "a guest"
        level = logging.INFO if self.can_hold_end or not settings.wraps else logging.WARNING
        logger.log(level, "tokentee: %s (%s): %s", whose, owner.reason, "; ".join(said))

    def leave_if_guest(self, settings: Settings) -> None:
        """Take the speed-ups out where another script has come beside ours."""
        owner = owner_of(ctx.master)
        self.is_ours = owner.is_us
        if self._undo_speed_ups and not owner.is_fast(settings.fast):
            self._take_out_speed_ups()
            logger.info(
                "tokentee: speed-ups of mitmproxy are off: this is no longer our own process (%s)",
                owner.reason,
            )

    def give_back(self) -> None:
        """Leave mitmproxy as it was."""
        for task in self.tasks:
            task.cancel()
        self._take_out_speed_ups()
        while self._undo:
            self._undo.pop()()

    def _take_out_speed_ups(self) -> None:
        while self._undo_speed_ups:
            self._undo_speed_ups.pop()()
