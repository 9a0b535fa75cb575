"""A client that has seen the end of an answer can rely on its row (promise 2), however it ends.

Framing x format x edited or not x HTTP versions, all at once through one proxy, as a guest in mitmdump
and as our own process; and WebSocket messages. While another process holds the ledger's lock no client
may see an end. Each client that sees one finds its row settled at that moment, and all rows are there
after `kill -9`.
"""

import asyncio
import contextlib
import itertools
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from aioquic.asyncio.client import connect as connect_http3
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent
from websockets.sync.client import connect as websocket

from addon.proxy.answers import NOT_HELD
from tests.proxy import rows
from tests.proxy.certificates import make_certificate, server_context
from tests.proxy.client import Ending, Received
from tests.proxy.mitmdump import SCRIPTS, Mitmdump
from tests.proxy.pair import BY_NAME, connect, exchange, headers_for, pair, speak
from tests.proxy.test_websocket import CREATE, answer_of, url
from tests.proxy.test_websocket import upstream as websocket_upstream
from tests.proxy.upstream import Answer, End, Framing, Request, Upstream
from tests.proxy.wire import Wire, asks

pytestmark = [pytest.mark.proxy, pytest.mark.timeout(120)]

LOCKED_SECONDS = 1.0
DOCUMENT = (
    b'{"id":"chatcmpl-doc","object":"chat.completion","model":"gpt-4o","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],',
    b'"usage":{"prompt_tokens":7,"completion_tokens":64,"total_tokens":71}}',
)
DOCUMENTS = replace(
    BY_NAME["openai"],
    name="document",
    body={"model": "gpt-4o", "messages": []},
    frames=DOCUMENT,
    frames_asked=None,
    content_type="application/json",
    is_opt_in=False,
)


class Framed(StrEnum):
    """How upstream's answer says where it ends."""

    CHUNKED = "chunked"
    LENGTH = "content-length"
    CHUNKED_RESET = "chunked, RST behind the body"
    LENGTH_RESET = "content-length, RST behind the body"
    CLOSE = "close"
    H2 = "HTTP/2"
    H2_LENGTH = "HTTP/2, content-length"
    H2_RESET = "HTTP/2, RST_STREAM behind the body"
    H2_LENGTH_RESET = "HTTP/2, content-length, RST_STREAM behind the body"

    @property
    def is_h2(self) -> bool:
        return self.startswith("HTTP/2")

    @property
    def is_reset(self) -> bool:
        return self.is_h2 and "RST" in self


@dataclass(frozen=True, kw_only=True)
class Case:
    wire: Wire
    asked: bool | None
    framed: Framed
    client_is_h2: bool

    def __str__(self) -> str:
        client = "2" if self.client_is_h2 else "1.1"
        return f"{self.wire.name}, asked: {self.asked}, {self.framed}, HTTP/{client} client"

    def answer(self, request: Request) -> Answer:
        pieces = self.wire.answer(asked=asks(request.body))
        made = Answer(pieces=pieces, content_type=self.wire.content_type)
        if self.framed is Framed.LENGTH:
            return replace(made, framing=Framing.LENGTH)
        if self.framed is Framed.CLOSE:
            return replace(made, framing=Framing.CLOSE)
        if self.framed in (Framed.CHUNKED_RESET, Framed.LENGTH_RESET):
            # One that comes together with the body may discard it in the kernel.
            framing = Framing.LENGTH if "length" in self.framed else Framing.CHUNKED
            return replace(made, framing=framing, end=End.LATE_RST)
        if "length" in self.framed:
            made = replace(made, headers=(("content-length", str(len(made.body))),))
        return replace(made, end=End.RST) if self.framed.is_reset else made

    @property
    def body(self) -> bytes:
        """What the client gets."""
        return b"".join(self.wire.answer(asked=self.asked is True))


def cases_of(*names: str) -> list[Case]:
    """Each wire; one that is asked for usage both edited and not."""
    wires = [DOCUMENTS if name == "document" else BY_NAME[name] for name in names]
    return [
        Case(wire=wire, asked=asked, framed=framed, client_is_h2=client_is_h2)
        for wire, framed, client_is_h2 in itertools.product(wires, Framed, (False, True))
        for asked in ((None, True) if wire.is_opt_in else (None,))
    ]


@dataclass
class Seen:
    """What one client saw."""

    received: Received
    ended_while_locked: bool
    rows: list[rows.Row]
    """Its rows at the moment when it saw the end."""


GUEST, HOST = "mitmdump", "tokentee"


def play(
    folder: Path, cases: list[Case], tool: str
) -> tuple[list[Seen], dict[str, list[rows.Row]]]:
    """What each client saw, and the rows behind `kill -9`."""
    pem = make_certificate(folder)
    is_locked = threading.Event()
    with ExitStack() as stack:

        def script(request: Request) -> Answer:
            answer = cases[int(request.header("x-case") or "")].answer(request)
            return replace(answer, gate=gates[request.http])

        plain = stack.enter_context(Upstream(script))
        secure = stack.enter_context(Upstream(script, tls=server_context(pem, http2=True)))
        gates = {"1.1": plain.gate(), "2": secure.gate()}
        options = {
            "ssl_verify_upstream_trusted_ca": str(pem),
            "tee_hosts": ",".join(f"127.0.0.1:{each.port}=aivene" for each in (plain, secure)),
        }
        proxy = stack.enter_context(
            Mitmdump(
                folder / "tee",
                upstreams=[plain.url, secure.url],
                beside=[SCRIPTS / "h2_upstream.py"],
                options=options,
                tool=tool,
            )
        )

        def run(number: int) -> Seen:
            case = cases[number]
            with connect(proxy, int(case.framed.is_h2), is_h2=case.client_is_h2) as client:
                headers = headers_for(case.wire, str(number), ("x-case", str(number)))
                body = case.wire.request(asked=case.asked)
                client.send("POST", case.wire.target, headers, body)
                received = client.receive()
                ended_while_locked = is_locked.is_set()
                return Seen(received, ended_while_locked, tagged(proxy).get(str(number), []))

        with ThreadPoolExecutor(len(cases)) as pool:
            seen = [pool.submit(run, number) for number in range(len(cases))]
            assert rows.eventually(
                lambda: len(plain.requests) + len(secure.requests) == len(cases)
            ), proxy.log
            with rows.locked(proxy.ledger):
                is_locked.set()
                for gate in gates.values():
                    gate.release(100 * len(cases))
                time.sleep(LOCKED_SECONDS)
                is_locked.clear()
            found = [each.result() for each in seen]
        proxy.kill()
        return found, tagged(proxy)


def tagged(proxy: Mitmdump) -> dict[str, list[rows.Row]]:
    return rows.by_tag(proxy.ledger, "case")


def mistakes(case: Case, seen: Seen, kept: list[rows.Row]) -> Iterator[str]:
    """Everything in which a case came out other than it must."""
    if seen.ended_while_locked:
        yield "saw its end before it could be on disk"
    if seen.received.body != case.body:
        yield f"got {seen.received.body[-80:]!r}"
    if not case.framed.is_reset and seen.received.ending is not Ending.TERMINATED:
        by_close = case.framed in (Framed.CLOSE, Framed.H2) and not case.client_is_h2
        if not (by_close and seen.received.ending is Ending.CLOSED):
            yield f"ended {seen.received.ending}"
    for when, found in (("at the end", seen.rows), ("after kill -9", kept)):
        if [row["state"] for row in found] != ["settled"]:
            yield f"{when}: {[row['state'] for row in found]}"
            continue
        (row,) = found
        if row["output_tokens"] != case.wire.figures["output_tokens"] or row["degraded"]:
            yield f"{when}: {row['output_tokens']} tokens, degraded: {row['degraded']}"


def all_mistakes(folder: Path, cases: list[Case], tool: str = GUEST) -> list[str]:
    seen, kept = play(folder, cases, tool)
    return [
        f"{case}: {mistake}"
        for number, (case, one) in enumerate(zip(cases, seen, strict=True))
        for mistake in mistakes(case, one, kept.get(str(number), []))
    ]


@pytest.mark.parametrize("tool", [GUEST, HOST])
def test_no_end_is_seen_before_its_commit(tmp_path: Path, tool: str) -> None:
    found = all_mistakes(tmp_path, cases_of("openai", "document", "ollama"), tool)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("tool", [GUEST, HOST])
def test_no_end_of_a_websocket_response_is_seen_before_its_commit(
    tmp_path: Path, tool: str
) -> None:
    """The message that ends a response; those before it are not held."""
    with websocket_upstream() as port:
        hosts = {"tee_hosts": f"127.0.0.1:{port}=openai"}
        upstreams = [f"http://127.0.0.1:{port}"]
        with Mitmdump(tmp_path, upstreams=upstreams, options=hosts, tool=tool) as proxy:
            headers = {"x-tokentee-tag": "case=ws"}
            with websocket(url(proxy), additional_headers=headers) as client:
                client.send(CREATE)
                assert rows.eventually(lambda: "ws" in tagged(proxy))
                assert [client.recv() for _ in range(5)] == answer_of(1)
                with rows.locked(proxy.ledger):
                    client.send(CREATE)
                    assert [client.recv() for _ in range(4)] == answer_of(2)[:4]
                    with pytest.raises(TimeoutError):
                        client.recv(LOCKED_SECONDS)
                assert client.recv() == answer_of(2)[4]
                proxy.kill()
            kept = tagged(proxy)["ws"]
    assert [(row["state"], row["degraded"]) for row in kept] == [("settled", None)] * 2


@pytest.mark.large
@pytest.mark.parametrize(
    "names",
    [("bedrock", "anthropic"), ("gemini array", "gemini"), ("cohere", "responses"), ("azure",)],
    ids=", ".join,
)  # fmt: skip
def test_no_end_of_any_format_is_seen_before_its_commit(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    found = all_mistakes(tmp_path, cases_of(*names))
    assert not found, "\n".join(found)


def test_without_the_wrappers_a_row_says_that_its_end_was_not_held(tmp_path: Path) -> None:
    """A document is buffered instead; a stream under a content-length is not held."""
    document, stream = DOCUMENTS, BY_NAME["ollama"]
    with pair(tmp_path, with_bare=False, options={"tee_wrap": "no"}) as running:
        for wire in (document, stream):
            for framing in (Framing.CHUNKED, Framing.LENGTH):
                running.upstream.script = speak(wire, framing=framing)
                tag = f"{wire.name}-{framing}"
                received = exchange(running.tee, wire, tag)
                assert received.body == b"".join(wire.frames)
                row = running.settled_row(tag)
                is_held = wire is document or framing is not Framing.LENGTH
                assert (row["outcome"], row["degraded"]) == (
                    "complete",
                    None if is_held else NOT_HELD,
                )


WAIT_SECONDS_MAX = 60


class Http3Upstream(QuicConnectionProtocol):
    """Answers each request in the wire format that it names, and ends the stream with its body."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._h3 = H3Connection(self._quic)
        self._seen: dict[int, tuple[dict[bytes, bytes], bytearray]] = {}

    def quic_event_received(self, event: QuicEvent) -> None:
        for each in self._h3.handle_event(event):
            assert isinstance(each, HeadersReceived | DataReceived)
            headers, body = self._seen.setdefault(each.stream_id, ({}, bytearray()))
            if isinstance(each, HeadersReceived):
                headers.update(each.headers)
            else:
                body += each.data
            if each.stream_ended:
                self._answer(each.stream_id, headers, bytes(body))

    def _answer(self, stream: int, headers: dict[bytes, bytes], body: bytes) -> None:
        wire = HTTP3_WIRES[headers[b"x-wire"].decode()]
        pieces = wire.answer(asked=asks(body))
        head = [(b":status", b"200"), (b"content-type", wire.content_type.encode())]
        if b"x-length" in headers:
            head.append((b"content-length", b"%d" % len(b"".join(pieces))))
        self._h3.send_headers(stream, head)
        for at, piece in enumerate(pieces, start=1):
            self._h3.send_data(stream, piece, end_stream=at == len(pieces))
        self.transmit()


class Http3Client(QuicConnectionProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._h3 = H3Connection(self._quic)
        self.bodies: dict[int, bytearray] = {}
        self.ended: dict[int, asyncio.Event] = {}

    def ask(self, wire: Wire, tag: str, *, with_length: bool) -> int:
        stream = self._quic.get_next_available_stream_id()
        self.bodies[stream], self.ended[stream] = bytearray(), asyncio.Event()
        more = [("x-wire", wire.name)] + ([("x-length", "1")] if with_length else [])
        pseudo = {":method": "POST", ":scheme": "https", ":authority": "localhost"}
        pseudo[":path"] = wire.target
        given = [*pseudo.items(), *headers_for(wire, tag, *more)]
        self._h3.send_headers(stream, [(k.lower().encode(), v.encode()) for k, v in given])
        self._h3.send_data(stream, wire.request(asked=None), end_stream=True)
        self.transmit()
        return stream

    def quic_event_received(self, event: QuicEvent) -> None:
        each: H3Event
        for each in self._h3.handle_event(event):
            assert isinstance(each, HeadersReceived | DataReceived)
            if isinstance(each, DataReceived):
                self.bodies[each.stream_id] += each.data
            if each.stream_ended:
                self.ended[each.stream_id].set()


HTTP3_WIRES = {each.name: each for each in (BY_NAME["openai"], BY_NAME["anthropic"], DOCUMENTS)}


@contextlib.asynccontextmanager
async def http3_upstream(pem: Path) -> AsyncIterator[int]:
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(pem, pem)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Http3Upstream)
    assert server._transport is not None
    yield server._transport.get_extra_info("sockname")[1]
    server.close()


async def play_http3(folder: Path, tool: str) -> dict[str, Any]:
    """The row of each case, after its client has seen the end and the proxy was killed."""
    pem = make_certificate(folder)
    cases = [(wire, with_length) for wire in HTTP3_WIRES.values() for with_length in (False, True)]
    async with http3_upstream(pem) as port:
        options = {
            "ssl_verify_upstream_trusted_ca": str(pem),
            "tee_hosts": f"127.0.0.1:{port}=aivene",
        }
        upstreams = [f"http3://127.0.0.1:{port}"]
        proxy = Mitmdump(folder / "tee", upstreams=upstreams, options=options, tool=tool)
        try:
            await asyncio.to_thread(proxy.start)
            configuration = QuicConfiguration(alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
            host, own = proxy.address()
            async with connect_http3(
                host, own, configuration=configuration, create_protocol=Http3Client
            ) as client:
                assert isinstance(client, Http3Client)
                with rows.locked(proxy.ledger):
                    streams = [
                        client.ask(wire, str(number), with_length=with_length)
                        for number, (wire, with_length) in enumerate(cases)
                    ]
                    await asyncio.sleep(LOCKED_SECONDS)
                    async with asyncio.timeout(WAIT_SECONDS_MAX):
                        while not all(client.bodies.values()):  # the ends alone are held
                            await asyncio.sleep(0.01)
                    assert not any(each.is_set() for each in client.ended.values())
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    for stream in streams:
                        await client.ended[stream].wait()
                proxy.kill()
                for (wire, _), stream in zip(cases, streams, strict=True):
                    assert bytes(client.bodies[stream]) == b"".join(wire.answer(asked=False))
        finally:
            proxy.kill()
    return tagged(proxy)


@pytest.mark.parametrize("tool", [GUEST, HOST])
def test_no_end_over_http3_is_seen_before_its_commit(tmp_path: Path, tool: str) -> None:
    found: dict[str, list[rows.Row]] = asyncio.run(play_http3(tmp_path, tool))
    said = {
        tag: [(row["state"], row["outcome"], row["degraded"]) for row in kept]
        for tag, kept in found.items()
    }
    assert said == {
        str(number): [("settled", "complete", None)] for number in range(2 * len(HTTP3_WIRES))
    }
