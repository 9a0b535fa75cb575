"""Edge. Settings of the process that mitmproxy runs in. All of them are here."""

import ctypes
import gc
import os
import sys

YOUNG_OBJECTS_MAX = 10_000
"""Objects between two young collections; Python's own default is 700 to 2 000. A busy proxy makes
some hundred objects for each exchange, nearly all of them freed by reference counts."""
YOUNGER_COLLECTIONS = 3
"""Collections of a generation before the next older one is collected, too. What is under way at a
collection gets older, so its garbage waits for more of them. With 20, the middle generation was
collected once in 6 000 streams, the oldest thus once in 120 000, and after 200 000 a proxy kept 6
to 8 MB more (measured). What was loaded at the start is out of sight, so the older generations hold
little else than what is under way."""


def tune_garbage_collector() -> None:
    """Move what was loaded at the start out of the garbage collector's sight.

    Modules, tables and price lists stay for good. Measured with `tests/bench/bench_proxy.py` on
    one core: walking them again and again costs a busy proxy 3 to 5 percent of its requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, YOUNGER_COLLECTIONS, YOUNGER_COLLECTIONS)


ARENAS_MAX = 1
"""Parts of memory that glibc keeps. Each thread takes one of its own otherwise, and what is free in
one serves no other."""
MAPPED_BYTES_MIN = 128 * 1024
"""Blocks from this size on go back to the system at once. glibc starts with this, and raises it to
the largest block that was ever freed."""
FREE_BYTES_MAX = 1024 * 1024
"""Free memory at the end of the heap goes back to the system from this size on."""
_MALLOPT = {
    "MALLOC_ARENA_MAX": (-8, ARENAS_MAX),
    "MALLOC_MMAP_THRESHOLD_": (-3, MAPPED_BYTES_MIN),
    "MALLOC_TRIM_THRESHOLD_": (-1, FREE_BYTES_MAX),
}
"""The environment variable of a setting -> its number for mallopt(3), and our value."""


def limit_allocator() -> None:
    """Let glibc keep less free memory, where the operator did not set it up.

    To be called before the first thread is started. Other libraries than glibc have no `mallopt`.
    Measured after load, together with half the page cache: 4 to 8 MB less, for the same CPU.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for variable, (number, value) in _MALLOPT.items():
            if variable not in os.environ:
                mallopt(number, value)
