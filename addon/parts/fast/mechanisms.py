"""Edge. All mechanisms of this part, put in by one call and taken out by one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from mitmproxy import http
from mitmproxy.master import Master

from addon.proxy import sources

NAMES = ("hook_lists", "message_types", "chunk_runs", "read_sizes", "websocket_parts")
"""Modules of this room, in the order in which they go in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallContext:
    """What the mechanisms are given."""

    master: Master
    takes_runs: Callable[[http.HTTPFlow], bool]
    """Whether the callable on `flow.response.stream` may be given a `ChunkRun`."""


def install(
    master: Master, takes_runs: Callable[[http.HTTPFlow], bool]
) -> tuple[list[str], Callable[[], None]]:
    """Put in what was written for this mitmproxy; words for the start line, and what puts
    everything back. One that it was not written for is left out, as is one whose import or check
    fails: recording goes on, slower."""
    place = InstallContext(master=master, takes_runs=takes_runs)
    undo: list[Callable[[], None]] = []
    left_out = []
    for name in NAMES:
        try:
            # A renamed module of mitmproxy is an ImportError here, not at the start.
            module = importlib.import_module(f"{__package__}.{name}")
            sources.check(module.RELIES_ON)
            undo.append(module.install(place))
        except Exception as unknown:  # noqa: BLE001  # whatever it is, nothing depends on it
            left_out.append(f"not used: {name} ({unknown})")

    def remove() -> None:
        while undo:
            undo.pop()()

    return [f"{len(undo)} speed-ups of mitmproxy", *left_out], remove
