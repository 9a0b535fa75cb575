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


def arenas(**environment: str) -> int:
    kept = {key: text for key, text in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", USE_MEMORY],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=kept | environment,
    )
    return done.stdout.count("<heap nr=")


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
