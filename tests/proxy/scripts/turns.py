"""Measures a proxy from inside: the longest turn of its event loop, and when it wrote to the neighbour.

Both are told as `tests/proxy/own_time.py` counts, without what other processes took. A turn is what
goes on between two polls of the selector: it computes, and it may sleep for a lock or a disk. A poll
ends with the interpreter's lock, and a thread that holds it makes the loop wait inside the poll. Each
such wait of one switch interval is one more voluntary context switch, so the wait is counted by those.

`GET /turns` answers with both and begins anew.
"""

import asyncio
import json
import selectors
import sys
import threading
from asyncio import selector_events
from collections.abc import Callable
from os import getpid
from resource import RUSAGE_THREAD, getrusage
from time import monotonic_ns, thread_time_ns
from typing import Any

from mitmproxy import http

from tests.proxy.neighbour import NETWORK, connection_name
from tests.proxy.own_time import Moment, Reader, own_ms

BASELINE_NS = 5_000_000
"""Counters of all threads are read so often, and not at each turn: it takes 0.1 ms."""


class Turns:
    name = "turns"

    def __init__(self) -> None:
        self.reader = Reader(getpid())
        self.loop_thread = threading.get_ident()
        self.longest_ms = 0.0
        self.baseline = self.reader.now()
        self.began = monotonic_ns(), thread_time_ns(), _switches()
        self.writes: dict[str, Moment] = {}
        """The end of the last one on each connection with the neighbour."""

    def end_turn(self) -> None:
        clock, computed, switches = self.began
        passed = monotonic_ns() - clock
        computed = thread_time_ns() - computed
        has_slept = _switches() > switches
        if (passed if has_slept else computed) <= self.longest_ms * 1e6:
            return
        if has_slept:
            now = self.reader.now()
            begin = self.baseline._replace(clock=now.clock - passed, computed=0)
            computed_ms = own_ms(begin, now._replace(computed=computed))
        else:
            computed_ms = computed / 1e6
        self.longest_ms = max(self.longest_ms, computed_ms)

    def begin_turn(self, switches: int) -> None:
        """`switches`: how many there were when the poll began."""
        now = monotonic_ns()
        if now - self.baseline.clock > BASELINE_NS:
            self.baseline = self.reader.now()
        # One is the poll's own, and the last wait for the lock may have been short.
        waits = _switches() - switches - 2
        if waits > 0:
            now -= int(waits * sys.getswitchinterval() * 1e9)
        self.began = now, thread_time_ns(), switches if waits > 0 else _switches()

    def polling(self, poll: Callable[..., Any]) -> Callable[..., Any]:
        def select(selector: object, timeout: float | None = None) -> Any:
            if threading.get_ident() != self.loop_thread:
                return poll(selector, timeout)
            self.end_turn()
            switches = _switches()
            found = poll(selector, timeout)
            self.begin_turn(switches)
            return found

        return select

    def writing(self, write: Callable[..., None]) -> Callable[..., None]:
        def note(transport: asyncio.Transport, data: object) -> None:
            write(transport, data)
            peer = transport.get_extra_info("peername")
            if peer and peer[0].startswith(NETWORK):
                own = transport.get_extra_info("sockname")
                self.writes[connection_name(own, peer)] = self.reader.now()

        return note

    def request(self, flow: http.HTTPFlow) -> None:
        if flow.request.path == "/turns":
            seen = {"turn_ms": self.longest_ms, "writes": self.writes}
            flow.response = http.Response.make(200, json.dumps(seen))
            self.longest_ms = 0.0
            self.writes = {}


def _switches() -> int:
    """How often this thread has slept."""
    return getrusage(RUSAGE_THREAD).ru_nvcsw


turns = Turns()
selectors.DefaultSelector.select = turns.polling(selectors.DefaultSelector.select)  # type: ignore[method-assign]
_transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
_transport.write = turns.writing(_transport.write)
_transport.writelines = turns.writing(_transport.writelines)
addons = [turns]
