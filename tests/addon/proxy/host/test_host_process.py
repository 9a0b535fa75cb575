"""Settings of the process, each in a process of its own."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from addon.proxy.host import host_process

USE_MEMORY = """
import ctypes, os, sys, threading
from addon.proxy.host.host_process import limit_allocator

limit_allocator()
libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
kept = []
thread = threading.Thread(target=lambda: kept.append(libc.malloc(ctypes.c_size_t(50_000))))
thread.start()
thread.join()
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""
"""Prints glibc's account of its arenas after a thread took memory."""

LEAVE_GARBAGE = """
import collections
from addon.proxy.host.host_process import tune_garbage_collector

class Exchange:
    kept = 0

    def __init__(self):
        Exchange.kept += 1
        self.own = [self, *([] for _ in range(30))]

    def __del__(self):
        Exchange.kept -= 1

tune_garbage_collector()
under_way = collections.deque(maxlen=100)
most = 0
for _ in range(50_000):
    under_way.append(Exchange())
    most = max(most, Exchange.kept)
print(most)
"""
"""Prints how many exchanges there were in memory at most, while 100 were under way. A young
collection comes after some 300."""


def printed(program: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment,
    )
    return done.stdout


def arenas(**environment: str) -> int:
    kept = {key: text for key, text in os.environ.items() if not key.startswith("MALLOC_")}
    return printed(USE_MEMORY, kept | environment).count("<heap nr=")


@pytest.mark.process
def test_what_got_older_while_it_was_under_way_is_collected_soon():
    assert 400 < int(printed(LEAVE_GARBAGE)) < 1_400


@pytest.mark.process
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_threads_share_one_arena_unless_the_operator_wants_more():
    assert arenas() == 1
    assert arenas(MALLOC_ARENA_MAX="8") == 2


def test_other_systems_are_left_alone(monkeypatch):
    asked: list[object] = []
    monkeypatch.setattr(ctypes, "CDLL", asked.append)
    monkeypatch.setattr(sys, "platform", "darwin")
    host_process.limit_allocator()
    assert asked == []


def test_a_library_without_the_setting_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    host_process.limit_allocator()
