"""Edge. Long work on the event loop, in turns: other connections go on meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

from addon.metering.answers.backlog import TURN_SECONDS
from addon.metering.troubles import Troubles


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
