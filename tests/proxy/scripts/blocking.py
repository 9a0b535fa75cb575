"""Keeps the event loop, or the next request, busy or waiting: `POST /block/way`."""

import asyncio
import ctypes
import threading
import time

from mitmproxy import http

SECONDS = 1.0
_python = ctypes.PyDLL(None)
"""Its functions keep the interpreter's lock."""


def compute() -> None:
    end = time.thread_time() + SECONDS
    while time.thread_time() < end:
        sum(range(1_000))


def compute_and_sleep() -> None:
    """Of the time, a tenth is computed."""
    for _ in range(10):
        end = time.thread_time() + SECONDS / 100
        while time.thread_time() < end:
            sum(range(1_000))
        time.sleep(SECONDS * 9 / 100)


def hold_the_interpreter() -> None:
    _python.usleep(int(SECONDS * 1e6))


def start_a_thread_that_holds_the_interpreter() -> None:
    threading.Timer(0.02, hold_the_interpreter).start()  # the loop polls by then


def wait_for_a_lock() -> None:
    """Which another thread holds."""
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(SECONDS, lock.release).start()
    with lock:
        pass


def sleep() -> None:
    """As a read of a disk or an answer of a database does."""
    time.sleep(SECONDS)


def hold_the_next_request() -> None:
    """While the loop goes on, as waiting for a commit does."""
    blocking.holds_next = True


WAYS = {
    way.__name__: way
    for way in (
        compute,
        compute_and_sleep,
        start_a_thread_that_holds_the_interpreter,
        wait_for_a_lock,
        sleep,
        hold_the_next_request,
    )
}


class Blocking:
    name = "blocking"
    holds_next = False

    async def request(self, flow: http.HTTPFlow) -> None:
        if self.holds_next:
            self.holds_next = False
            await asyncio.sleep(SECONDS)
        _, _, way = flow.request.path.partition("/block/")
        if way:
            WAYS[way]()
            await asyncio.sleep(0.1)  # a thread has begun by then, and the neighbour has asked
            flow.response = http.Response.make(200)


blocking = Blocking()
addons = [blocking]
