"""Edge. All mechanisms of the host, put in by one call and taken out by one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

from mitmproxy import http
from mitmproxy.master import Master

from addon.proxy import sources

NAMES = ("hook_lists", "message_types", "chunk_runs", "read_sizes", "websocket_parts")
"""Modules of this room, in the order in which they go in."""


@dataclass(slots=True)
class Host:
    """What was put in."""

    used: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Mechanisms that are not used, each with the reason."""
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def remove(self) -> None:
        """Put everything back as it was."""
        while self._undo:
            self._undo.pop()()
        self.used.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the mechanisms are given."""

    master: Master
    takes_runs: Callable[[http.HTTPFlow], bool]
    """Whether the callable on `flow.response.stream` may be given a `ChunkRun`."""


def install(master: Master, takes_runs: Callable[[http.HTTPFlow], bool]) -> Host:
    """Put in what was written for this mitmproxy. One that it was not written for is left out, as
    is one whose import or check fails: recording goes on, slower."""
    host, place = Host(), Place(master=master, takes_runs=takes_runs)
    for name in NAMES:
        try:
            # A renamed module of mitmproxy is an ImportError here, not at the start.
            module = importlib.import_module(f"{__package__}.{name}")
            sources.check(module.RELIES_ON)
            host._undo.append(module.install(place))
        except Exception as unknown:  # noqa: BLE001  # whatever it is, nothing depends on it
            host.left_out.append(f"{name} ({unknown})")
        else:
            host.used.append(name)
    return host
