"""Edge. What stands between our code and mitmproxy's event loop: no error of ours gets to it, and
other connections go on during long work.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Generator
from typing import Any, cast

from mitmproxy import http

from addon.metering.answers.backlog import TURN_SECONDS
from addon.metering.troubles import Troubles


def guarded[F: Callable[..., Any]](method: F) -> F:
    """A hook, or an answer to a question of `wrapped`, that never raises: it returns None instead.

    mitmproxy logs an error of a hook with its text, which may quote traffic; one in a layer leaves
    the client waiting. The method's object has `failed(flow, failure)`, which notes the error.
    """
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def guard_async(self: Any, flow: http.HTTPFlow, *args: Any) -> Any:
            try:
                return await method(self, flow, *args)
            except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the traffic
                return self.failed(flow, failure)

        return cast("F", guard_async)

    @functools.wraps(method)
    def guard(self: Any, flow: http.HTTPFlow, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, flow, *args, **kwargs)
        except Exception as failure:  # noqa: BLE001  # as above
            return self.failed(flow, failure)

    return cast("F", guard)


async def in_turns[T](steps: Generator[None, None, T], troubles: Troubles) -> T | None:
    """What the steps come to; None where one of them raises, which is noted in `troubles`."""
    turn_ends = time.monotonic() + TURN_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        except Exception as failure:  # noqa: BLE001  # the guard between our bugs and the traffic
            troubles.add_failure(failure, "it is not read")
            return None
        if time.monotonic() >= turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.monotonic() + TURN_SECONDS
