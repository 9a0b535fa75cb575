"""What other addons, other modes and other clients do around us, and who saves or changes plain answers
with mitmproxy's own means."""

import gzip
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from mitmproxy import http
from mitmproxy.io import FlowReader

from tests.proxy.client import Http1
from tests.proxy.mitmdump import SCRIPTS, Mitmdump
from tests.proxy.pair import OPENAI, Pair, exchange, headers_for, new_tag, pair, post, speak
from tests.proxy.upstream import Answer, End, Framing, document

pytestmark = pytest.mark.proxy

ASKED, UNASKED = (b"".join(OPENAI.answer(asked=asked)) for asked in (True, False))
PLAIN = b'{"id":"chatcmpl-1","model":"m","choices":[],"usage":{"prompt_tokens":5}}'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(
        tmp_path_factory.mktemp("neighbours"),
        behind=(SCRIPTS / "streamer.py",),
        modes=("socks5", "regular"),
        options={"tee_tags": "team=search", "tee_log": "exchanges"},
    ) as both:
        yield both


@pytest.mark.parametrize("choice", ["true", "false", "around"])
@pytest.mark.parametrize("asked", [True, None])
def test_a_script_behind_us_that_sets_the_stream(
    running: Pair, choice: str, asked: bool | None
) -> None:
    """Plain streaming, holding the whole body, and a callable around ours: all is read."""
    running.upstream.script = speak(OPENAI)
    tag = new_tag()
    received = exchange(running.tee, OPENAI, tag, ("x-stream", choice), asked=asked)
    assert received.body == (ASKED if asked else UNASKED)
    row = running.row(tag)
    assert (row["outcome"], row["output_tokens"], row["degraded"]) == ("complete", 64, None)


def test_a_script_behind_us_that_replaces_the_stream(running: Pair) -> None:
    """Its callable stands alone; the row says that nothing was read, and the log too."""
    running.upstream.script = speak(OPENAI)
    tag = new_tag()
    received = exchange(running.tee, OPENAI, tag, ("x-stream", "upper"), asked=True)
    assert received.body == ASKED.upper()
    row = running.row(tag)
    assert row["usage_source"] == "none"
    assert "StreamReplacedError" in row["degraded"]
    assert running.tee.wait_for_log("another script set flow.response.stream")


def plain(running: Pair, tag: str, **more: object) -> tuple[object, object]:
    """The same plain answer through ours and through bare mitmdump."""
    assert running.bare is not None
    received = []
    for proxy in (running.tee, running.bare):
        with Http1(proxy.address()) as client:
            post(client, OPENAI, tag, body=b'{"model":"m","messages":[]}')
            one = client.receive()
            received.append((one.status, one.headers, one.body, one.ending))
    return received[0], received[1]


@pytest.mark.parametrize("content_type", ["application/json", "audio/mpeg", "text/plain"])
@pytest.mark.parametrize("end", [End.PROPER, End.FIN, End.RST])
def test_a_plain_answer_reaches_the_client_as_it_came(
    running: Pair, content_type: str, end: End
) -> None:
    """Whole, and shorter than its content-length: the bytes, and the cut."""
    body = PLAIN if end is End.PROPER else PLAIN[:-7]
    running.upstream.script = lambda _: Answer(
        pieces=(body[:20], body[20:]), content_type=content_type, framing=Framing.LENGTH, end=end
    )
    tag = new_tag()
    ours, theirs = plain(running, tag)
    assert ours == theirs
    row = running.settled_row(tag)
    assert row["outcome"] == ("complete" if end is End.PROPER else "upstream_cut")
    assert row["response_bytes"] == len(body)
    is_read = content_type != "audio/mpeg" and end is End.PROPER
    assert row["input_tokens"] == (5 if is_read else None)


def test_a_plain_answer_is_not_held_until_it_is_whole(running: Pair) -> None:
    gate = running.upstream.gate()
    body = b"\xff\xf3" * 5_000
    running.upstream.script = lambda _: Answer(
        pieces=(body, body, body), content_type="audio/mpeg", framing=Framing.LENGTH, gate=gate
    )
    tag = new_tag()
    with Http1(running.tee.address()) as client:
        client.send(
            "POST", "/v1/audio/speech", headers_for(OPENAI, tag), b'{"model":"tts","input":"x"}'
        )
        gate.release()
        received = client.head()
        while len(received.body) < len(body):
            assert client.more(received)
        gate.release(2)
        assert client.rest(received).body == body * 3
    assert running.row(tag)["outcome"] == "complete"


NAME = "gateway.example"


def through_socks5(running: Pair) -> Http1:
    """A client that resolves names itself, and gives the proxy an address."""
    client = Http1(running.tee.address(1))
    address = socket.inet_aton("127.0.0.1") + struct.pack(">H", running.upstream.port)
    sock = client._socket
    sock.sendall(b"\x05\x01\x00")
    assert sock.recv(2) == b"\x05\x00"
    sock.sendall(b"\x05\x01\x00\x01" + address)
    assert sock.recv(10)[:2] == b"\x05\x00"
    client.address = (NAME, running.upstream.port)
    return client


def through_connect(running: Pair) -> Http1:
    """A client that asks for a tunnel to an address."""
    client = Http1(running.tee.address(2))
    sock = client._socket
    target = f"127.0.0.1:{running.upstream.port}"
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(4096)
    assert b" 200 " in head
    client.address = (NAME, running.upstream.port)
    return client


@pytest.mark.parametrize("through", [through_socks5, through_connect])
def test_the_host_is_the_one_that_the_client_meant(running: Pair, through) -> None:
    running.upstream.script = speak(OPENAI)
    tag = new_tag()
    with through(running) as client:
        post(client, OPENAI, tag, asked=None)
        assert client.receive().body == UNASKED  # `tee_hosts` names the address, and still counts
    row = running.row(tag)
    assert row["origin"] == f"http://{NAME}:{running.upstream.port}"
    assert row["provider"] == "aivene"
    assert row["output_tokens"] == 64


def test_in_reverse_mode_a_client_cannot_name_another_host(running: Pair) -> None:
    running.upstream.script = speak(OPENAI)
    tag = new_tag()
    with Http1(running.tee.address()) as client:
        client.address = ("api.openai.com", 443)
        post(client, OPENAI, tag, asked=True)
        assert client.receive().body == ASKED
    assert running.row(tag)["origin"] == f"http://127.0.0.1:{running.upstream.port}"


def test_an_operators_tag_wins_over_a_clients(running: Pair) -> None:
    running.upstream.script = speak(OPENAI)
    tag = new_tag()
    exchange(running.tee, OPENAI, tag, ("x-tokentee-tag", "team=finance, env=prod"), asked=True)
    assert running.row(tag)["tags"] == {"team": "search", "env": "prod", "case": tag}
    assert not any("x-tokentee" in name for name, _ in running.requests()[-1].headers)


def test_one_line_for_each_exchange_when_asked(running: Pair) -> None:
    running.upstream.script = speak(OPENAI)
    exchange(running.tee, OPENAI, new_tag(), asked=True)
    assert running.tee.wait_until(
        lambda: any(
            " out 64 " in line and " complete " in line for line in running.tee.log.splitlines()
        )
    )


DOCUMENT = (
    b'{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,'
    b'"message":{"content":"from upstream"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}'
)
PLAIN_REQUEST = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
JSON = "application/json"


def answered(running: Pair, answer: Answer) -> bytes:
    """The body that a client gets; its row is on disk when the body has ended."""
    running.upstream.script = lambda _: answer
    tag = new_tag()
    received = exchange(running.tee, OPENAI, tag, body=PLAIN_REQUEST)
    row = running.row(tag)
    assert (row["outcome"], row["input_tokens"], row["output_tokens"]) == ("complete", 9, 3)
    return received.body


def test_a_flow_file_has_plain_answers_as_upstream_sent_them(tmp_path: Path) -> None:
    """With `-w`, as without us; and a body over `stream_large_bodies` still streams and counts."""
    saved = tmp_path / "flows.mitm"
    packed = gzip.compress(DOCUMENT)
    large = DOCUMENT[:-1] + b',"x":"' + b"a" * 40_000 + b'"}'
    with pair(
        tmp_path,
        with_bare=False,
        options={"save_stream_file": str(saved), "stream_large_bodies": "30k"},
    ) as running:
        by_length = document(DOCUMENT)
        assert answered(running, by_length) == DOCUMENT
        zipped = Answer(
            pieces=(packed[:20], packed[20:]),
            content_type=JSON,
            headers=(("content-encoding", "gzip"),),
        )
        assert answered(running, zipped) == packed
        beyond = document(large)
        assert answered(running, beyond) == large
    with saved.open("rb") as file:
        flows = [flow for flow in FlowReader(file).stream() if isinstance(flow, http.HTTPFlow)]
    bodies = [flow.response.raw_content for flow in flows if flow.response is not None]
    assert bodies == [DOCUMENT, packed, None]


def test_another_addon_can_change_a_plain_answer(tmp_path: Path) -> None:
    script = SCRIPTS / "changer.py"
    by_length = document(DOCUMENT)
    changed = DOCUMENT.replace(b"upstream", b"changed!")
    with pair(tmp_path, with_bare=False, behind=(script,)) as running:
        assert answered(running, by_length) == changed
        running.upstream.script = lambda _: by_length
        with Mitmdump(tmp_path / "stock", upstreams=[running.upstream.url], script=script) as stock:
            assert exchange(stock, OPENAI, new_tag(), body=PLAIN_REQUEST).body == changed
