"""mitmproxy's HTTP layers, driven without any socket: what they ask for while peers take steps."""

import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from h2.exceptions import ProtocolError
from mitmproxy import connection, http, options
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, context, events
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.utils import ReceiveBuffer

from addon.attach import attached
from addon.proxy import wrapped as wrapping
from addon.proxy.wrapped import StreamEvents

HOOKS = ("nothing", "stream", "callable", "marks", "drops", "changes", "answers", "kills")
OWN_FAILURES = (NotImplementedError, AssertionError, KeyError, ProtocolError)
"""Of mitmproxy itself, as for trailers over HTTP/1.1."""


class Nobody(StreamEvents):
    """Wants nothing."""

    def __init__(self) -> None:
        pass

    def broke(self, flow: http.HTTPFlow, *, by_client: bool) -> None:
        assert flow.request
        assert isinstance(by_client, bool)

    def sends_again(self, flow: http.HTTPFlow) -> bool:
        assert flow.response
        return False

    def stream_begins(self, flow: http.HTTPFlow) -> None:
        assert flow.response

    def upstream_ended(self, flow: http.HTTPFlow) -> None:
        assert flow.response

    def is_cut_short(self, flow: http.HTTPFlow) -> bool:
        assert flow.response
        return False

    def leaves_broken(self, flow: http.HTTPFlow) -> bool:
        assert flow.websocket
        return False

    def is_asked(self, flow: http.HTTPFlow, held: ReceiveBuffer) -> bool:
        assert flow.request
        assert held
        return False

    def passes_on(self, flow: http.HTTPFlow, held_bytes: int) -> bool:
        assert flow.response
        assert held_bytes
        return False

    def held_length(self, flow: http.HTTPFlow) -> int:
        assert flow.response
        return 0


class Holding(Nobody):
    """A watcher that wants the end of each body under a content-length held."""

    def held_length(self, flow: http.HTTPFlow) -> int:
        assert flow.response
        length = flow.response.headers.get("content-length", "")
        return int(length) if length.isdigit() else 0


@dataclass(frozen=True)
class Step:
    """What one side does next: some bytes, or the end of its connection."""

    from_client: bool
    data: bytes | None


def hook(kind: str, name: str, flow: http.HTTPFlow) -> None:
    """What an addon does."""
    if kind == "kills" and name == "responseheaders" and flow.killable:
        flow.kill()
    elif kind == "answers" and name == "request":
        flow.response = http.Response.make(418, b"tea")
    elif kind == "changes" and name == "response" and flow.response is not None:
        flow.response.content = b"changed"
    elif kind == "uploads" and name == "requestheaders":
        flow.request.stream = True
    elif name == "responseheaders" and flow.response is not None:
        streams: dict[str, bool | Callable[[bytes], bytes | list[bytes]]] = {
            "stream": True,
            "callable": lambda data: data or [],
            # Each piece that another script's callable is given shows in what goes on.
            "marks": lambda data: data + b"|" if data else [],
            "drops": lambda _: [],
        }
        if kind in streams:
            flow.response.stream = streams[kind]


@cache
def proxy_options() -> options.Options:
    """mitmproxy's own, made once: the layers only read them."""
    made = options.Options()
    Proxyserver().load(made)
    return made


def play(
    steps: Iterable[Step],
    kind: str,
    *,
    client_protocol: bytes = b"http/1.1",
    server_protocol: bytes = b"http/1.1",
) -> list[tuple[object, ...]]:
    """What the layers ask for while the peers take these steps.

    Hooks are called as by mitmproxy, which comes back in a turn of its own.
    """
    client = connection.Client(
        peername=("client", 1234),
        sockname=("127.0.0.1", 8080),
        timestamp_start=1.0,
        state=ConnectionState.OPEN,
        proxy_mode=ProxyMode.parse("reverse:http://x"),
        alpn=client_protocol,
    )
    ctx = context.Context(client, proxy_options())
    ctx.server.address = ("x", 80)
    layer: Any = HttpLayer(ctx, HTTPMode.transparent)
    asked: list[tuple[object, ...]] = []
    servers: list[connection.Connection] = []
    todo: deque[events.Event] = deque([events.Start()])
    waiting: deque[Coroutine[Any, Any, None]] = deque()

    def side(which: connection.Connection) -> str:
        return "client" if which is client else f"server {servers.index(which)}"

    def call(name: str, flow: http.HTTPFlow) -> None:
        if not isinstance(flow, http.HTTPFlow):
            return
        hook(kind, name, flow)
        error = flow.error.msg if flow.error else None
        content = flow.response.raw_content if flow.response else None
        trailers = flow.response.trailers if flow.response else None
        asked.append((name, error, content, trailers and trailers.fields))

    def take(command: commands.Command) -> None:
        if isinstance(command, commands.StartHook):
            call(command.name, *command.args())
            if command.blocking:
                waiting.append(server_event(events.HookCompleted(command)))
        elif isinstance(command, commands.OpenConnection):
            servers.append(command.connection)
            command.connection.state = ConnectionState.OPEN
            command.connection.alpn = server_protocol
            asked.append(("open", command.connection.address))
            todo.append(events.OpenConnectionCompleted(command, None))
        elif isinstance(command, commands.SendData):
            asked.append(("send", side(command.connection), command.data))
        elif isinstance(command, commands.CloseConnection):
            asked.append(("close", side(command.connection), getattr(command, "half_close", False)))
            command.connection.state = ConnectionState.CLOSED
        elif isinstance(command, commands.RequestWakeup) and not command.delay:
            todo.append(events.Wakeup(command))

    def feed(event: events.Event) -> None:
        try:
            for command in layer.handle_event(event):
                take(command)
        except OWN_FAILURES as failure:
            asked.append(("raised", type(failure).__name__))

    async def server_event(event: events.Event) -> None:
        feed(event)

    def run() -> None:
        while waiting or todo:
            if not waiting:  # hooks take less time than connections
                feed(todo.popleft())
                continue
            with contextlib.suppress(StopIteration):
                waiting.popleft().send(None)

    run()
    for step in steps:
        peer = client if step.from_client else (servers[-1] if servers else None)
        if peer is None or not peer.state & ConnectionState.CAN_READ:
            continue
        if step.data is None:
            peer.state = ConnectionState.CLOSED
            todo.append(events.ConnectionClosed(peer))
        else:
            todo.append(events.DataReceived(peer, step.data))
        run()
    return asked


def in_a_row(asked: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """With what is sent to one side in a row as one: it may go there in one write."""
    found: list[tuple[object, ...]] = []
    for each in asked:
        before = found[-1] if found else ("",)
        if each[0] == "send" == before[0] and each[1] == before[1]:
            assert isinstance(before[2], bytes)
            assert isinstance(each[2], bytes)
            found[-1] = ("send", each[1], before[2] + each[2])
        else:
            found.append(each)
    return found


@contextlib.contextmanager
def wrapped(watcher: Nobody | None = None) -> Iterator[None]:
    """With the wrapped set, and with what parts put in where the process is ours."""
    master = SimpleNamespace(addons=None)
    undo = [wrapping.install(watcher or Nobody())]
    undo += [put_in(master, lambda _: False)[1] for put_in in attached("speed-ups")]
    try:
        yield
    finally:
        for uninstall in reversed(undo):
            uninstall()
