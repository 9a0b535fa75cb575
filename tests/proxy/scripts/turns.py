"""Measures the event loop: the longest turn since it was asked last, in CPU time of its thread.

CPU time does not depend on what else runs on the machine. `GET /turns` answers with milliseconds.
"""

import time
from asyncio import base_events

from mitmproxy import http

_run_once = base_events.BaseEventLoop._run_once  # type: ignore[attr-defined]


class Turns:
    name = "turns"

    def __init__(self) -> None:
        self.longest = 0.0

    def load(self, _loader: object) -> None:
        def run_once(loop: base_events.BaseEventLoop) -> None:
            began = time.thread_time()
            _run_once(loop)
            self.longest = max(self.longest, time.thread_time() - began)

        base_events.BaseEventLoop._run_once = run_once  # type: ignore[attr-defined]

    def request(self, flow: http.HTTPFlow) -> None:
        if flow.request.path == "/turns":
            flow.response = http.Response.make(200, f"{1000 * self.longest:.1f}")
            self.longest = 0.0


addons = [Turns()]
