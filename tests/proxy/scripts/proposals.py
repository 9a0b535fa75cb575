"""Plays one exchange through a mitmproxy that a patch of `docs/proposals` was applied to.

    PYTHONPATH=<patched mitmproxy> python proposals.py NAME

Prints what was seen as JSON. The names that a patch adds are unknown to the installed mitmproxy.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import h2.config
import h2.connection
from mitmproxy import options
from mitmproxy.connection import Client, Server
from mitmproxy.http import Request
from mitmproxy.proxy import commands, context, events
from mitmproxy.proxy.layers.http._events import RequestEndOfMessage, RequestHeaders
from mitmproxy.proxy.layers.http._http2 import Http2Client
from mitmproxy.tools.dump import DumpMaster

SECONDS_MAX = 20
ASKED = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

type Flow = Any
type Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
type Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def played(addon: object, answer: Answer, play: Play) -> None:
    """Run a reverse proxy with the addon until the client has played."""
    upstream = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    opts = options.Options(mode=[f"reverse:http://127.0.0.1:{port}@127.0.0.1:0"])
    master = DumpMaster(opts, with_termlog=False, with_dumper=False)
    master.addons.add(addon)
    running = asyncio.create_task(master.run())
    server: Any = master.addons.get("proxyserver")
    while not (listening := [each for one in server.servers for each in one.listen_addrs]):
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*listening[0])
    writer.write(ASKED)
    await play(reader, writer)
    writer.close()
    master.shutdown()
    await running
    upstream.close()


async def response_body_end() -> dict[str, Any]:
    """The addon holds the last chunk back until its hook has waited."""
    seen: list[str] = []
    arrived = bytearray()

    class Hold:
        held: bytes = b""

        def responseheaders(self, flow: Flow) -> None:
            flow.response.stream = self.pass_on

        def pass_on(self, data: bytes) -> list[bytes]:
            before, self.held = self.held, data
            return [before] if before else []

        async def responsebodyend(self, flow: Flow) -> None:
            while b"first" not in arrived:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            seen.append("last" if b"last" in arrived else "responsebodyend")

        def response(self, flow: Flow) -> None:
            seen.append("response")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"hi")
        writer.write(CHUNKED + b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n")

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not arrived.endswith(b"0\r\n\r\n"):
            arrived.extend(await reader.read(1000))

    await played(Hold(), answer, play)
    return {"seen": seen, "body": bytes(arrived).partition(b"\r\n\r\n")[2].decode()}


async def which_side_broke() -> dict[str, Any]:
    """Once upstream breaks off, and once the client."""
    found: dict[str, Any] = {}
    for side in ("upstream", "client"):
        errors: list[Any] = []
        came = asyncio.Event()

        class Note:
            def responseheaders(self, flow: Flow) -> None:
                flow.response.stream = True

            def error(self, flow: Flow, errors: list[Any] = errors) -> None:
                errors.append(flow.error)
                came.set()  # noqa: B023  # awaited within this turn of the loop

        async def answer(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, side: str = side
        ) -> None:
            await reader.readuntil(b"hi")
            writer.write(CHUNKED + b"5\r\nfirst\r\n")
            if side == "upstream":
                writer.close()

        async def play(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            side: str = side,
            came: asyncio.Event = came,
        ) -> None:
            await reader.readuntil(b"first")
            if side == "client":
                writer.close()
            await came.wait()

        await played(Note(), answer, play)
        found[side] = [each.by_client for each in errors]
        found["state"] = sorted(errors[0].get_state())
    return found


async def ask_again() -> dict[str, Any]:
    """The addon removes a refusal, and mitmproxy asks again."""
    requests: list[str] = []

    class Again:
        def response(self, flow: Flow) -> None:
            if flow.response.status_code == 400:
                flow.request.content = b"please"
                flow.response = None

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            requests.append((await reader.readexactly(length)).decode())
            status = b"200 OK" if requests[-1] == "please" else b"400 No"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nok")

    arrived = bytearray()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not arrived.endswith(b"ok"):
            arrived.extend(await reader.read(1000))

    await played(Again(), answer, play)
    status = bytes(arrived).split(b"\r\n")[0].decode()
    return {"requests": requests, "status": status, "http2_streams": http2_streams()}


def http2_streams() -> list[int]:
    """The upstream's numbers of one stream's two requests over HTTP/2."""
    client = Client(peername=("", 1), sockname=("", 2), timestamp_start=0.0)
    around = context.Context(client, options.Options())
    around.options.add_option("http2_ping_keepalive", int, 0, "")
    around.options.add_option("normalize_outbound_headers", bool, True, "")
    around.options.add_option("validate_inbound_headers", bool, True, "")
    around.server = Server(address=("a", 443))
    layer = Http2Client(around)
    upstream = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    upstream.initiate_connection()
    numbers: list[int] = []

    def give(event: events.Event) -> None:
        data = b"".join(
            command.data
            for command in layer.handle_event(event)
            if isinstance(command, commands.SendData)
        )
        for each in upstream.receive_data(data):
            if isinstance(each, h2.events.RequestReceived):
                assert each.stream_id is not None
                numbers.append(each.stream_id)
                upstream.send_headers(each.stream_id, [(":status", "200")], end_stream=True)

    give(events.Start())
    for _ in range(2):
        give(events.DataReceived(around.server, upstream.data_to_send()))
        request = Request.make("GET", "https://a/")
        request.http_version = "HTTP/2.0"
        request.authority = "a"
        give(RequestHeaders(7, request, end_stream=True))
        give(RequestEndOfMessage(7))
    return numbers


if __name__ == "__main__":
    play_named = {
        "response-body-end": response_body_end,
        "which-side-broke": which_side_broke,
        "ask-again": ask_again,
    }[sys.argv[1]]
    print(json.dumps(asyncio.run(asyncio.wait_for(play_named(), SECONDS_MAX))))
