"""The harness measures what it says: a bare mitmdump between its own two ends."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.certificates import client_context, make_certificate, server_context
from tests.proxy.client import Ending, Http1, Http2
from tests.proxy.mitmdump import BARE, SCRIPTS, DidNotStartError, Mitmdump
from tests.proxy.upstream import Answer, End, Framing, Request, Upstream

pytestmark = pytest.mark.proxy

PIECES = (b"data: one\n\n", b"data: two\n\n")


def answer(request: Request) -> Answer:
    return Answer(
        pieces=PIECES,
        end=End(request.header("x-end") or "proper"),
        framing=Framing(request.header("x-framing") or "chunked"),
    )


@pytest.fixture(scope="module")
def plain() -> Iterator[Upstream]:
    with Upstream(answer) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(plain: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mitmdump]:
    folder = tmp_path_factory.mktemp("harness")
    pem = make_certificate(folder)
    with (
        Upstream(answer, tls=server_context(pem, http2=True)) as secure,
        Mitmdump(
            folder / "bare",
            upstreams=[plain.url, secure.url],
            script=BARE,
            beside=[SCRIPTS / "h2_upstream.py"],
            options={"ssl_verify_upstream_trusted_ca": str(pem)},
        ) as mitmdump,
    ):
        yield mitmdump


@pytest.mark.parametrize(
    ("framing", "end", "ending"),
    [
        ("chunked", "proper", Ending.TERMINATED),
        ("length", "proper", Ending.TERMINATED),
        ("close", "proper", Ending.CLOSED),
        ("chunked", "fin", Ending.CLOSED),
        ("length", "fin", Ending.CLOSED),
        ("chunked", "rst", Ending.CLOSED),
        ("close", "rst", Ending.CLOSED),
    ],
)
def test_http1_answers_end_as_upstream_ended_them(
    proxy: Mitmdump, framing: str, end: str, ending: Ending
) -> None:
    """A close-delimited RST looks like a proper close: only the body itself can tell."""
    with Http1(proxy.address(0)) as client:
        client.send("POST", "/x", [("x-framing", framing), ("x-end", end)], b"hello")
        received = client.receive()
    assert received.body == b"".join(PIECES)
    assert received.ending is ending


@pytest.mark.parametrize("mode", [0, 1], ids=["http1-upstream", "http2-upstream"])
@pytest.mark.parametrize(
    ("end", "ending"),
    [("proper", Ending.TERMINATED), ("fin", Ending.RESET), ("rst", Ending.RESET)],
)
def test_http2_clients(proxy: Mitmdump, mode: int, end: str, ending: Ending) -> None:
    tls = client_context(proxy.authority, http2=True)
    with Http2(proxy.address(mode), tls=tls, name="localhost") as client:
        client.send("POST", "/x", [("x-end", end)], b"hello")
        received = client.receive()
    assert received.body == b"".join(PIECES)
    assert received.ending is ending


def test_http2_goaway_cuts(proxy: Mitmdump) -> None:
    tls = client_context(proxy.authority, http2=True)
    with Http2(proxy.address(1), tls=tls, name="localhost") as client:
        client.send("POST", "/x", [("x-end", "goaway")], b"hello")
        assert client.receive().ending is Ending.RESET


def test_an_http1_client_reaches_an_http2_upstream(proxy: Mitmdump) -> None:
    with Http1(proxy.address(1)) as client:
        client.send("POST", "/x", [], chunks=[b"he", b"llo"])
        received = client.receive()
    assert received.body == b"".join(PIECES)
    assert received.ending is Ending.CLOSED


def test_requests_are_kept_byte_for_byte(proxy: Mitmdump, plain: Upstream) -> None:
    plain.requests.clear()
    with Http1(proxy.address(0)) as client:
        client.send("POST", "/a?b=c", [("X-Odd-Case", "v")], b'{"a": 1}')
        client.receive()
        client.send("POST", "/b", [], chunks=[b"he", b"llo"], expect=True)
        client.receive()
        assert client.is_quiet()
    first, second = plain.requests
    assert first.target == "/a?b=c"
    assert first.raw.endswith(b'\r\n\r\n{"a": 1}')
    assert ("X-Odd-Case", "v") in first.headers
    assert second.body == b"hello"


def test_a_held_answer_waits_for_the_client_to_leave(proxy: Mitmdump, plain: Upstream) -> None:
    plain.peer_left.clear()
    with Http1(proxy.address(0)) as client:
        client.send("POST", "/x", [("x-end", "held")], b"hello")
        received = client.receive(until=b"two")
        assert not plain.peer_left.is_set()
        client.leave(received)
    assert received.ending is Ending.LEFT
    assert plain.peer_left.wait(10)


def test_a_bad_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(DidNotStartError, match="Invalid proxy mode"):
        Mitmdump(tmp_path, upstreams=["nonsense"], script=BARE).start()


def test_a_forked_mitmdump_is_a_process_of_its_own(tmp_path: Path, plain: Upstream) -> None:
    """With a folder, a log and an exit code of its own, as one from the command line."""
    one, other = (
        Mitmdump(
            tmp_path / name,
            upstreams=[plain.url],
            script=BARE,
            has_own_interpreter=has_own_interpreter,
        )
        for name, has_own_interpreter in (("one", False), ("other", True))
    )
    with one, other:
        for proxy in (one, other):
            process = Path(f"/proc/{proxy.process.pid}")
            assert (process / "cwd").readlink() == proxy.folder
            assert proxy.process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                proxy.process.wait(0)
        assert one.stop(signal.SIGKILL) == other.stop(signal.SIGKILL) == -signal.SIGKILL
    with one, other:
        pass
    assert one.process.returncode == other.process.returncode == 0
    assert one.log.splitlines()[0].endswith("Loading script " + str(BARE))
