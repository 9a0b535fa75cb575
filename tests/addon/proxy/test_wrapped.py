"""The wrappers stay off a mitmproxy that they were not written for."""

import asyncio
import contextlib
import itertools
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Client, ConnectionState, Server
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.events import ConnectionClosed
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.server import ConnectionHandler, ConnectionIO
from mitmproxy.test import taddons

from addon.proxy import sources
from addon.proxy.sources import UnknownSourceError
from addon.proxy.wrapped import RELIES_ON, install
from tests.addon.proxy.layers import Nobody
from tests.named import for_each

WRAPPED = (
    "handle_protocol_error",
    "send_response",
    "start_request_stream",
    "start_response_stream",
    "check_body_size",
)


def attributes() -> dict[str, object]:
    return {name: vars(HttpStream)[name] for name in WRAPPED}


class Counts(Nobody):
    """Notes that it was asked."""

    def __init__(self, number: int, asked: set[int]) -> None:
        self.number = number
        self.asked = asked

    def stream_begins(self, flow: object) -> None:
        self.asked.add(self.number)


@for_each("ends", list(itertools.permutations(range(3))))
def test_recordings_of_several_masters_share_the_wrappers_and_may_end_in_any_order(
    ends: tuple[int, ...],
):
    before = attributes()
    asked: set[int] = set()
    undo = [install(Counts(number, asked)) for number in range(3)]
    left = set(range(3))
    for number in ends:
        assert all(attributes()[name] is not before[name] for name in WRAPPED)
        asked.clear()
        with contextlib.suppress(AttributeError):  # it is no real stream
            next(HttpStream.start_response_stream(cast("HttpStream", SimpleNamespace(flow=None))))
        assert asked == left
        undo[number]()
        left.remove(number)
    assert attributes() == before


@for_each("name", WRAPPED)
def test_what_somebody_has_wrapped_since_stays(name: str):
    before = attributes()
    undo = install(Nobody())

    def theirs(*_: object) -> None:
        """Somebody else's."""

    setattr(HttpStream, name, theirs)
    try:
        undo()
        assert attributes() == {**before, name: theirs}
    finally:
        for each, function in before.items():
            setattr(HttpStream, each, function)


@for_each("name", RELIES_ON)
def test_with_another_source_nothing_is_wrapped(name: str, monkeypatch: pytest.MonkeyPatch):
    before = {each: getattr(HttpStream, each) for each in WRAPPED}
    monkeypatch.setitem(RELIES_ON, name, "0" * 16)
    with pytest.raises(UnknownSourceError, match=name.rpartition(".")[2]):
        install(Nobody())
    assert {each: getattr(HttpStream, each) for each in WRAPPED} == before


class NoHooks(ConnectionHandler):
    async def handle_hook(self, hook: StartHook) -> None:
        """None is asked."""


@for_each("is_wrapped", [True, False])
async def test_a_reset_is_told_although_its_task_was_cancelled(is_wrapped: bool):
    """Another task met it first, as a write failed, and cancels the one that waits to tell of it.
    Without the wrapper mitmproxy tells nobody."""
    layer = Mock()
    layer.handle_event.return_value = ()
    server = Server(address=("127.0.0.1", 1))
    server.state = ConnectionState.OPEN
    with taddons.context(Proxyserver()) as context:
        client = Client(peername=("127.0.0.1", 2), sockname=("127.0.0.1", 3), timestamp_start=0.0)
        handler = NoHooks(Context(client, context.options))
    handler.layer = layer
    reader, writer = asyncio.StreamReader(), Mock()
    reader.feed_eof()
    undo = install(Nobody()) if is_wrapped else lambda: None
    try:
        await handler._server_event_lock.acquire()
        task = asyncio.create_task(handler.handle_connection(server))
        handler.transports[server] = ConnectionIO(handler=task, reader=reader, writer=writer)
        while not handler._server_event_lock._waiters:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        handler._server_event_lock.release()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        undo()
    if is_wrapped:
        ((event,), _) = layer.handle_event.call_args
        assert isinstance(event, ConnectionClosed)
        assert event.connection is server
        assert (server.state, handler.transports) == (ConnectionState.CLOSED, {})
        writer.close.assert_called_once()
    else:
        layer.handle_event.assert_not_called()


def test_what_is_relied_on_is_known_here():
    """`.ci/against` runs this with other versions of mitmproxy."""
    sources.check(RELIES_ON)
