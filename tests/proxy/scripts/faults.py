"""Break one step of ours for the request that names it in `x-fault`: `addon.metering.answers.meter:Meter.feed`.

A step is broken by wrapping it where it is looked up, before our addon is loaded. A number after `@`
lets that many calls pass first, so that a fault can strike in mid-stream.
"""

import functools
import importlib
import os
from typing import Any

from mitmproxy import http


class FaultError(Exception):
    """Ours."""


class Faults:
    name = "faults"

    def __init__(self) -> None:
        self.armed = ""
        self.calls_left = 0

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        self.armed, _, calls = flow.request.headers.pop("x-fault", "").partition("@")
        self.calls_left = int(calls or 0)

    def strike(self, step: str) -> None:
        if self.armed != step:
            return
        if not self.calls_left:
            raise FaultError("a secret prompt must not show")
        self.calls_left -= 1


def break_on_demand(step: str) -> None:
    module_name, _, path = step.partition(":")
    owner = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    sound = getattr(owner, name)

    @functools.wraps(sound)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        faults.strike(step)
        return sound(*args, **kwargs)

    setattr(owner, name, wrapper)


faults = Faults()
for each in os.environ["FAULT_STEPS"].split():
    break_on_demand(each)
addons = [faults]
