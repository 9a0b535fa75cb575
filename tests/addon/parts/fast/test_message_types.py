"""What mitmproxy refuses in a message stays refused, and is checked once for each kind; the parts of a WebSocket
message are joined in place, and relayed as mitmproxy relays them."""

import contextlib
from collections.abc import Iterator

import pytest
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.options import Options
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.websocket import WebsocketConnection, WebsocketLayer
from mitmproxy.test import tflow
from wsproto import ConnectionType

from addon.parts.fast import message_types, websocket_parts
from tests.named import for_each
from tests.proxy.test_websocket_attacks import BINARY, CONTINUATION, PING, TEXT, frame


@pytest.fixture
def checked(monkeypatch):
    """The messages that mitmproxy's own check has seen since the patch was put on."""
    seen: list[http.MessageData] = []
    own = http.MessageData.__post_init__

    def check(data: http.MessageData) -> None:
        seen.append(data)
        own(data)

    monkeypatch.setattr(http.MessageData, "__post_init__", check)
    uninstall = message_types.install(None)
    yield seen
    uninstall()
    assert http.MessageData.__post_init__ is check


def request(**more) -> http.Request:
    given = {
        "host": "a.example",
        "port": 443,
        "method": b"POST",
        "scheme": b"https",
        "authority": b"",
        "path": b"/",
        "http_version": b"HTTP/1.1",
        "headers": http.Headers(),
        "content": b"",
        "trailers": None,
        "timestamp_start": 1.0,
        "timestamp_end": None,
    }
    return http.Request(**{**given, **more})


def test_a_kind_of_message_is_checked_once(checked):
    for _ in range(3):
        request()
        http.Response.make(200, b"x")
    assert len(checked) == 2
    request(content=None)
    assert len(checked) == 3


@pytest.mark.parametrize(
    "wrong", [{"port": "443"}, {"timestamp_end": "now"}, {"path": None}, {"trailers": b""}]
)
def test_what_is_wrong_is_refused_every_time(checked, wrong):
    request()
    for _ in range(2):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            http.RequestData(**{**vars(request().data), **wrong})


def test_no_more_kinds_are_remembered_than_there_is_room_for(checked, monkeypatch):
    monkeypatch.setattr(message_types, "KNOWN_MAX", 0)
    for _ in range(3):
        request()
    assert len(checked) == 3


SENT = (
    frame(TEXT, "ä€".encode() * 5_000, ends=False)
    + frame(PING, b"p")
    + frame(CONTINUATION, b"b" * 300)
    + frame(BINARY, bytes(70_000), ends=False)
    + frame(CONTINUATION, b"", ends=False)
    + frame(CONTINUATION, b"c")
    + frame(TEXT, b"")
)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    uninstall = websocket_parts.install(None)
    try:
        yield
    finally:
        uninstall()
    assert not hasattr(WebsocketConnection, "frame_buf")


def relayed(cut: int) -> tuple[list[bytes], list[bytes]]:
    """What goes upstream of `SENT` in parts of this size, and the messages of the flow."""
    flow = tflow.twebsocketflow(messages=False)
    assert flow.websocket is not None
    flow.websocket.messages.clear()
    context = Context(flow.client_conn, Options())
    context.server = flow.server_conn
    for side in (context.client, context.server):
        side.state = ConnectionState.OPEN
    layer = WebsocketLayer(context, flow)
    todo: list[events.Event] = [events.Start()]
    todo += [
        events.DataReceived(context.client, SENT[at : at + cut]) for at in range(0, len(SENT), cut)
    ]
    sent = []
    while todo:
        for command in layer.handle_event(todo.pop(0)):
            if isinstance(command, commands.StartHook):
                todo.insert(0, events.HookCompleted(command, None))
            elif isinstance(command, commands.SendData):
                sent.append(command.data)
    return sent, [message.content for message in flow.websocket.messages]


@for_each("cut", [1_000, 4_096, len(SENT)])
def test_messages_are_relayed_as_before(cut: int):
    # The masks of what is sent are random: lengths and messages are compared.
    before, expected = relayed(cut)
    with installed():
        after, found = relayed(cut)
    assert found == expected
    assert [type(content) for content in found] == [bytes] * 3
    assert [len(data) for data in after] == [len(data) for data in before]
    assert len(found) == 3


def connection() -> WebsocketConnection:
    return WebsocketConnection(ConnectionType.SERVER, conn=tflow.tclient_conn())


def test_what_came_at_once_is_not_copied():
    came = bytes(range(100))
    with installed():
        one = connection()
        one.frame_buf[-1] += came
        assert b"".join(one.frame_buf) is came


def test_a_part_is_extended_in_place():
    with installed():
        one = connection()
        one.frame_buf[-1] += b"a"
        one.frame_buf[-1] += b"b"
        part = one.frame_buf[-1]
        one.frame_buf[-1] += b"c"
        one.frame_buf[-1] += b"d"
        assert one.frame_buf[-1] is part
        one.frame_buf.append(b"")
        one.frame_buf[-1] += b"e"
        assert b"".join(one.frame_buf) == b"abcde"
        one.frame_buf = [b""]
        one.frame_buf[-1] += b"d"
    one.frame_buf[-1] += b"e"  # a connection that goes on after us
    assert b"".join(one.frame_buf) == b"de"


def test_a_connection_from_before_goes_on():
    one = connection()
    one.frame_buf[-1] += b"a"
    with installed():
        one.frame_buf[-1] += b"b"
        assert b"".join(one.frame_buf) == b"ab"
