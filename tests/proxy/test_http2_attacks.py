"""The attacks over HTTP/2, on the client's side and on upstream's, measured as in `arena`.

A few run by default; `pytest -m "proxy and (soak or not soak)" tests/proxy/test_http2_attacks.py`
runs all of them.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
from h2.exceptions import ProtocolError

from tests.conftest import Say
from tests.proxy import certificates, http2_attacks
from tests.proxy.arena import ATTACK_SECONDS_MAX, Arena, check, params, running_arena, section
from tests.proxy.http2_attacks import ATTACKS, BY_NAME, Http2Attack, Peer
from tests.proxy.mitmdump import Mitmdump

pytestmark = [pytest.mark.proxy, pytest.mark.timeout(300)]

SECTION = section("HTTP/2 attacks")


@contextlib.contextmanager
def hostile_upstream(context: ssl.SSLContext) -> Iterator[int]:
    """An upstream of frames made by hand; its port."""

    def accept() -> None:
        while True:
            try:
                accepted, _ = listening.accept()
            except OSError:
                return
            speaking.append(threading.Thread(target=speak, args=(accepted,)))
            speaking[-1].start()

    def speak(accepted: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, ProtocolError),
            accepted,
            context.wrap_socket(accepted, server_side=True) as connection,
        ):
            http2_attacks.serve(connection)

    speaking: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    for each in (thread, *speaking):
        each.join(ATTACK_SECONDS_MAX)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("http2")
    context = certificates.server_context(certificates.make_certificate(folder), http2=True)
    with (
        hostile_upstream(context) as port,
        running_arena(folder, beside=f"https://127.0.0.1:{port}") as running,
    ):
        yield running


def play(attack: Http2Attack, proxy: Mitmdump) -> bytes:
    """What the client got."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(proxy.address(1), ATTACK_SECONDS_MAX) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        assert connection.selected_alpn_protocol() == "h2"
        got = attack.client(Peer(connection, is_client=True), attack.name)
    return got if attack.is_compared else b""


@pytest.mark.parametrize("name", params(ATTACKS))
def test_nobody_notices(arena: Arena, name: str, say_at_end: Say) -> None:
    attack = BY_NAME[name]
    check(
        arena,
        name,
        lambda proxy: play(attack, proxy),
        say=lambda line: say_at_end(SECTION, line),
        is_compared=attack.is_compared,
    )


def test_every_attack_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(ATTACKS) >= 25
