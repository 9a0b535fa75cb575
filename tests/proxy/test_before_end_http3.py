"""HTTP/3 on both sides: an end is not seen before its commit, with and without a content-length."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent

from tests.proxy import rows
from tests.proxy.certificates import make_certificate
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.pair import BY_NAME, headers_for
from tests.proxy.test_before_end import DOCUMENTS, GUEST, HOST, LOCKED_SECONDS, locked, tagged
from tests.proxy.wires import Wire, asks

pytestmark = [pytest.mark.proxy, pytest.mark.timeout(120)]

WAIT_SECONDS_MAX = 20


class Upstream(QuicConnectionProtocol):
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
        wire = WIRES[headers[b"x-wire"].decode()]
        pieces = wire.answer(asked=asks(body))
        head = [(b":status", b"200"), (b"content-type", wire.content_type.encode())]
        if b"x-length" in headers:
            head.append((b"content-length", b"%d" % len(b"".join(pieces))))
        self._h3.send_headers(stream, head)
        for at, piece in enumerate(pieces, start=1):
            self._h3.send_data(stream, piece, end_stream=at == len(pieces))
        self.transmit()


class Client(QuicConnectionProtocol):
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


WIRES = {each.name: each for each in (BY_NAME["openai"], BY_NAME["anthropic"], DOCUMENTS)}


@contextlib.asynccontextmanager
async def upstream(pem: Path) -> AsyncIterator[int]:
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(pem, pem)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Upstream)
    assert server._transport is not None
    yield server._transport.get_extra_info("sockname")[1]
    server.close()


async def play(folder: Path, tool: str) -> dict[str, Any]:
    """The row of each case, after its client has seen the end and the proxy was killed."""
    pem = make_certificate(folder)
    cases = [(wire, with_length) for wire in WIRES.values() for with_length in (False, True)]
    async with upstream(pem) as port:
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
            async with connect(
                host, own, configuration=configuration, create_protocol=Client
            ) as client:
                assert isinstance(client, Client)
                with locked(proxy.ledger):
                    streams = [
                        client.ask(wire, str(number), with_length=with_length)
                        for number, (wire, with_length) in enumerate(cases)
                    ]
                    await asyncio.sleep(LOCKED_SECONDS)
                    assert not any(each.is_set() for each in client.ended.values())
                    assert all(client.bodies.values())  # the ends alone are held
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
    found: dict[str, list[rows.Row]] = asyncio.run(play(tmp_path, tool))
    said = {
        tag: [(row["state"], row["outcome"], row["degraded"]) for row in kept]
        for tag, kept in found.items()
    }
    assert said == {
        str(number): [("settled", "complete", None)] for number in range(2 * len(WIRES))
    }
