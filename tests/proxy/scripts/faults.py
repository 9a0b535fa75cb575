"""Break any function of ours for the request that names it in `x-fault`: `addon/proxy/answers.py:begin`.

It raises as its first line is reached, at its first call on the event loop; a number after `@` lets
that many calls pass first. A request with `x-fault-record` has the calls of all functions counted, up to the next
request, into the file that `FAULT_RECORD` names.
"""

import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType
from typing import Any

from mitmproxy import http

ROOT = f"{Path(__file__).parents[3]}/"
ROOMS = (f"{ROOT}addon/", f"{ROOT}ledger/")
MONITOR = sys.monitoring
TOOL = 4


class FaultError(Exception):
    """Ours."""


class Faults:
    name = "faults"

    def __init__(self) -> None:
        self.armed = ""
        self.calls_left = 0
        self.calls: dict[str, int] | None = None

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        if self.calls is not None:
            Path(os.environ["FAULT_RECORD"]).write_text(json.dumps(self.calls))
        self.calls = {} if flow.request.headers.pop("x-fault-record", "") else None
        armed, _, calls = flow.request.headers.pop("x-fault", "").partition("@")
        self.calls_left = int(calls or 0)
        self.armed = armed

    def begins(self, code: CodeType, _offset: int) -> Any:
        if not code.co_filename.startswith(ROOMS):
            return MONITOR.DISABLE
        if threading.current_thread() is not threading.main_thread():
            return None
        name = f"{code.co_filename.removeprefix(ROOT)}:{code.co_qualname}"
        if self.calls is not None:
            self.calls[name] = self.calls.get(name, 0) + 1
        if name == self.armed:
            self.calls_left -= 1
            if self.calls_left < 0:
                self.armed = ""
                raise FaultError("a secret prompt must not show")
        return None


faults = Faults()
MONITOR.use_tool_id(TOOL, faults.name)
MONITOR.register_callback(TOOL, MONITOR.events.PY_START, faults.begins)
MONITOR.set_events(TOOL, MONITOR.events.PY_START)
addons = [faults]
