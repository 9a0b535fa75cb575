"""Edge. Sends a scene's request as the official SDK would, and reads its answer to the end."""

import asyncio
import contextlib
import re

from addon.demo.scene import Scene, compact
from addon.demo.upstream import SCENE_HEADER

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
