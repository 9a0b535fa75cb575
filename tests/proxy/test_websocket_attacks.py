"""The attacks over WebSockets, measured as those of `test_attacks`.

A few run by default; `pytest -m "proxy and (soak or not soak)" tests/proxy/test_websocket_attacks.py`
runs all of them.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

from tests.conftest import Say
from tests.proxy.arena import ATTACK_SECONDS_MAX, Arena, check, params, running_arena, section
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.websocket_attacks import ATTACKS, BY_NAME, WebSocketAttack, received

pytestmark = [pytest.mark.proxy, pytest.mark.timeout(300)]

SECTION = section("WebSocket attacks")


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
            found.append(hash_of(message))
    return b"%d %d" % (len(found), sum(found))


def hash_of(message: str | bytes) -> int:
    return hash(message if isinstance(message, bytes) else message.encode())


@pytest.mark.parametrize("name", params(ATTACKS))
def test_nobody_notices(arena: Arena, peer: Peer, name: str, say_at_end: Say) -> None:
    attack = BY_NAME[name]
    check(
        arena,
        name,
        lambda proxy: play(attack, proxy, peer),
        say=lambda line: say_at_end(SECTION, line),
        is_compared=attack.is_compared,
    )


def test_every_attack_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(ATTACKS) >= 20
