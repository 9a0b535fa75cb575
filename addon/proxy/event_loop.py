"""Edge. What stands between our code and mitmproxy's event loop: no error of ours gets to it, other
connections go on during long work, and waiting until the writer's thread has committed a reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

from mitmproxy import http

from addon.metering.backlog import TURN_SECONDS
from ledger.store.writing.incoming import Receipt
from ledger.text.figures import seconds_text

logger = logging.getLogger(__name__)

COMMIT_WAIT_SECONDS_MAX = 5.0
"""How long the end of an answer waits for its commit. An fsync takes milliseconds; a disk that
takes longer than this has a problem, and delaying clients further would not help: the wait ends,
one line is logged, and the reading is written as soon as the disk works again. Its row says so."""


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


async def in_turns(steps: Generator[None]) -> None:
    """Take the steps, with turns of other connections between them."""
    turn_ends = time.monotonic() + TURN_SECONDS
    for _ in steps:
        if time.monotonic() >= turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.monotonic() + TURN_SECONDS


async def wait_for_commit(receipt: Receipt) -> None:
    """Wait until a reading is committed or refused, or the bound is reached; its end then goes on,
    and its row says so if it was not committed by then."""
    if not receipt.is_resolved:
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        receipt.context = waiting
        bound = loop.call_later(COMMIT_WAIT_SECONDS_MAX, _resolve, waiting)
        try:
            await waiting
        finally:
            bound.cancel()
        if not receipt.is_resolved:
            logger.warning(
                "tokentee: exchange %s is not on disk after %s; its client waits no longer",
                receipt.exchange_id,
                seconds_text(COMMIT_WAIT_SECONDS_MAX),
            )
    receipt.is_let_go = not receipt.committed


def notifier(loop: asyncio.AbstractEventLoop) -> Callable[[Sequence[Receipt]], None]:
    """The callback that the writer calls, on its own thread, for each batch that it committed.

    At most one wake-up of the loop is under way: each is a byte in the pipe from which asyncio
    also takes signals, and a SIGTERM that finds the pipe full is lost.
    """
    committed: deque[Receipt] = deque()
    is_called = False

    def resolve_all() -> None:
        nonlocal is_called
        is_called = False  # first, so that a later batch calls again
        while committed:
            receipt = committed.popleft()
            if receipt.context is not None:
                _resolve(receipt.context)

    def notify(receipts: Sequence[Receipt]) -> None:
        nonlocal is_called
        committed.extend(receipts)
        if is_called:
            return
        is_called = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: no hook waits any more
            loop.call_soon_threadsafe(resolve_all)

    return notify


def _resolve(waiting: object) -> None:
    assert isinstance(waiting, asyncio.Future)
    if not waiting.done():
        waiting.set_result(None)
