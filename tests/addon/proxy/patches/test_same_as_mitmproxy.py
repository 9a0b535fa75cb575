"""mitmproxy's HTTP layers do the same with the wrappers as without, whatever the two peers send.

mitmproxy's own tests of these layers are not in its package. So the layers are driven here as they
are there, without any socket: drawn requests and answers in drawn pieces, ends and resets at drawn
places, hooks that stream or change what passes. What is compared is everything that the layers ask
for: hooks, bytes to either side, connections opened and closed.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st
from mitmproxy import connection, http, options
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, context, events
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode
from mitmproxy.proxy.mode_specs import ProxyMode

from addon.proxy.patches import chunk_runs, http_stream, message_types

REQUESTS = (
    b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nb",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc",
    b"GET /a HTTP/1.0\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    b"rubbish\r\n\r\n",
)
ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nx-t: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
    b"HTTP/1.1 500 No\r\ncontent-length: 99\r\n\r\nshort",
    b"rubbish\r\n\r\n",
)
HOOKS = ("nothing", "stream", "callable", "marks", "drops", "changes", "answers", "kills")


class Nobody:
    """A watcher that wants nothing."""

    def broke(self, flow: http.HTTPFlow, *, by_client: bool) -> None:
        assert flow.request
        assert isinstance(by_client, bool)

    def asks_again(self, flow: http.HTTPFlow) -> bool:
        assert flow.response
        return False

    def stream_begins(self, flow: http.HTTPFlow) -> None:
        assert flow.response

    def upstream_ended(self, flow: http.HTTPFlow) -> None:
        assert flow.response

    def is_cut_short(self, flow: http.HTTPFlow) -> bool:
        assert flow.response
        return False

    def release_held_end(self, flow: http.HTTPFlow) -> bytes:
        assert flow.request
        return b""


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


def play(steps: list[Step], kind: str) -> list[tuple[object, ...]]:
    """What the layers ask for while the peers take these steps."""
    opts = options.Options()
    Proxyserver().load(opts)
    client = connection.Client(
        peername=("client", 1234),
        sockname=("127.0.0.1", 8080),
        timestamp_start=1.0,
        state=ConnectionState.OPEN,
        proxy_mode=ProxyMode.parse("reverse:http://x"),
    )
    ctx = context.Context(client, opts)
    ctx.server.address = ("x", 80)
    layer = HttpLayer(ctx, HTTPMode.transparent)
    asked: list[tuple[object, ...]] = []
    servers: list[connection.Connection] = []
    todo: deque[events.Event] = deque([events.Start()])

    def side(which: connection.Connection) -> str:
        return "client" if which is client else f"server {servers.index(which)}"

    def take(command: commands.Command) -> None:
        if isinstance(command, commands.StartHook):
            flow = next(iter(command.args()))
            if isinstance(flow, http.HTTPFlow):
                hook(kind, command.name, flow)
                error = flow.error.msg if flow.error else None
                content = flow.response.raw_content if flow.response else None
                asked.append((command.name, error, content))
        elif isinstance(command, commands.OpenConnection):
            servers.append(command.connection)
            command.connection.state = ConnectionState.OPEN
            asked.append(("open", command.connection.address))
            todo.append(events.OpenConnectionCompleted(command, None))
        elif isinstance(command, commands.SendData):
            asked.append(("send", side(command.connection), command.data))
        elif isinstance(command, commands.CloseConnection):
            asked.append(("close", side(command.connection), getattr(command, "half_close", False)))
            command.connection.state = ConnectionState.CLOSED
        elif isinstance(command, commands.RequestWakeup):
            todo.append(events.Wakeup(command))
        if isinstance(command, commands.StartHook) and command.blocking:
            todo.append(events.HookCompleted(command))

    def run() -> None:
        while todo:
            try:
                for command in layer.handle_event(todo.popleft()):
                    take(command)
            except (NotImplementedError, AssertionError) as failure:  # its own, as for trailers
                asked.append(("raised", type(failure).__name__))

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


@st.composite
def steps_of(draw: st.DrawFn) -> list[Step]:
    """Exchanges, one after the other, each in pieces, and perhaps an end before the end."""
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        for from_client, data in (
            (True, draw(st.sampled_from(REQUESTS))),
            (False, draw(st.sampled_from(ANSWERS))),
        ):
            cuts = sorted(draw(st.sets(st.integers(1, len(data) - 1), max_size=3)))
            places = [0, *cuts, len(data)]
            pieces = [data[a:b] for a, b in itertools.pairwise(places)]
            steps += [Step(from_client, piece) for piece in pieces]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(steps)))
        steps.insert(at, Step(draw(st.booleans()), None))
    steps.append(Step(draw(st.booleans()), None))
    return steps


@contextlib.contextmanager
def wrapped() -> Iterator[None]:
    uninstalls = [
        http_stream.install(Nobody()),
        chunk_runs.install(takes_runs=lambda _: False),
        message_types.install(),
    ]
    try:
        yield
    finally:
        for uninstall in reversed(uninstalls):
            uninstall()


def joined(asked: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """With what is sent to one side in a row as one: chunks of one read may go on together."""
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


@settings(max_examples=100, deadline=None)
@given(steps_of(), st.sampled_from(HOOKS))
@example([Step(True, REQUESTS[0]), Step(False, ANSWERS[2])], "marks")
def test_the_layers_ask_for_the_same(steps: list[Step], kind: str) -> None:
    theirs = play(steps, kind)
    with wrapped():
        ours = play(steps, kind)
    assert joined(ours) == joined(theirs)


def test_an_exchange_passes_through_the_driver() -> None:
    """What is compared is no empty list."""
    asked = play([Step(True, REQUESTS[2]), Step(False, ANSWERS[2])], "callable")
    sent = [each for each in asked if each[0] == "send"]
    assert [name for name, *_ in asked if name in ("request", "response")] == [
        "request",
        "response",
    ]
    assert b"body" in b"".join(data for _, to, data in sent if to == "server 0")  # type: ignore[misc]
    assert b"hello" in b"".join(data for _, to, data in sent if to == "client").replace(  # type: ignore[misc]
        b"\r\n3\r\n", b""
    )
