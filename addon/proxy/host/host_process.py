"""Edge. Settings of the process that mitmproxy runs in. All of them are here."""

import gc

YOUNG_OBJECTS_MAX = 10_000
"""Objects between two young collections; Python's own default is 700 to 2 000. A busy proxy makes
some hundred objects for each exchange, nearly all of them freed by reference counts."""


def tune_garbage_collector() -> None:
    """Move what was loaded at the start out of the garbage collector's sight.

    Modules, tables and price lists stay for good. Measured with `tests/bench/bench_proxy.py` on
    one core: walking them again and again costs a busy proxy 3 to 5 percent of its requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, 20, 20)
