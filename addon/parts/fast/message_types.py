"""Edge. mitmproxy's check of the types in each message, made once for each combination of types.

Why: mitmproxy checks the fields of every request and response that it makes against their
annotations, with an exception made beforehand for each field: 40 to 70 µs a message, a tenth of a
short answer (measured). The result depends on nothing but the types of the values, and they are
the same in nearly all messages. What has passed once is not checked again, and everything else goes
mitmproxy's own way.

Without it nothing but CPU differs: a short stream takes 1.08 to 1.21 times as much, a JSON answer
1.07 to 1.15 times (`tests/bench`, three interleaved runs).
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import http

from addon.proxy.sources import replace_methods

KNOWN_MAX = 256
"""Combinations that are remembered; there are four in ordinary traffic."""


RELIES_ON = {
    "mitmproxy.http:MessageData.__post_init__": "f65088e210cd9cc1",
    "mitmproxy.http:MessageData": "bad2ea9a351a70d6",
    "mitmproxy.http:RequestData": "4371ac6b2dfb38a1",
    "mitmproxy.http:ResponseData": "d616b2451588a1c6",
}
"""The function that is replaced, and the fields that it checks: of each only the type matters."""


def install(_: object) -> Callable[[], None]:
    """Have each combination checked once; returns what undoes it."""
    check = http.MessageData.__post_init__
    known: set[tuple[type, ...]] = set()

    def check_once(data: http.MessageData) -> None:
        kinds = (type(data), *map(type, vars(data).values()))
        if kinds in known:
            return
        check(data)  # type: ignore[no-untyped-call]
        if len(known) < KNOWN_MAX:
            known.add(kinds)

    return replace_methods(http.MessageData, __post_init__=check_once)
