"""Edge. The process that a recording runs in: whose it is, what is changed of mitmproxy in it and
given back, and whether an addon beside us needs bodies whole.

Ours is a process that `tokentee run` made, and a mitmdump whose only script is ours. Every other is
somebody else's: mitmweb, mitmproxy, other scripts or addons beside ours, a program that embeds
mitmproxy. There we are a guest, and change nothing that can be left alone.

mitmproxy buffers a plain answer: `-w` and `hardump` save its body, `flow_detail=3` prints it, and
the `response` hooks of other addons can read and change it. A streamed body reaches none of them.
So plain answers stream only if no addon needs them whole.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mitmproxy import ctx, hooks, http, optmanager
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.tools.dump import DumpMaster

from addon.attach import attached
from addon.proxy.options import Settings

logger = logging.getLogger(__name__)

WITHOUT_WRAPPING = (
    "if upstream refuses our request for usage, the client gets the refusal; answers that are not "
    "streamed are held until they are complete; the end of a stream with a content-length does not "
    "wait for its commit; whether client or upstream broke a stream is a guess; what a cap refuses "
    "before its request has ended is broken off"
)
"""What is not kept where HttpStream is not wrapped."""
_OWN_PACKAGE = __name__.rpartition(".proxy.")[0]
"""`addon`, or `tokentee.addon` in a wheel."""
_OPTION = "connection_strategy"
_SAVING_OPTIONS = ("save_stream_file", "hardump", "modify_body", "store_streamed_bodies")
"""Options of mitmproxy's own addons that save or change a body; not set in most proxies."""
FLOW_DETAIL_OF_BODIES = 3
"""From here on mitmdump prints bodies."""


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
        changed, restore = connect_per_request(ctx.options)
        self._undo.append(restore)
        said += [changed] if changed else []
        owner = owner_of(ctx.master)
        self.is_ours = owner.is_us
        if _is_fast(settings, owner):
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
        if self._undo_speed_ups and not _is_fast(settings, owner):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who owns the process, and why."""

    is_us: bool
    reason: str


def _is_fast(settings: Settings, owner: Owner) -> bool:
    wanted = attached("whether to speed up")
    return any(is_wanted(settings.of_parts, owner.is_us) for is_wanted in wanted)


def owner_of(master: Master) -> Owner:
    """The owner of the process that a master runs in."""
    if type(master).__module__.startswith(f"{_OWN_PACKAGE}."):
        return Owner(is_us=True, reason="tokentee run")
    if type(master) is not DumpMaster:
        kind = type(master).__module__.split(".")[-2:]
        return Owner(is_us=False, reason=f"runs in {'.'.join(kind)}")
    if is_embedded():
        return Owner(is_us=False, reason="a program embeds mitmproxy")
    if len(master.options.scripts) > 1 or any(
        not is_known(addon) for addon in with_children(master.addons.chain)
    ):
        return Owner(is_us=False, reason="other scripts or addons are loaded")
    return Owner(is_us=True, reason="mitmdump with this script alone")


def is_embedded() -> bool:
    """Whether a program of its own runs mitmproxy, and not one of its tools."""
    return Path(sys.argv[0]).stem not in ("mitmdump", "mitmweb", "mitmproxy")


def with_children(addons: Any) -> Iterator[Any]:
    """Addons, and those that they hold: a script holds its own."""
    for addon in addons:
        yield addon
        yield from with_children(getattr(addon, "addons", ()))


def is_known(addon: Any) -> bool:
    """Whether an addon is mitmproxy's or ours. A script is a module; its addons are asked instead,
    unless it is an addon itself."""
    module = type(addon).__module__
    if module == "builtins":  # the module of a script
        return not any(callable(getattr(addon, name, None)) for name in hooks.all_hooks)
    return module.startswith(("mitmproxy.", f"{_OWN_PACKAGE}."))


def connect_per_request(options: Options) -> tuple[str, Callable[[], None]]:
    """Connect upstream per request, unless the operator chose otherwise.

    mitmproxy's default `eager` connects before any request is read, and closes the client's
    connection when upstream refuses: nothing could be recorded of it. Returns words for the start
    line that say what was changed (empty: nothing), and what changes it back.
    """
    modes = options.mode
    if not modes or not all(mode.startswith("reverse:") for mode in modes):
        return "", lambda: None
    if options.connection_strategy == "lazy":
        return "", lambda: None
    # Whether the option was given, even if as its default. On any doubt it was.
    given = getattr(options, "_options", {}).get(_OPTION)
    unset = getattr(optmanager, "unset", None)
    if given is None or unset is None or given.value is not unset:
        logger.warning(
            "tokentee: %s=%s: a request is not recorded if upstream refuses the connection",
            _OPTION,
            options.connection_strategy,
        )
        return "", lambda: None
    options.update(connection_strategy="lazy")

    def restore() -> None:
        if options.connection_strategy == "lazy":
            options.update(connection_strategy="eager")
            # Not set by anybody again, or the next start takes it for the operator's choice.
            option = getattr(options, "_options", {}).get(_OPTION)
            if option is not None:
                option.reset()

    return f"{_OPTION} lazy (default: eager)", restore


@dataclass(slots=True)
class Bodies:
    """Whether other addons or mitmproxy's options need them, determined once for the same addons.
    mitmproxy tells nobody that one was added, or another script loaded again."""

    _are_wanted: bool | None = field(default=None)
    _addons: list[Any] = field(default_factory=list)

    def forget(self) -> None:
        """Forget the result, after a change of options; the next answer determines it."""
        self._are_wanted = None

    @property
    def are_wanted(self) -> bool:
        """Whether a plain answer must be buffered for another addon or an option."""
        addons = list(ctx.master.addons.lookup.values())
        if self._are_wanted is None or addons != self._addons:
            self._addons = addons
            self._are_wanted = (
                any(getattr(ctx.options, name, None) for name in _SAVING_OPTIONS)
                or getattr(ctx.options, "flow_detail", 0) >= FLOW_DETAIL_OF_BODIES
                or has_foreign_hook(ctx.master.addons.chain)
            )
        return self._are_wanted


def has_foreign_hook(addons: Iterable[Any]) -> bool:
    """Whether one of some addons, or of their children, is foreign and has a `response` hook."""
    return any(
        callable(getattr(addon, "response", None)) and not is_known(addon)
        for addon in with_children(addons)
    )
