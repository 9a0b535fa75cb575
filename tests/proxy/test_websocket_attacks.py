"""Attacks over WebSockets, by a hostile client or upstream, measured as those of `test_attacks`.

Frames that no library would send are made by hand and written to the socket. Each side says what
it received, which is compared with what it receives through a proxy without us. A few attacks run by
default; `pytest -m "proxy and (nightly or not nightly)" tests/proxy/test_websocket_attacks.py` runs all.
"""

import contextlib
import hashlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache, partial
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

from tests.conftest import Say
from tests.proxy.arena import ATTACK_SECONDS_MAX, Arena, check, params, running_arena, section
from tests.proxy.mitmdump import Mitmdump

pytestmark = [pytest.mark.proxy, pytest.mark.nightly, pytest.mark.timeout(300)]

SECTION = section("WebSocket attacks")

type Connection = ClientConnection | ServerConnection
MB = 1_000_000
CREATE = b'{"type":"response.create","model":"m","input":"hi"}'
CONTINUATION, TEXT, BINARY, PING, PONG = 0, 1, 2, 9, 10


@dataclass(frozen=True)
class WebSocketAttack:
    """What the client does once the handshake is over, and what the upstream does meanwhile."""

    name: str
    client: Callable[[Connection], None]
    server: Callable[[Connection], None] = lambda _: None
    _: KW_ONLY
    is_compressed: bool = False
    is_compared: bool = True
    """Not where the moment at which a connection breaks decides how much arrives."""
    is_quick: bool = False


up = WebSocketAttack
down = partial(WebSocketAttack, client=lambda _: None)


def frame(opcode: int, payload: bytes, *, ends: bool = True, masked: bool = True) -> bytes:
    """One frame by hand."""
    head = bytes([opcode | (0x80 if ends else 0)])
    bit = 0x80 if masked else 0
    if len(payload) < 126:
        head += bytes([bit | len(payload)])
    elif len(payload) < 65_536:
        head += bytes([bit | 126]) + struct.pack(">H", len(payload))
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", len(payload))
    return head + (bytes(4) if masked else b"") + payload  # a mask of zeros changes nothing


def raw(data: Callable[[], bytes]) -> Callable[[Connection], None]:
    """Write bytes past the library."""

    def write(connection: Connection) -> None:
        with contextlib.suppress(OSError):
            connection.socket.sendall(_made(data))

    return write


def messages(message: Callable[[], str | bytes], count: int) -> Callable[[Connection], None]:
    def send(connection: Connection) -> None:
        made = _made(message)
        for _ in range(count):
            connection.send(made)

    return send


@lru_cache(maxsize=1)
def _made[T: str | bytes](make: Callable[[], T]) -> T:
    """Made when it is played, once for both proxies: all together are more than 100 MB."""
    return make()


def answers(count: int) -> Callable[[Connection], None]:
    """So many whole responses, each with its usage."""

    def send(connection: Connection) -> None:
        for number in range(count):
            response = {"id": f"resp_{number}", "model": "m"}
            usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
            connection.send(json.dumps({"type": "response.created", "response": response}))
            done = {**response, "status": "completed", "usage": usage}
            connection.send(json.dumps({"type": "response.completed", "response": done}))

    return send


def half_close(connection: Connection) -> None:
    connection.send(CREATE)
    connection.socket.shutdown(socket.SHUT_WR)


def completed(inside: bytes) -> bytes:
    """A message of upstream's that must be read, with anything in it."""
    return b'{"type":"response.completed","response":{"id":"r","x":' + inside + b"}}"


def fragments() -> bytes:
    return frame(TEXT, b'{"type":"', ends=False) + frame(CONTINUATION, b"a", ends=False) * 30_000


def pinged_fragments() -> bytes:
    inside = frame(PING, b"p") + frame(CONTINUATION, b"b", ends=False)
    return frame(TEXT, b"a", ends=False) + inside * 5_000 + frame(CONTINUATION, b"c")


ATTACKS = (
    up("200 small messages up", messages(lambda: b"x", 200), is_quick=True),
    up("10 000 small messages up", messages(lambda: b"x", 10_000)),
    down("10 000 small messages down", server=messages(lambda: '{"type":"x"}', 10_000)),
    down(
        "10 000 deltas of no response",
        server=messages(lambda: '{"type":"response.output_text.delta","delta":"a"}', 10_000),
    ),
    up("10 000 requests without an answer", messages(lambda: CREATE, 10_000)),
    up("100 responses in one session", messages(lambda: CREATE, 5), answers(100), is_quick=True),
    up("1 000 responses in one session", messages(lambda: CREATE, 5), answers(1_000)),
    up("30 000 fragments without an end", raw(fragments), is_compared=False),
    up("a ping between 5 000 fragments", raw(pinged_fragments), is_compared=False),
    up("20 000 pings", raw(lambda: frame(PING, b"p" * 125) * 20_000), is_compared=False),
    down(
        "20 000 pings down",
        server=raw(lambda: frame(PING, b"p" * 125, masked=False) * 20_000),
        is_compared=False,
    ),
    up("20 000 pongs nobody asked for", raw(lambda: frame(PONG, b"") * 20_000), is_compared=False),
    up(
        "frames without a mask",
        raw(lambda: frame(TEXT, CREATE, masked=False) * 100),
        is_compared=False,
    ),
    up("half closed", half_close, answers(1), is_compared=False),
    up("a message of 15 MB up", messages(lambda: b"x" * 15 * MB, 1)),
    up(
        "a request of 15 MB of text",
        messages(lambda: b'{"type":"response.create","input":"' + b"a" * 15 * MB + b'"}', 1),
    ),
    up(
        "a request of 3 MB of empty arrays",
        messages(lambda: b'{"type":"response.create","input":[' + b"[]," * MB + b"[]]}", 1),
        is_quick=True,
    ),
    down(
        "a response of 12 MB of empty arrays",
        server=messages(lambda: completed(b"[" + b"[]," * 4 * MB + b"[]]"), 1),
    ),
    down(
        "a response of 100 000 keys",
        server=messages(
            lambda: completed(b"{" + b",".join(b'"k%d":-1' % n for n in range(100_000)) + b"}"), 1
        ),
    ),
    down(
        "a response of 100 000 nested arrays",
        server=messages(lambda: completed(b"[" * 100_000 + b"]" * 100_000), 1),
    ),
    down("a response with a number of 1 MB", server=messages(lambda: completed(b"9" * MB), 3)),
    up("a message of 30 MB, compressed", messages(lambda: b"0" * 30 * MB, 1), is_compressed=True),
    down(
        "100 messages of 1 MB that compress well, down",
        server=messages(lambda: completed(b'"' + b"0" * MB + b'"'), 100),
        is_compressed=True,
    ),
    up("random bytes", raw(lambda: os.urandom(100_000)), is_compared=False),
)
BY_NAME = {attack.name: attack for attack in ATTACKS}


def received(connection: Connection) -> bytes:
    """A digest of the messages that come until the connection ends, and how many they are."""
    digest = hashlib.sha256()
    count = 0
    with contextlib.suppress(ConnectionClosed, TimeoutError):
        while True:
            message = connection.recv(timeout=20)
            digest.update(message.encode() if isinstance(message, str) else message)
            count += 1
    return b"%d %s" % (count, digest.hexdigest().encode())


@dataclass
class Play:
    """One time that an attack is played, as upstream sees it."""

    received: bytes = b""
    ended: threading.Event = field(default_factory=threading.Event)


class Peer:
    """An upstream that plays its side of an attack, and remembers what it received."""

    def __init__(self) -> None:
        self.plays: list[Play] = []

    def begin(self) -> tuple[int, Play]:
        """A play, and its number. A late end of an earlier one is not taken for its own."""
        self.plays.append(Play())
        return len(self.plays) - 1, self.plays[-1]

    def speak(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        query = parse_qs(urlsplit(connection.request.path).query)
        play = self.plays[int(query["play"][0])]
        try:
            with contextlib.suppress(ConnectionClosed):
                BY_NAME[query["attack"][0]].server(connection)
                connection.send("the end")
            play.received = received(connection)
        finally:
            play.ended.set()


@pytest.fixture(scope="module")
def peer() -> Peer:
    return Peer()


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory, peer: Peer) -> Iterator[Arena]:
    with (
        contextlib.ExitStack() as stack,
        serve(peer.speak, "127.0.0.1", 0, max_size=None, ping_interval=None) as server,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        beside = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        folder = tmp_path_factory.mktemp("attacks")
        yield stack.enter_context(running_arena(folder, beside=beside))


def play(attack: WebSocketAttack, proxy: Mitmdump, peer: Peer) -> bytes:
    """What both sides received."""
    host, port = proxy.address(1)
    number, upstream = peer.begin()
    with (
        contextlib.suppress(ConnectionClosed),
        connect(
            f"ws://{host}:{port}/v1/responses?attack={quote(attack.name)}&play={number}",
            proxy=None,
            max_size=None,
            ping_interval=None,
            open_timeout=ATTACK_SECONDS_MAX,
            close_timeout=2,
            compression="deflate" if attack.is_compressed else None,
            additional_headers={"authorization": "Bearer sk-1"},
        ) as connection,
    ):
        assert isinstance(connection, ClientConnection)
        got: list[bytes] = []
        reading = threading.Thread(target=lambda: got.append(_until_the_end(connection)))
        reading.start()
        attack.client(connection)
        reading.join(60 if attack.is_compared else 5)
    assert upstream.ended.wait(ATTACK_SECONDS_MAX)
    if not attack.is_compared:
        return b""
    return b" ".join([*got, upstream.received])


def _until_the_end(connection: ClientConnection) -> bytes:
    """The messages up to upstream's last one."""
    found = []
    with contextlib.suppress(ConnectionClosed, TimeoutError, OSError):
        while (message := connection.recv(timeout=30)) != "the end":
            found.append(hash(message if isinstance(message, bytes) else message.encode()))
    return b"%d %d" % (len(found), sum(found))


@pytest.mark.parametrize("name", params(ATTACKS))
def test_nobody_notices(arena: Arena, peer: Peer, name: str, say_at_end: Say) -> None:
    attack = BY_NAME[name]
    check(arena, attack, lambda proxy: play(attack, proxy, peer), partial(say_at_end, SECTION))


def test_every_attack_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(ATTACKS) >= 20
