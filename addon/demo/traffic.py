"""Edge. The demo's connections: five systems on loopback that send the scenes' answers over
HTTP/1.1, a real mitmdump with the addon in front of them, and clients that send a scene's request
as the official SDK would."""

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from addon.demo.scene import Scene, SceneAnswer, compact, pieces_for
from ledger.model.errors import LedgerError

SCENE_HEADER = "x-demo-scene"
"""Holds the title of the scene; a real system would use the request's content."""
BODY_BYTES_MAX = 1 << 20
WAIT_SECONDS_MAX = 30
ANSWER_SECONDS_MAX = 30
SDK_HEADERS = {
    "openai": {"authorization": "Bearer sk-demo-0000", "user-agent": "OpenAI/Python 2.8.0"},
    "anthropic": {
        "x-api-key": "sk-ant-demo-0000",
        "anthropic-version": "2023-06-01",
        "user-agent": "Anthropic/Python 1.0.0",
    },
    "claude-plan": {
        "authorization": "Bearer sk-ant-oat01-demo-0000",
        "anthropic-beta": "oauth-2025-04-20",
        "anthropic-version": "2023-06-01",
        "user-agent": "claude-cli/2.1.0 (external, cli)",
    },
    "google-genai": {
        "x-goog-api-key": "demo-0000",
        "user-agent": "google-genai-sdk/1.50.0 gl-python/3.12",
    },
}
START_SECONDS_MAX = 60
"""Import, migration of a new ledger and mitmproxy's new certificate take 2-4 s, and more on a
machine that has just installed everything."""
STOP_SECONDS_MAX = 20
STARTS_MAX = 3
"""Another program may bind a port after we chose it and before mitmdump listens there."""
LOG_LINES_KEPT = 40
ACTIVE = "tokentee: ledger "
"""The log line of the addon when it starts to record."""
SCRIPT = Path(__file__).parent.parent / "tee.py"


@contextlib.asynccontextmanager
async def serving(scenes: Mapping[str, Scene]) -> AsyncIterator[int]:
    """Answer requests by the title of their scene; yields the port."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The proxy may close its connections at any time, and one scene makes it leave early.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await _exchange(scenes, reader, writer):
                pass
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _exchange(
    scenes: Mapping[str, Scene], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """One request and its answer; whether the connection can carry another."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    fields = (line.partition(": ") for line in head.split("\r\n")[1:-2])
    headers = {name.lower(): value for name, _, value in fields}
    length = int(headers["content-length"])
    if length > BODY_BYTES_MAX:
        return False
    body = json.loads(await reader.readexactly(length))
    answer = scenes[headers[SCENE_HEADER]].answer
    await _send(answer, body, writer)
    if answer.waits_for_leave:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await reader.read(1)
    return not (answer.is_closed_after or answer.is_cut or answer.waits_for_leave)


async def _send(answer: SceneAnswer, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
    options = body.get("stream_options") or {}
    is_asked = options.get("include_usage") is True
    pieces = [piece.encode() for piece in pieces_for(answer, is_asked=is_asked)]
    writer.write(
        f"HTTP/1.1 {answer.status} Demo\r\ncontent-type: {answer.content_type}\r\n".encode()
        + b"".join(f"{name}: {value}\r\n".encode() for name, value in answer.headers.items())
    )
    if answer.is_closed_after:
        writer.write(b"connection: close\r\n\r\n")
        writer.writelines(pieces)
    elif answer.content_type == "application/json" and len(pieces) == 1:
        writer.write(b"content-length: %d\r\n\r\n%s" % (len(pieces[0]), pieces[0]))
    else:
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        writer.writelines(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        if not (answer.is_cut or answer.waits_for_leave):
            writer.write(b"0\r\n\r\n")
    await writer.drain()


@contextlib.asynccontextmanager
async def recording(
    ledger: Path, confdir: Path, upstreams: Mapping[str, int]
) -> AsyncIterator[dict[str, int]]:
    """Runs mitmdump in front of each provider's port; yields the port to send to, by provider.

    At the end of the block mitmdump has ended and the ledger is complete.
    """
    for last in [False] * (STARTS_MAX - 1) + [True]:
        ports = dict(zip(upstreams, _free_ports(len(upstreams)), strict=True))
        process = await _launch(ledger, confdir, upstreams, ports)
        log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        reader: asyncio.Task[None] | None = None
        try:
            if await _is_up(process, log, listeners=len(ports)):
                reader = asyncio.create_task(_read_on(process, log))
                yield ports
                return
        finally:
            await _end(process)
            if reader is not None:
                await reader
        port_taken = any("address already in use" in line for line in log)
        if last or not port_taken:
            raise LedgerError(f"the demo's mitmdump did not start. It said:\n{'\n'.join(log)}")


async def _launch(
    ledger: Path, confdir: Path, upstreams: Mapping[str, int], ports: Mapping[str, int]
) -> asyncio.subprocess.Process:
    hosts = ",".join(f"127.0.0.1:{port}={provider}" for provider, port in upstreams.items())
    arguments = ["-s", str(SCRIPT)]
    for provider, port in upstreams.items():
        arguments += ["--mode", f"reverse:http://127.0.0.1:{port}@127.0.0.1:{ports[provider]}"]
    for name, value in {
        "confdir": confdir,
        "ledger_url": f"sqlite:///{ledger}",
        "tee_hosts": hosts,
        "flow_detail": "0",
        "termlog_verbosity": "info",
    }.items():
        arguments += ["--set", f"{name}={value}"]
    # The mitmdump of this environment, without its script's path.
    program = [sys.executable, "-c", "from mitmproxy.tools.main import mitmdump; mitmdump()"]
    return await asyncio.create_subprocess_exec(
        *program,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ
        | {
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            # A separate secret: the user's secret is for the user's ledgers.
            "TOKENTEE_SECRET_FILE": str(ledger.with_name("secret")),
        },
    )


async def _is_up(process: asyncio.subprocess.Process, log: deque[str], *, listeners: int) -> bool:
    """Read the log until all ports listen and the ledger is active; False if it ends first."""
    assert process.stdout is not None
    listening, active = 0, False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS_MAX):
            async for line in process.stdout:
                log.append(line.decode(errors="replace").rstrip())
                listening += "listening at" in log[-1]
                active = active or ACTIVE in log[-1]
                if active and listening == listeners:
                    return True
    return False


async def _read_on(process: asyncio.subprocess.Process, log: deque[str]) -> None:
    """Drain the pipe: mitmdump would block on a full one."""
    assert process.stdout is not None
    async for line in process.stdout:
        log.append(line.decode(errors="replace").rstrip())


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


async def play(scene: Scene, port: int) -> bytes:
    """The body that the client received, complete or not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            writer.write(_request(scene))
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if "transfer-encoding: chunked" in head:
                leaves = scene.answer.waits_for_leave
                return await _chunks(reader, leave_at=len(scene.client_body) if leaves else None)
            if length := re.search(r"content-length: (\d+)", head):
                return await reader.readexactly(int(length[1]))
            return await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _request(scene: Scene) -> bytes:
    body = compact(scene.body).encode()
    headers = {
        "host": "127.0.0.1",
        "accept": "application/json",
        "content-type": "application/json",
        **SDK_HEADERS[scene.sdk],
        "x-tokentee-session": scene.title,
        "x-tokentee-tag": "team=search",
        SCENE_HEADER: scene.title,
        "content-length": str(len(body)),
        "connection": "close",
    }
    lines = [f"POST {scene.path} HTTP/1.1", *(f"{key}: {headers[key]}" for key in headers)]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _chunks(reader: asyncio.StreamReader, *, leave_at: int | None) -> bytes:
    """A chunked body until its terminator, until it breaks off, or until the client leaves."""
    body = b""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
            if leave_at is not None and len(body) >= leave_at:
                break
    return body
