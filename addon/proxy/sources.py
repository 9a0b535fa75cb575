"""Edge (reads the source of libraries). Which functions of mitmproxy ours were written for, and how
they are replaced.

A function that is wrapped, replaced or relied on is known by a digest of its source. An argument
that keeps its name says nothing of what the function does now. What cannot be found, read or
recognised is unknown: then nothing is replaced.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

DIGEST_CHARACTERS = 16

KNOWN: dict[str, str] = {
    "h11._readers:ChunkedReader": "4d2629eeaaf366b6",
    "h11._receivebuffer:ReceiveBuffer": "108c4355eb3b1717",
    "mitmproxy.addonmanager:AddonManager": "6be8dc580f5c66bf",
    "mitmproxy.addonmanager:safecall": "f2052c18340e99b0",
    "mitmproxy.http:MessageData": "bad2ea9a351a70d6",
    "mitmproxy.http:MessageData.__post_init__": "f65088e210cd9cc1",
    "mitmproxy.http:RequestData": "4371ac6b2dfb38a1",
    "mitmproxy.http:ResponseData": "d616b2451588a1c6",
    "mitmproxy.proxy.layers.http._http1:Http1Client.send": "35d961e20d481204",
    "mitmproxy.proxy.layers.http._http1:Http1Connection.read_body": "aece271029af36e4",
    "mitmproxy.proxy.layers.http._http1:Http1Server.send": "cc218a1337c0f5cf",
    "mitmproxy.proxy.layers.http:HttpStream._handle_event": "e3cbfef7310ae81f",
    "mitmproxy.proxy.layers.http:HttpStream.check_body_size": "236ca0a7b9fd4f69",
    "mitmproxy.proxy.layers.http:HttpStream.check_killed": "368cad352d1e82b6",
    "mitmproxy.proxy.layers.http:HttpStream.handle_protocol_error": "59fc3b2eeeabf63a",
    "mitmproxy.proxy.layers.http:HttpStream.make_server_connection": "ddc7bc72f4d2fbc7",
    "mitmproxy.proxy.layers.http:HttpStream.send_response": "d581bc106152e369",
    "mitmproxy.proxy.layers.http:HttpStream.start_response_stream": "b0de9e9a5ee27276",
    "mitmproxy.proxy.layers.http:HttpStream.state_consume_response_body": "5323db61dfc7e2e1",
    "mitmproxy.proxy.layers.http:HttpStream.state_errored": "3e7a286f27b15880",
    "mitmproxy.proxy.layers.http:HttpStream.state_stream_response_body": "3fb6320300d3ddd5",
    "mitmproxy.proxy.layers.http:HttpStream.state_wait_for_response_headers": "10e32e91b2948164",
    "mitmproxy.proxy.layers.websocket:WebsocketConnection": "9c6f5dd6ece0042e",
    "mitmproxy.proxy.server:ConnectionHandler.drain_writers": "6b57434604561e3e",
    "mitmproxy.proxy.server:ConnectionHandler.handle_connection": "95c3f93e9824e527",
    "mitmproxy.proxy.server:ConnectionHandler.server_event": "a2b42657ebe8bf6d",
}
"""`module:name` of a function or class -> digest of its source in mitmproxy 12.2.3 and 12.3.1 and
h11 0.16."""


class UnknownSourceError(Exception):
    """This is not the library that ours was written for."""


def check(names: Iterable[str]) -> None:
    """Raise UnknownSourceError unless the source of each of them is known."""
    for name in names:
        try:
            found = digest_of(name)
        except Exception as missing:
            raise UnknownSourceError(f"{name}: {type(missing).__name__}") from missing
        if found != KNOWN.get(name):
            raise UnknownSourceError(f"another {name}")


def replace_methods(owner: type, **functions: Callable[..., Any]) -> Callable[[], None]:
    """Put functions in the place of a class's methods; returns what puts those back."""
    before = {name: vars(owner).get(name) for name in functions}
    for name, function in functions.items():
        setattr(owner, name, function)

    def restore() -> None:
        for name, function in before.items():
            if vars(owner).get(name) is not functions[name]:
                continue  # somebody has wrapped ours since, and would lose that
            if function is None:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, function)

    return restore


def digest_of(name: str) -> str:
    """The digest of the source of `module:name`. Raises what importing and reading it raises."""
    module, _, path = name.partition(":")
    found: Any = reduce(getattr, path.split("."), importlib.import_module(module))
    return hashlib.sha256(inspect.getsource(found).encode()).hexdigest()[:DIGEST_CHARACTERS]
